"""The floors of the package: who may import whom, which package is used where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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
    config.yaml
    config.catalog config.functions
    config.study
    config.candidates config.datasets config.prompts
    config.load config.starter
    config.settings config.__init__
    store simulation
    providers judges
    providers.api providers.hf providers.programs providers.threads providers.replay
    providers.vllm providers.command providers.python
    providers.registry
    providers.ray
    providers.__init__ judges.__init__ store.__init__
    engine.ledger engine.suspicion engine.__init__
    engine.limits
    engine.call
    engine.judging
    engine.evaluate
    engine.pool
    engine.results
    engine.record
    engine.loop
    engine.mode
    engine.setup
    engine.run
    engine.confirm engine.single_calls
    report
    preselection gate certification interop
    study
    testing view
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
    "sklearn": {"preselection.features"},
    "matplotlib": {"simulation"},
    "pyarrow": {"config.datasets", "store", "simulation"},
    "datasets": {"config.datasets"},
    "pytest": {"testing"},
    "httpx": set[str](),
    "httpx2": {"providers.api", "providers.prices"},  # what the SDKs stand on
}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_catalog" not in path.parts)


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")


NAMES = {name_of(path) for path in modules()}


def room_of(module: str) -> str:
    """Name the room of a module: its longest prefix among the rooms."""
    parts = module.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(prefix for prefix in prefixes if prefix in LEVEL)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def own_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and module of what a file imports from the package."""
    for line, name in imports(path):
        if name.split(".")[0] != "bestarm_agent":
            continue
        inner = name.removeprefix("bestarm_agent").removeprefix(".")
        for candidate in (inner, f"{inner}.__init__", inner.rpartition(".")[0]):
            if candidate in NAMES:
                yield line, candidate
                break
        else:
            package = inner.rpartition(".")[0]
            yield line, f"{package}.__init__" if package else "__init__"


@pytest.mark.slow
def test_imports_point_down_only() -> None:
    broken = []
    for path in modules():
        room = room_of(name_of(path))
        for line, target in own_imports(path):
            seen = room_of(target)
            if seen != room and LEVEL[seen] >= LEVEL[room]:
                broken.append(f"{path.relative_to(PACKAGE)}:{line}: {room} must not see {target}")
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name_of(path): {target for _, target in own_imports(path)} for path in modules()}
    TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_few_modules_lie_loose_in_the_package() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 7  # with __main__


@pytest.mark.slow
def test_third_party_packages_stay_where_they_belong() -> None:
    broken = []
    for path in modules():
        room = name_of(path)
        for line, name in imports(path):
            allowed = CONFINED.get(name.split(".")[0])
            if allowed is not None and not any(f"{room}.".startswith(f"{a}.") for a in allowed):
                broken.append(f"{path.relative_to(PACKAGE)}:{line}: {room} must not use {name}")
    assert not broken, "\n".join(broken)


HEAVY = {
    "sklearn",
    "torch",
    "transformers",
    "openai",
    "anthropic",
    "vllm",
    "ray",
    "matplotlib",
    "pyarrow",
    "genai_prices",
    "inspect_ai",
}


@pytest.mark.slow
def test_heavy_packages_are_imported_where_they_are_used() -> None:
    broken = []
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            broken += [
                f"{path.relative_to(PACKAGE)}:{node.lineno}: import {name} inside the function"
                for name in names
                if name.split(".")[0] in HEAVY
            ]
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_docstrings_begin_with_what_is_done_or_described() -> None:
    riddles = {"What", "Whether", "How", "Which", "Why", "Where"}
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    found = [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, documented) and (ast.get_docstring(node) or "").split(" ")[0] in riddles
    ]
    assert not found, "begin with a verb or a noun: " + ", ".join(found)
