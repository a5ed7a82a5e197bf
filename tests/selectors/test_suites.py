"""Every registered rule has a conformance suite."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from bestarm_agent.selectors.registry import SELECTORS
from tests.support.selector_suite import SelectorSuite

RULES = Path(__file__).parent


def loaded(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"suites_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_registered_rule_has_a_suite() -> None:
    modules = [loaded(path) for path in RULES.glob("*/test_*.py")]
    suites = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, SelectorSuite)
    } - {SelectorSuite}
    assert {suite().open().name for suite in suites} == set(SELECTORS.built_in)
