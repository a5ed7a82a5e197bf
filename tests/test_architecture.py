"""The floors of the package: who may import whom, which package is used where."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "bestarm_agent"

# Rooms from the ground up, as in docs/architecture.md. A room imports itself and the floors below,
# never its neighbours. The longest prefix of a module's name is its room.
FLOORS = tuple(
    floor.split()
    for floor in """
    errors _version
    plugins
    stats.arrays
    stats
    selectors domain
    selectors.rules
    selectors.auto
    selectors.registry
    selectors.__init__
    config.fields
    config.yaml config.file_errors
    config.files
    config.attachments config.catalog config.functions config.conversations
    config.traces config.value_types
    config.input_specs
    config.goal_specs
    config.study
    config.candidates config.datasets config.prompts
    config.load config.starter config.labels
    config.settings config.__init__
    store simulation
    providers judges
    providers.api providers.hf providers.programs providers.replay
    providers.vllm providers.command providers.python
    providers.registry
    providers.ray
    providers.__init__ judges.__init__ store.__init__
    engine.ledger engine.scorer_signs engine.__init__
    engine.limits
    engine.call
    engine.reply_cache
    engine.judging
    engine.evaluate
    engine.pool
    engine.first_pairs
    engine.results engine.earlier
    engine.record
    engine.asking engine.pending
    engine.loop
    engine.mode
    engine.setup
    engine.run
    engine.confirm engine.single_calls engine.proposer
    report
    preselection gate certification interop
    study
    testing view interop.harbor
    optimization
    cli
    cli.main
    one_call
    __init__
    __main__
""".strip().splitlines()
)
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}

# Third-party packages that only some rooms may import (anywhere in a file).
CONFINED = {
    "torch": {"providers.hf"},
    "transformers": {"providers.hf"},
    "safetensors": {"providers.hf"},
    "aiohttp": {"providers.api", "view"},
    "openai": {"providers.api"},
    "anthropic": {"providers.api"},
    "vllm": {"providers.vllm"},
    "ray": {"providers.ray"},
    "genai_prices": {"providers.prices"},
    "sqlalchemy": {"store"},
    "psycopg": {"store"},
    "click": {"cli"},
    "rich": {"cli"},
    "tenacity": {"engine.call"},
    "jinja2": {"config.prompts", "report"},
    "regex": {"judges"},
    "sacrebleu": {"judges"},
    "rouge_score": {"judges"},
    "jsonschema": {"judges"},
    "yaml": {"config", "cli", "interop.promptfoo_study"},
    "pydantic": {"config", "store", "providers", "judges", "preselection"},
    "pydantic_settings": {"config"},
    "backports": {"interop"},
    "inspect_ai": {"interop"},
    "harbor": {"interop.harbor"},
    "sklearn": {"preselection.features"},
    "matplotlib": {"simulation"},
    "pyarrow": {"config.datasets", "store", "simulation"},
    "datasets": {"config.datasets"},
    "pytest": {"testing"},
    "httpx": set[str](),
    "httpx2": {"providers.api", "providers.prices"},  # what the SDKs stand on
}


PATHS = sorted(path for path in PACKAGE.rglob("*.py") if "_catalog" not in path.parts)
NAMES = {
    path: path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for path in PATHS
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def room_of(module: str) -> str:
    """Name the room of a module: its longest prefix among the rooms."""
    parts = module.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(prefix for prefix in prefixes if prefix in LEVEL)


def imported(body: Iterable[ast.AST], path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of what the statements import."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module of what a file imports from the package."""
    for line, name in imported(nodes_of(path), path):
        if name.split(".")[0] != "bestarm_agent":
            continue
        inner = name.removeprefix("bestarm_agent").removeprefix(".")
        for candidate in (inner, f"{inner}.__init__", inner.rpartition(".")[0]):
            if candidate in NAMES.values():
                yield line, candidate
                break
        else:
            package = inner.rpartition(".")[0]
            yield line, f"{package}.__init__" if package else "__init__"


def assert_none(broken: Iterable[str]) -> None:
    found = "\n".join(broken)
    assert not found, found


def test_imports_point_down_only() -> None:
    rooms = {name: room_of(name) for name in NAMES.values()}
    assert_none(
        f"{path.relative_to(PACKAGE)}:{line}: {rooms[name]} must not see {target}"
        for path, name in NAMES.items()
        for line, target in own_imports(path)
        if rooms[target] != rooms[name] and LEVEL[rooms[target]] >= LEVEL[rooms[name]]
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: {target for _, target in own_imports(path)} for path, name in NAMES.items()}
    TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_few_modules_lie_loose_in_the_package() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 7  # with __main__


def test_third_party_packages_stay_where_they_belong() -> None:
    everywhere = {""}
    assert_none(
        f"{path.relative_to(PACKAGE)}:{line}: {name} must not use {used}"
        for path, name in NAMES.items()
        for line, used in imported(nodes_of(path), path)
        if not any(
            f"{name}.".startswith(f"{room}." if room else "")
            for room in CONFINED.get(used.split(".")[0], everywhere)
        )
    )


HEAVY = """
sklearn torch transformers openai anthropic vllm ray matplotlib pyarrow genai_prices inspect_ai
"""


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    assert_none(
        f"{path.relative_to(PACKAGE)}:{line}: import {name} inside the function"
        for path in PATHS
        for line, name in imported(tree_of(path).body, path)
        if name.split(".")[0] in HEAVY.split()
    )


def test_docstrings_begin_with_what_is_done_or_described() -> None:
    riddles = {"What", "Whether", "How", "Which", "Why", "Where", "Whose"}
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    assert_none(
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}: begin with a verb or a noun"
        for path in PATHS
        for node in nodes_of(path)
        if isinstance(node, documented) and (ast.get_docstring(node) or "").split(" ")[0] in riddles
    )


# distributions by the name of their module, where the two differ
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "dotenv": "python-dotenv",
    "pydantic_core": "pydantic",
    "inspect_ai": "inspect-ai",
    "backports": "backports.zstd",
    "sklearn": "scikit-learn",
}
GIVEN = {
    "IPython",
    "mpmath",
    "sympy",
    "pytest",
}  # by the notebook, math-verify, or the user's tests


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    listed = chain(project["dependencies"], *project["optional-dependencies"].values())
    declared = {re.split(r"[\[<>=;~! ]", one)[0].lower().replace("_", "-") for one in listed}
    assert_none(
        f"{path.relative_to(PACKAGE)}:{line}: {used} is not in pyproject.toml"
        for path in PATHS
        for line, used in imported(nodes_of(path), path)
        for module in [used.split(".")[0]]
        if module not in {*sys.stdlib_module_names, "bestarm_agent", *GIVEN}
        and DISTRIBUTIONS.get(module, module.lower().replace("_", "-")) not in declared
    )
