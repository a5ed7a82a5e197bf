"""The public names: exactly these, each there and documented, and enough for a plug-in."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### `([\w.]+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
PUBLIC = {package: set(re.findall(r"`(\w+)`", text)) for package, text in SECTION.findall(PAGE)}


def test_the_page_lists_the_public_packages() -> None:
    inner = ("selectors", "providers", "judges", "store", "testing")
    assert set(PUBLIC) == {"bestarm_agent", *(f"bestarm_agent.{name}" for name in inner)}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_what_the_page_lists(package: str) -> None:
    assert set(import_module(package).__all__) - {"__version__"} == PUBLIC[package]


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_there_and_documented(package: str) -> None:
    for name in PUBLIC[package] - {"BoolArray"}:  # an alias of a type of numpy
        found = getattr(import_module(package), name)
        assert (found.__doc__ or "").strip(), f"{package}.{name}"


@pytest.mark.parametrize("package", PUBLIC)
def test_a_name_that_is_not_public_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nonsense'"):
        getattr(import_module(package), "Nonsense")  # noqa: B009 - else ruff calls it useless


def imported_by(path: Path) -> list[tuple[str, str]]:
    """Return (module, name) of all that a file imports from this package."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.split(".")[0] == "bestarm_agent"
    ]


def test_the_example_plugin_imports_public_names_only() -> None:
    files = sorted((ROOT / "examples" / "plugin").rglob("*.py"))
    assert len(files) >= 5
    for path in files:
        for module, name in imported_by(path):
            assert name in PUBLIC.get(module, set()), f"{path.name}: {module}.{name}"
