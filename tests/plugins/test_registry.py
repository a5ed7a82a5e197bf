from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError, PluginError
from bestarm_agent.plugins import Registry
from bestarm_agent.selectors.registry import SELECTORS, make_selector, selector_names
from bestarm_agent.selectors.types import Problem
from tests.support.distributions import install

PROBLEM = Problem(3, 10, budget=20)
RULE = """
    from bestarm_agent.selectors import Rule


    class Mine(Rule):
        name = "mine"
"""
BROKEN = "import a_library_that_is_not_installed\n"


def numbers(**built_in: str) -> Registry[float]:
    return Registry(
        "number", "numbers", built_in, lambda found: isinstance(found, float), "a float"
    )


Install = Callable[..., None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one entry point, in a module of its own name."""
    modules = []

    def one(name: str, group: str, entry: str, path: str, source: str, **more: str) -> None:
        module = name.replace("-", "_")
        modules.append(module)
        files = {f"{module}.py": source}
        points = {group: {entry: path}}
        install(tmp_path / "site", monkeypatch, name, entry_points=points, files=files, **more)

    yield one
    for module in modules:
        sys.modules.pop(module, None)


def test_a_plugin_is_found_by_the_name_of_its_entry_point(installed: Install) -> None:
    installed("demo-half", "numbers", "half", "demo_half:HALF", "HALF = 0.5")
    assert numbers(e="math:e").names() == ("e", "half")
    assert "demo_half" not in sys.modules  # listing names imports nothing
    assert numbers(e="math:e").load("half") == 0.5


def test_a_broken_plugin_is_one_error_that_names_its_distribution(installed: Install) -> None:
    installed("bad-rules", "selectors", "bad", "bad_rules:Bad", BROKEN, version="0.3")
    assert "bad" in selector_names()
    with pytest.raises(PluginError) as caught:
        make_selector("bad", PROBLEM)
    assert str(caught.value) == (
        "selector `bad` (bad_rules:Bad) of bad-rules 0.3 cannot be used: importing it raised "
        "ModuleNotFoundError: No module named 'a_library_that_is_not_installed'; repair, update or "
        "uninstall it, or choose another"
    )
    make_selector("uniform", PROBLEM)  # other rules are not affected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("odd:TEXT", r"of odd 1\.2 is 'half', not a float$"),
        ("odd:NOTHING", r"of odd 1\.2 cannot be used: importing it raised AttributeError"),
        ("nowhere:X", r"of odd 1\.2 cannot be used: importing it raised ModuleNotFoundError"),
    ],
)
def test_an_entry_point_that_leads_to_something_else_is_refused(
    installed: Install, path: str, message: str
) -> None:
    installed("odd", "numbers", "odd", path, "TEXT = 'half'")
    with pytest.raises(PluginError, match=message):
        numbers().load("odd")


def test_a_built_in_name_means_the_built_in_thing(installed: Install) -> None:
    installed("usurper", "selectors", "uniform", "usurper:Mine", RULE)
    assert selector_names().count("uniform") == 1
    assert make_selector("uniform", PROBLEM).rule.name == "uniform"
    assert SELECTORS.load("usurper:Mine").name == "mine"


def test_a_name_that_two_distributions_claim_is_refused(installed: Install) -> None:
    for name in ("one", "two"):
        installed(name, "numbers", "half", f"{name}:HALF", "HALF = 0.5")
    with pytest.raises(PluginError, match=r"`half` is declared by one 1\.2 and two 1\.2; uninst"):
        numbers().load("half")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no number `ee`; did you mean `e`"):
        numbers(e="math:e").load("ee")


def test_every_built_in_selector_is_what_it_is_registered_as() -> None:
    for name in SELECTORS.built_in:
        assert SELECTORS.load(name).name == name


def test_listing_names_imports_no_plugin() -> None:
    code = (
        "import sys\n"
        "from bestarm_agent.selectors.registry import selector_names\n"
        "selector_names()\n"
        "print([name for name in sys.modules if '.rules.' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
