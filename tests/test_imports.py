"""Imports stay light: what a user of the selectors alone loads, counted in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import bestarm_agent

HEAVY = {
    "anthropic",
    "jinja2",
    "openai",
    "pandas",
    "pydantic",
    "regex",
    "scipy.stats",
    "sqlalchemy",
    "tenacity",
    "torch",
    "click",
    "yaml",
}


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after ``code``."""
    code = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(json.loads(done.stdout))


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "bestarm_agent"}


def test_the_package_alone_loads_nothing() -> None:
    modules = loaded_by("import bestarm_agent")
    assert own(modules) == {"bestarm_agent", "bestarm_agent._version"}
    assert not modules & {*HEAVY, "numpy", "scipy"}


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import bestarm_agent.selectors", 25),
        (
            "from bestarm_agent.selectors import Problem, make_selector\n"
            "make_selector('auto', Problem(3, 10)).ask(4)",
            40,
        ),
    ],
)
def test_selectors_load_nothing_above_their_floor(code: str, most: int) -> None:
    modules = loaded_by(code)
    rooms = {name.split(".")[1] for name in own(modules) if "." in name}
    assert rooms == {"_version", "errors", "plugins", "selectors", "stats"}
    assert len(own(modules)) <= most
    assert not modules & HEAVY


def test_reading_runs_loads_none_of_the_large_libraries() -> None:
    large = {"anthropic", "openai", "pandas", "scipy", "torch"}
    modules = loaded_by("from bestarm_agent import study")
    assert not modules & large
    rooms = {name.split(".")[1] for name in own(modules) if "." in name}
    assert not rooms & {"certification", "gate", "preselection", "report", "interop", "cli"}


def test_every_public_name_is_there_and_listed() -> None:
    for name in bestarm_agent.__all__:
        assert getattr(bestarm_agent, name) is not None
        assert name in dir(bestarm_agent)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'bestarm_agent' has no attribute 'Stduy'"):
        bestarm_agent.Stduy  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "from bestarm_agent.simulation import curves, replay, score_matrices",
        "import bestarm_agent.certification",
    ],
)
def test_simulation_and_certification_load_nothing_heavy(code: str) -> None:
    heavy = {*HEAVY, "matplotlib", "pyarrow", "scipy.optimize", "sklearn"}
    assert not loaded_by(code) & heavy
