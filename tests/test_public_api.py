"""The public names: exactly these, each there and documented, and enough for a plug-in."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
_NAMES = {
    "bestarm_agent": (
        "Archive BestarmError Budget Candidate CandidateDict CandidateError ConfigError Example "
        "Feedback Json JudgeError Message Options PairFilter PairOutcome PluginError "
        "PromptTemplate ProviderError Row Spend Standing StoreError Study Task find_best optimize "
        "select"
    ),
    "bestarm_agent.selectors": (
        "Ask BoolArray Choice Pair Problem Rule State Stop Tell make_selector"
    ),
    "bestarm_agent.providers": (
        "Provider Capabilities FailureKind Finish Message ProviderError ProviderOptions Reply "
        "Request Spend Usage create_provider failure"
    ),
    "bestarm_agent.judges": (
        "Judge Blame Calls Example FailureKind JudgeCall JudgeError JudgeModel JudgeOptions "
        "JudgeSetup Message Reply Request Score Vote candidate_failed judge_failed "
        "refuse_declined unparsable"
    ),
    "bestarm_agent.store": ("RunInfo RunLog Store open_store"),
    "bestarm_agent.testing": ("JudgeCase JudgeSuite ProviderCase ProviderSuite SelectorSuite"),
}
PUBLIC = {package: set(names.split()) for package, names in _NAMES.items()}


def test_the_page_names_the_public_packages() -> None:
    _, section = PAGE.split("## Public names")
    text, *_ = section.split("##")
    listed = re.findall(r"`(?:bestarm_agent)?(?:\.(\w+))?`", text)
    assert [f"bestarm_agent.{name}" if name else "bestarm_agent" for name in listed] == [*PUBLIC]


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_exactly_these_names(package: str) -> None:
    assert set(import_module(package).__all__) - {"__version__"} == PUBLIC[package]


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_there_and_documented(package: str) -> None:
    for name in PUBLIC[package] - {"BoolArray", "Json"}:  # aliases of types
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
