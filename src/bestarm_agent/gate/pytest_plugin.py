"""A pytest plug-in: the fixture ``gate`` runs gates in tests, and one report lists them all.

.. code-block:: python

    @pytest.mark.gate(margin=0.05, budget={"usd": 1})
    def test_the_shorter_prompt(gate):
        gate("study.yaml", baseline="current")

Loaded by pytest in every run, so nothing else is imported before a gate is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bestarm_agent.domain.digest import Json
    from bestarm_agent.gate.summary import GateSummary

_PROPERTY = "gate"
_KEYS = {
    **{name: f"gate.{name}" for name in ("margin", "confidence", "improve", "challengers")},
    **{"baseline": "gate.baseline", "slice_margin": "gate.slice_margin", "by": "slices.by"},
    "budget": "budget",
}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "gate(margin, confidence, improve, challengers, baseline, by, slice_margin, budget): "
        "settings of the fixture `gate`; `budget` is a mapping as in a study, such as {'usd': 1}",
    )


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Callable[..., GateSummary]:
    """Return a function that runs a gate, and fails the test unless every challenger passes.

    Its arguments are the study, a file seen from the test's folder, and settings, which come before
    those of the marker ``gate``. It returns the verdicts.
    """
    given = {
        key: value
        for marker in reversed(list(request.node.iter_markers("gate")))
        for key, value in marker.kwargs.items()
    }

    def run(study: str | Path, **settings: Json) -> GateSummary:
        __tracebackhide__ = True
        changes = _overrides({**given, **settings})
        found = asyncio.run(_answer(request.path.parent / study, changes))
        request.node.user_properties.append((_PROPERTY, "\n".join(found.lines())))
        if found.verdict != "passed":
            pytest.fail("\n".join(found.lines()), pytrace=False)
        return found

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the verdicts of all gates, also of those that ran in other processes."""
    lines = list(_lines(terminalreporter))
    if lines:
        terminalreporter.section("gates")
        for line in lines:
            terminalreporter.line(line)


def _lines(reporter: pytest.TerminalReporter) -> Iterator[str]:
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                for name, text in report.user_properties:
                    if name == _PROPERTY:
                        yield report.nodeid
                        yield from (f"  {line}" for line in str(text).splitlines())


def _overrides(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return settings as overrides of a study, by dotted key."""
    if unknown := sorted(settings.keys() - _KEYS.keys()):
        raise pytest.UsageError(
            f"gate: there is no setting {unknown[0]!r}; there are {', '.join(_KEYS)}"
        )
    return {_KEYS[name]: value for name, value in settings.items()}


async def _answer(path: Path, changes: Mapping[str, Json]) -> GateSummary:
    from bestarm_agent.gate.summary import GateSummary
    from bestarm_agent.study import Study

    async with Study.gate(path, overrides=changes) as study:
        await study.run()
        found = study.result()
    if not isinstance(found, GateSummary):
        raise TypeError(f"a gate must end with its verdicts, got {found!r}")
    return found
