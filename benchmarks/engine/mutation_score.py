"""Change one thing at a time in what money and intervals depend on; count what tests notice.

    python -m benchmarks.engine.mutation_score                       # all modules
    python -m benchmarks.engine.mutation_score engine --sample 60

A mutant is one small change in a function: a comparison turned, a sum made a difference, a constant
moved by one, a condition negated, a statement left out. The tests of a room are collected once, and
run once to see which functions each calls. A mutant is then tried in a fork, in which the function
has the changed code, by the tests that call it, the fastest first; no file is touched. A mutant
that hangs counts as noticed. What tests start as a process of its own runs without the change.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeAlias

import pytest

from bestarm_agent.stats.keyed_random import KeyedRandom

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bestarm_agent"
# By room: its modules, and what tests them.
ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "engine": (
        "ledger call judging evaluate record earlier pool limits/model_limits",
        (
            "tests/engine/calls",
            "tests/engine/limits",
            "tests/engine/run",
            "tests/engine/test_crashes.py",
            "tests/engine/test_ledger.py",
            "tests/engine/test_per_dollar.py",
            "tests/engine/test_record.py",
        ),
    ),
    "engine/results": (
        "standing objectives from_log",
        (
            "tests/engine/results",
            "tests/engine/run",
            "tests/engine/test_crashes.py",
            "tests/test_stopping.py",
            "tests/cli/test_objectives.py",
            "tests/cli/test_progress.py",
        ),
    ),
    "engine/setup": (
        "parts",
        ("tests/engine/setup", "tests/plugins/test_studies.py", "tests/test_study.py"),
    ),
    "store": (
        "chunks codec database pair_columns run_state store",
        ("tests/store",),
    ),
    "stats": (
        "betting control new_examples non_inferiority paired_sequences",
        ("tests/stats", "tests/gate"),
    ),
    "certification": (
        "betting certificate mode pairs summary",
        ("tests/certification",),
    ),
    "judges": ("choice numbers", ("tests/judges",)),
    "selectors": ("answer", ("tests/selectors/test_answer.py",)),
    "selectors/auto": ("axes_model chains", ("tests/selectors/auto",)),
    "report": (
        "caveats certificate differences limits markdown matrix page_data pair_sample"
        " progress_text quantities slices text verdicts winners_number",
        ("tests/report", "tests/engine/results", "tests/cli"),
    ),
}
_OPTIONS = ("-qq", "-p", "no:cacheprovider", "-p", "no:xdist", "-o")
_PLAIN = "addopts=--import-mode=importlib --doctest-modules"  # the project's own need xdist
_SLOWER, _SECONDS = 4.0, 10.0  # tests of a mutant have this many times as long, and this more

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
        case ast.Return(value=ast.AST() as value) if ast.unparse(value) != "None":
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


Key: TypeAlias = tuple[str, str, int]  # of a function: its file, qualified name and first line


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and of its classes, not those inside functions."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_flags & 0x2:  # CO_NEWLOCALS: no class's body
            yield inner
        elif isinstance(inner, CodeType):
            yield from _functions(inner)


@dataclass(frozen=True)
class Mutant:
    """A module with one change: the functions that differ from the original ones."""

    module: str
    site: Site
    changed: dict[Key, CodeType]

    def __str__(self) -> str:
        line = (SOURCE / self.module).read_text().splitlines()[self.site.line - 1].strip()
        return f"{self.module}:{self.site.line} {self.site.change}: {line}"


class Loaded:
    """The functions of this process that can be changed, and the caches of all."""

    def __init__(self) -> None:
        self.functions: dict[Key, list[FunctionType]] = {}
        self._caches: list[Any] = []
        # The tests' conftest freezes what is loaded, and the collector names nothing that is
        # frozen: mutants were never in place.
        gc.unfreeze()
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self.functions.setdefault(_key(one.__code__), []).append(one)
            elif isinstance(one, _lru_cache_wrapper):
                self._caches.append(one)
        gc.freeze()

    def put_in_place(self, mutant: Mutant) -> None:
        """Give functions the changed code."""
        for key, code in mutant.changed.items():
            for one in self.functions[key]:
                one.__code__ = code
        self.forget()

    def forget(self) -> None:
        """Empty the caches of functions, so that each test calls all that it rests on."""
        for one in [*self._caches, *gc.get_objects()]:
            if isinstance(one, _lru_cache_wrapper):
                one.cache_clear()


def mutants(module: str, sample: int, seed: int) -> list[Mutant]:
    """Draw mutants of a module that change its functions."""
    path = SOURCE / module
    tree = ast.parse(path.read_text())
    original = {_key(code): code for code in _functions(compile(tree, str(path), "exec"))}
    found = []
    for site in sites(tree):
        with contextlib.suppress(SyntaxError, ValueError):
            codes = {_key(code): code for code in _functions(mutant(tree, site, path))}
            changed = {key: codes[key] for key in codes if codes[key] != original.get(key)}
            fits = (codes[key].co_freevars == original[key].co_freevars for key in changed)
            if changed and codes.keys() == original.keys() and all(fits):
                found.append(Mutant(module, site, changed))
    rng = KeyedRandom(seed, module).at(0)
    chosen = rng.choice(len(found), min(sample, len(found)), replace=False)
    return sorted((found[i] for i in chosen), key=lambda one: one.site.line)


class Scorer:
    """Tries mutants where pytest would run the tests that it has collected."""

    def __init__(self, modules: Sequence[str], sample: int, seed: int) -> None:
        self._modules = {module: mutants(module, sample, seed) for module in modules}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Score, in the place of running the tests."""
        self._loaded = Loaded()
        seen = _in_fork(lambda: self._watch(session), float("inf"))
        if seen is None:
            pytest.exit("tests fail without any change; mend them first", returncode=1)
        seconds, calls = pickle.loads(seen)
        order = sorted(range(len(calls)), key=seconds.__getitem__)
        for module, tried in self._modules.items():
            noticed = 0
            for one in tried:
                callers = [i for i in order if calls[i] & one.changed.keys()]
                limit = _SECONDS + _SLOWER * sum(seconds[i] for i in callers)
                items = [session.items[i] for i in callers]
                if items and not one.changed.keys() <= self._loaded.functions.keys():
                    pytest.exit(f"{one}: the function is not found", returncode=1)
                survived = _in_fork(partial(self._try, session, one, items), limit) is not None
                noticed += not survived
                if survived:
                    print(f"  survived {one}{'' if items else ' (never called)'}", flush=True)
            print(f"{module}: {noticed} of {len(tried)} noticed", flush=True)
        return True

    def _watch(self, session: pytest.Session) -> bytes:
        """Return the seconds that each test takes and the functions that it calls, pickled."""
        files = {str(SOURCE / module) for module in self._modules}
        calls: set[Key] = set()

        def note(frame: FrameType, _event: str, _arg: object) -> None:
            if frame.f_code.co_filename in files:
                calls.add(_key(frame.f_code))

        seen = []
        threading.settrace(note)
        for i, item in enumerate(session.items):
            calls.clear()
            self._loaded.forget()
            began = time.monotonic()
            sys.settrace(note)
            try:
                _run(session, item, session.items[i + 1 : i + 2])
            except AssertionError as error:
                os.write(2, f"without any change, {error}\n".encode())
                raise
            sys.settrace(None)
            seen.append((time.monotonic() - began, set(calls)))
        return pickle.dumps(tuple(zip(*seen, strict=True)))

    def _try(self, session: pytest.Session, one: Mutant, items: Sequence[pytest.Item]) -> bytes:
        self._loaded.put_in_place(one)
        for i, item in enumerate(items):
            _run(session, item, items[i + 1 : i + 2])
        return b""


