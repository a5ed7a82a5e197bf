"""The house: who may import whom, which package may be used where, and how large things get."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "bestarm_agent"

# Each part may import the parts listed, itself, and `errors`. Anything else is a broken wall.
STATS = {"stats"}
ALGORITHMS = STATS | {"selectors", "preselection", "certification"}
DOMAIN = ALGORITHMS | {"domain"}
ADAPTERS = DOMAIN | {
    "config",
    "providers",
    "judges",
    "prompts",
    "datasets",
    "features",
    "catalog",
    "functions",
}
SCHEDULE = DOMAIN | {"providers"}
APP = ADAPTERS | {"store", "schedule", "simulation", "app", "report", "_version"}
ALLOWED = {
    "stats": STATS,
    "selectors": STATS | {"selectors"},
    "preselection": STATS,
    "certification": STATS,
    "domain": DOMAIN,
    "config": DOMAIN,
    "catalog": DOMAIN | {"config"},
    "functions": DOMAIN,
    "providers": DOMAIN | {"config", "functions"},
    "judges": DOMAIN
    | {"config", "catalog", "functions", "prompts"},  # a judge that asks a model has a prompt
    "prompts": DOMAIN | {"config", "catalog"},
    "datasets": DOMAIN | {"config"},
    "features": ALGORITHMS,
    "store": DOMAIN,
    "schedule": SCHEDULE,
    "simulation": ALGORITHMS | {"simulation"},
    "report": APP,
    "app": APP,
    "cli": APP | {"cli"},
    "testing": APP | {"testing"},
    "errors": set[str](),
    "_version": set[str](),
}
PARTS = set(ALLOWED)

# Third-party packages that only some parts may import (anywhere in a file).
CONFINED = {
    "torch": {"providers"},
    "transformers": {"providers"},
    "safetensors": {"providers"},
    "openai": {"providers"},
    "anthropic": {"providers"},
    "vllm": {"providers"},
    "genai_prices": {"providers"},
    "sqlalchemy": {"store"},
    "psycopg": {"store"},
    "typer": {"cli"},
    "rich": {"cli"},
    "tenacity": {"schedule"},
    "jinja2": {"prompts", "report", "judges"},
    "regex": {"judges"},
    "json_repair": {"judges"},
    "sacrebleu": {"judges"},
    "rouge_score": {"judges"},
    "jsonschema": {"judges"},
    "yaml": {"config", "catalog", "prompts", "cli"},
    "pydantic": {"config", "providers", "judges", "prompts", "datasets", "catalog"},
    "pydantic_settings": {"config"},
    "sklearn": {"features"},
    "matplotlib": {"simulation"},
    "pyarrow": {"datasets", "store", "simulation"},
    "datasets": {"datasets"},
    "pytest": {"testing"},
    "httpx": set[str](),
    "httpx2": set[str](),
}


def part_of(path: Path) -> str:
    """Name the part of the house that a file belongs to; modules at the root are the app."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return first if first in PARTS else "app"


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_catalog" not in path.parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            if node.module == "bestarm_agent":
                yield from ((node.lineno, f"bestarm_agent.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


def test_imports_point_down_only() -> None:
    broken = []
    for path in modules():
        part = part_of(path)
        for line, name in imports(path):
            if not name.startswith("bestarm_agent."):
                continue
            target = name.split(".")[1]
            target = target if target in PARTS else "app"
            if target not in ALLOWED[part] | {part, "errors"}:
                broken.append(f"{path.relative_to(PACKAGE)}:{line}: {part} must not see {target}")
    assert not broken, "\n".join(broken)


def test_third_party_packages_stay_where_they_belong() -> None:
    broken = []
    for path in modules():
        part = part_of(path)
        for line, name in imports(path):
            allowed = CONFINED.get(name.split(".")[0])
            if allowed is not None and part not in allowed:
                broken.append(f"{path.relative_to(PACKAGE)}:{line}: {part} must not use {name}")
    assert not broken, "\n".join(broken)


HEAVY = {
    "sklearn",
    "torch",
    "transformers",
    "openai",
    "anthropic",
    "vllm",
    "matplotlib",
    "pyarrow",
    "genai_prices",
}


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


def functions() -> list[tuple[str, int]]:
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append((f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", size))
    return found


def test_functions_stay_small() -> None:
    sizes = functions()
    too_long = [f"{name}: {size} lines" for name, size in sizes if size > 60]
    assert not too_long, "\n".join(too_long)
    lengths = sorted(size for _, size in sizes)
    assert statistics.median(lengths) <= 12
    assert lengths[int(0.9 * len(lengths))] <= 30


def test_files_stay_readable() -> None:
    too_long = {
        str(path.relative_to(PACKAGE)): lines
        for path in modules()
        if (lines := path.read_text(encoding="utf-8").count("\n")) > 400
    }
    assert not too_long, f"split by idea: {too_long}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{path.name} has no docstring"
