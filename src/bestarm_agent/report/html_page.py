"""One run as one HTML file: opens offline, runs no script, escapes everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, select_autoescape

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.outcome import Vote
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.judge_agreement import CorrectedRow, JudgeCheck
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.report.caveats import caveat, caveat_lines, passed_caps
from bestarm_agent.report.pareto_chart import plot_of
from bestarm_agent.report.progress_text import budget_line, ending
from bestarm_agent.report.text import (
    cost_text,
    duration,
    estimate,
    how_sure,
    interval,
    measure,
    objective_text,
    price_text,
    safe,
    seen,
    seen_title,
    state,
)

_SHOWN_ROWS = 200


@dataclass(frozen=True, slots=True)
class FailureLine:
    """The count of one kind of failure of one candidate."""

    label: str  # the candidate's label
    kind: str  # what went wrong
    blame: str  # whose doing it was
    count: int  # how often
    message: str  # the last message


@dataclass(frozen=True, slots=True)
class Session:
    """One session of the run."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # version of the package
    end: str | None  # why it ended, or None after a crash


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One judgement."""

    label: str  # the candidate's label
    example: str  # the example's id
    vote: Vote  # what the judge said


@dataclass(frozen=True, slots=True)
class JudgeSection:
    """The accuracy of the judge, and the means corrected for its errors."""

    check: JudgeCheck  # its measures
    moved: Sequence[CorrectedRow]  # the candidates' corrected means, best estimate first


def render_report(
    standing: Standing,
    *,
    config: Json,
    failures: Sequence[FailureLine],
    sessions: Sequence[Session],
    judge: JudgeSection | None = None,
    verdicts: Sequence[VerdictLine] = (),
    certified: ModeResult | None = None,
    remarks: Sequence[str] = (),
) -> str:
    """Render the report of a run: an HTML document that uses nothing outside it.

    Args:
        standing: the ranking and the spend.
        config: the resolved configuration.
        failures: what went wrong, most frequent first.
        sessions: when the run was worked on.
        judge: how the judge fares on gold scores, if there are any.
        verdicts: the latest judgements of a model, if one judges.
        certified: what a certification has found.
        remarks: what the replies showed that users should know, such as what servers ignored.
    """
    template = _environment().from_string(
        files("bestarm_agent.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        s=standing,
        rows=standing.rows[:_SHOWN_ROWS],
        hidden=max(0, len(standing.rows) - _SHOWN_ROWS),
        config=json.dumps(config, indent=2, ensure_ascii=False),
        failures=failures,
        sessions=sessions,
        judge=judge,
        plot=None if standing.objective is None else plot_of(standing.rows, standing.objective),
        verdicts=verdicts,
        remarks=remarks,
        certified=None if certified is None else certified.lines(),
        screened=[] if certified is None else certified.rows(),
    )


def _environment() -> Environment:
    environment = Environment(
        autoescape=select_autoescape(default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ending=ending,
        safe_text=safe,
        cost=cost_text,
        duration=duration,
        estimate=estimate,
        interval=interval,
        percent=_percent,
        price=price_text,
    )
    environment.globals.update(
        how_sure=how_sure,
        caveat=caveat,
        caveat_lines=caveat_lines,
        passed_caps=passed_caps,
        budget_line=budget_line,
        bar=_bar,
        objective_text=objective_text,
        measure=measure,
        seen=seen,
        seen_title=seen_title,
        state=state,
    )
    return environment


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _bar(row: Row) -> dict[str, str]:
    """Place a row's interval and estimate on a 0..100 axis, as SVG coordinates."""
    mean = row.lower if row.estimate is None else row.estimate
    return {
        "x": f"{100 * row.lower:.2f}",
        "width": f"{max(0.4, 100 * (row.upper - row.lower)):.2f}",
        "mean": f"{100 * mean:.2f}",
    }
