"""The plug-in in pytest runs of their own, over recorded scores."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.studies import write_study

pytest_plugins = ["pytester"]
PLUGIN = "bestarm_agent.gate.pytest_plugin"


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a study of six candidates; c5 is right in 72 %, c0 in 30 %."""
    write_study(pytester.path / "suite", n_examples=200)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def run(tests: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    (tests.path / "suite" / "test_prompts.py").write_text(f"import pytest\n{code}")
    return tests.runpytest_subprocess("-p", PLUGIN, "--strict-markers", *arguments)


@pytest.mark.slow
def test_gates_pass_and_fail_and_are_reported_at_the_end(tests: pytest.Pytester) -> None:
    done = run(
        tests,
        """
@pytest.mark.gate(margin=0.1, challengers=["c5"])
class TestPrompts:
    def test_better(self, gate):
        found = gate("study.json", baseline="c0")
        assert found.compared[0].label == "c5"

    def test_worse(self, gate):
        gate("study.json", baseline="c5", challengers=["c0", "c4"])

    @pytest.mark.gate(budget={"pulls": 20})
    def test_short_of_money(self, gate):
        gate("study.json", baseline="c4")
""",
        "--junitxml=junit.xml",
    )
    done.assert_outcomes(passed=1, failed=2)
    report = done.stdout.str().split("= gates =")[1]
    assert "suite/test_prompts.py::TestPrompts::test_better" in report
    assert "PASS:      c5 is not worse by more than 0.1" in report
    assert "FAIL:      c0 is worse by more than 0.1" in report
    assert "OPEN:      c5 is undecided" in report
    assert "at most 20" in report
    assert "c5 is not worse by more than 0.1" in (tests.path / "junit.xml").read_text()


@pytest.mark.slow
def test_wrong_settings(tests: pytest.Pytester) -> None:
    done = run(
        tests,
        """
@pytest.mark.gate(margn=0.1)
def test_mistyped(gate):
    gate("study.json", baseline="c0")

def test_no_baseline(gate):
    gate("study.json")
""",
    )
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(["*there is no setting 'margn'*"])
    done.stdout.fnmatch_lines(["*no baseline is named*"])
    assert "= gates =" not in done.stdout.str()


@pytest.mark.slow
def test_no_gate_costs_nothing(tests: pytest.Pytester) -> None:
    done = run(
        tests,
        """
import sys

def test_nothing_is_loaded():
    own = {name for name in sys.modules if name.startswith("bestarm_agent")}
    assert own == {"bestarm_agent", "bestarm_agent._version", "bestarm_agent.gate",
                   "bestarm_agent.gate.pytest_plugin"}
    assert "numpy" not in sys.modules
""",
    )
    done.assert_outcomes(passed=1)


def test_the_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert list(project["entry-points"]["pytest11"].values()) == [PLUGIN]
    assert import_module(PLUGIN).pytest_configure
