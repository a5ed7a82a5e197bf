"""Change one thing at a time in what money and intervals depend on; count what tests notice.

    python -m benchmarks.engine.mutation_score                    # all modules
    python -m benchmarks.engine.mutation_score engine/ledger.py --sample 60

A mutant is one small change: a comparison turned, a sum made a difference, a constant moved by one,
a condition negated, a statement left out. Each is tried in a process of its own that loads the
changed module from memory; no file is touched. A mutant that hangs counts as noticed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import importlib.machinery
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from bestarm_agent.stats.keyed_random import KeyedRandom

SOURCE = Path(__file__).parents[2] / "src" / "bestarm_agent"
_CALLS = (
    "tests/engine/calls",
    "tests/engine/test_interruption.py",
    "tests/engine/run/test_run_loop.py",
)
_INTERVALS = "tests/stats/intervals"
Tests: TypeAlias = tuple[str, ...]
TESTS: dict[str, Tests] = {
    "engine/ledger.py": ("tests/engine/test_ledger.py",),
    "engine/calls/retrying.py": _CALLS,
    "engine/calls/reply_cache.py": _CALLS,
    "engine/calls/pair.py": _CALLS,
    "engine/calls/judge_calls.py": _CALLS,
    "engine/run/event_log.py": (
        "tests/engine/run",
        "tests/engine/test_interruption.py",
        "tests/engine/test_per_dollar.py",
    ),
    "stats/intervals/betting_bounds.py": (f"{_INTERVALS}/test_betting_bounds.py",),
    "stats/intervals/confidence_sequences.py": (f"{_INTERVALS}/test_confidence_sequences.py",),
    "stats/intervals/paired_sequences.py": (f"{_INTERVALS}/test_paired_sequences.py",),
    "selectors/ask_order_intervals.py": ("tests/selectors/test_ask_order_intervals.py",),
}
_FIRST = ("numpy", "pytest", "scipy.stats", "tenacity")  # loaded once, before forks
_MARKS = ("not slow and not coverage", "slow or coverage")
_SLOWER, _SECONDS = 4.0, 10.0  # tests of a mutant have this many times as long, and this more
_limits: dict[tuple[Tests, str], float] = {}  # in seconds, from the first run without a change

_TURNED: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_OUT = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete)
_NO_CODE = ("annotation", "returns", "decorator_list", "bases")


@dataclass(frozen=True)
class Site:
    """A place that can be changed: the number of its node in ``_nodes``, and how."""

    node: int
    line: int
    change: str


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk through what runs: no annotations, no documentation, no messages of errors."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in _NO_CODE or (isinstance(tree, ast.Raise) and name == "exc"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _changes(node: ast.AST) -> Iterator[str]:
    """Name the changes that a node allows."""
    match node:
        case ast.Compare(ops=[op]) | ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op):
            if type(op) in _TURNED:
                yield f"{type(op).__name__} -> {_TURNED[type(op)].__name__}"
        case ast.Constant(value=bool() | int() | float()):
            yield f"constant {node.value!r}"
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"no {type(node.op).__name__}"
        case ast.If() | ast.IfExp() | ast.While():
            yield "negate condition"
        case ast.Name(id="min" | "max" | "any" | "all"):
            yield f"{node.id} -> {_NAMES[node.id]}"
        case ast.Return(value=ast.AST()):
            yield "return None"
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, _LEFT_OUT) and not is_text:
        yield f"leave out {type(node).__name__}"


def sites(tree: ast.Module) -> list[Site]:
    """List all changes that a module allows."""
    return [
        Site(number, getattr(node, "lineno", 0), change)
        for number, node in enumerate(_nodes(tree))
        for change in _changes(node)
    ]


def _changed(node: Any, change: str) -> ast.AST:  # noqa: ANN401
    if change.startswith("leave out"):
        return ast.Pass()
    if change == "return None":
        node.value = ast.Constant(None)
    elif change == "negate condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif change.startswith("no "):
        return node.operand  # type: ignore[no-any-return]
    elif change.startswith("constant"):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Name):
        node.id = _NAMES[node.id]
    elif isinstance(node, ast.Compare):
        node.ops = [_TURNED[type(node.ops[0])]()]
    else:
        node.op = _TURNED[type(node.op)]()
    return node  # type: ignore[no-any-return]


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, change: str) -> None:
        self._old = old
        self._change = change

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._old:
            return ast.copy_location(_changed(node, self._change), node)
        return self.generic_visit(node)


def mutant(tree: ast.Module, site: Site, path: Path) -> CodeType:
    """Compile a module with one change."""
    tree = copy.deepcopy(tree)
    old = list(_nodes(tree))[site.node]
    changed: Any = ast.fix_missing_locations(_Replace(old, site.change).visit(tree))
    code: CodeType = compile(changed, str(path), "exec")
    return code


def _load_from_memory(path: Path, code: CodeType) -> None:
    loader: Any = importlib.machinery.SourceFileLoader
    get_code = loader.get_code

    def changed(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return code if Path(self.path) == path else get_code(self, fullname)

    loader.get_code = changed


def _tests_pass(path: Path, code: CodeType | None, tests: Tests) -> bool:
    """Run tests, the fast ones first; return whether all pass in time."""
    return all(_run(path, code, tests, marks) for marks in _MARKS)


def _run(path: Path, code: CodeType | None, tests: Tests, marks: str) -> bool:
    """Run tests in a process of its own; return whether all pass in time."""
    pid = os.fork()
    if pid == 0:
        import pytest

        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if code is not None:
            _load_from_memory(path, code)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marks]
        os._exit(int(pytest.main([*options, *tests])) not in (0, 5))  # 5: none has the mark
    began, limit = time.monotonic(), _limits.get((tests, marks), math.inf)
    while time.monotonic() < began + limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            seconds = time.monotonic() - began
            _limits.setdefault((tests, marks), _SLOWER * seconds + _SECONDS)
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def score(module: str, sample: int, seed: int, lines: range) -> tuple[int, int]:
    """Try mutants of a module and print those that survive; return (noticed, tried)."""
    path = SOURCE / module
    tree = ast.parse(path.read_text())
    tests = TESTS[module]
    if not _tests_pass(path, None, tests):
        sys.exit(f"{module}: its tests fail without any change; mend them first: {tests}")
    found = [site for site in sites(tree) if site.line in lines]
    rng = KeyedRandom(seed, module).at(0)
    chosen = [found[i] for i in rng.choice(len(found), min(sample, len(found)), replace=False)]
    noticed = 0
    for site in sorted(chosen, key=lambda site: site.line):
        try:
            code = mutant(tree, site, path)
        except (SyntaxError, ValueError):
            noticed += 1
            continue
        survived = _tests_pass(path, code, tests)
        noticed += not survived
        if survived:
            text = path.read_text().splitlines()[site.line - 1].strip()
            print(f"  survived {module}:{site.line} {site.change}: {text}", flush=True)
    print(f"{module}: {noticed} of {len(chosen)} noticed ({len(found)} possible)", flush=True)
    return noticed, len(chosen)


def main() -> None:
    """Score the modules that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(TESTS), choices=[*TESTS, []])
    parser.add_argument("--sample", type=int, default=60, help="mutants of a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, nargs=2, default=(0, 1_000_000))
    options = parser.parse_args()
    for name in _FIRST:
        importlib.import_module(name)
    lines = range(options.lines[0], options.lines[1] + 1)
    scores = [
        score(module, options.sample, options.seed, lines) for module in options.modules or TESTS
    ]
    noticed, tried = map(sum, zip(*scores, strict=True))
    print(f"together: {noticed} of {tried}")


if __name__ == "__main__":
    main()