def _run(session: pytest.Session, item: pytest.Item, then: Sequence[pytest.Item]) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=then[0] if then else None)
    if session.testsfailed:
        raise AssertionError(f"{item.nodeid} fails")


def _in_fork(work: Callable[[], bytes], limit: float) -> bytes | None:
    """Do work in a fork and return its result; None if it raises or takes longer than limit."""
    with tempfile.TemporaryFile() as result:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                result.write(work())
                result.flush()
                code = 0
            finally:
                os._exit(code)
        began = time.monotonic()
        done, status = 0, 0
        while not done and time.monotonic() < began + limit:
            done, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0 if done else 0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if not done:
            os.waitpid(pid, 0)
            return None
        result.seek(0)
        return result.read() if os.waitstatus_to_exitcode(status) == 0 else None


def main() -> None:
    """Score the modules of the rooms that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(ROOMS)}, or modules of one")
    parser.add_argument("--sample", type=int, default=60, help="mutants of a module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-k", default="", help="which tests, as pytest's -k")
    options = parser.parse_args()
    known = {f"{room}/{name}.py" for room, (names, _) in ROOMS.items() for name in names.split()}
    if unknown := set(options.rooms) - known - set(ROOMS):
        parser.error(f"no such room or module: {', '.join(sorted(unknown))}")
    for room, (names, tests) in ROOMS.items():
        of_room = [f"{room}/{name}.py" for name in names.split()]
        modules = [m for m in of_room if not options.rooms or {room, m} & set(options.rooms)]
        if not modules:
            continue
        scorer = Scorer(modules, options.sample, options.seed)
        paths = [f"src/bestarm_agent/{module}" for module in modules]
        command = [*_OPTIONS, _PLAIN, "-k", options.k, *paths, *tests]
        if pytest.main(command, plugins=[scorer]):
            sys.exit(1)


if __name__ == "__main__":
    main()
