"""One run as one HTML file: opens offline, runs no script, escapes everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, select_autoescape

from bestarm_agent.certifying.finding import Finding, finding_lines, screened_rows
from bestarm_agent.checking import JudgeCheck, Moved
from bestarm_agent.course import budget_line, ending, unseen_line
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.outcome import Vote
from bestarm_agent.report.pareto import plot_of
from bestarm_agent.standing import Row, Standing
from bestarm_agent.wording import (
    aim_line,
    duration,
    how_sure,
    interval,
    measure,
    money,
    price_text,
    safe,
)

_SHOWN_ROWS = 200


@dataclass(frozen=True, slots=True)
class FailureLine:
    """How often one thing went wrong for one candidate.

    Attributes:
        label: the candidate's label.
        kind: what went wrong.
        blame: whose doing it was.
        count: how often.
        message: the last message.
    """

    label: str
    kind: str
    blame: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class Sitting:
    """One sitting of the run.

    Attributes:
        at: when it began, ISO 8601 in UTC.
        version: version of the package.
        end: why it ended, or None after a crash.
    """

    at: str
    version: str
    end: str | None


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One judgement.

    Attributes:
        label: the candidate's label.
        example: the example's id.
        vote: what the judge said.
    """

    label: str
    example: str
    vote: Vote


@dataclass(frozen=True, slots=True)
class JudgeSection:
    """What gold scores say of the judge, and what its errors may change.

    Attributes:
        check: its measures.
        moved: the candidates' corrected means, best estimate first.
    """

    check: JudgeCheck
    moved: Sequence[Moved]


def render_report(
    standing: Standing,
    *,
    config: Json,
    failures: Sequence[FailureLine],
    sittings: Sequence[Sitting],
    judge: JudgeSection | None = None,
    verdicts: Sequence[VerdictLine] = (),
    certified: Finding | None = None,
    remarks: Sequence[str] = (),
) -> str:
    """Render the report of a run.

    Args:
        standing: the ranking and the spend.
        config: the resolved configuration.
        failures: what went wrong, most frequent first.
        sittings: when the run was worked on.
        judge: how the judge fares on gold scores, if there are any.
        verdicts: the latest judgements of a model, if one judges.
        certified: what a certification has found.
        remarks: what the replies showed that users should know, such as what servers ignored.

    Returns:
        A complete HTML document; no file, font, script or address outside it is used.
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
        sittings=sittings,
        judge=judge,
        plot=None if standing.finding is None else plot_of(standing.rows, standing.finding),
        verdicts=verdicts,
        remarks=remarks,
        certified=None if certified is None else finding_lines(certified),
        screened=[] if certified is None else list(screened_rows(certified)),
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
        money=money,
        duration=duration,
        interval=interval,
        percent=_percent,
        price=price_text,
    )
    environment.globals.update(
        how_sure=how_sure,
        unseen_line=unseen_line,
        budget_line=budget_line,
        bar=_bar,
        aim_line=aim_line,
        measure=measure,
    )
    return environment


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _bar(row: Row) -> dict[str, str]:
    """Where a row's interval and mean lie on a 0..100 axis, as SVG coordinates."""
    mean = row.lower if row.mean is None else row.mean
    return {
        "x": f"{100 * row.lower:.2f}",
        "width": f"{max(0.4, 100 * (row.upper - row.lower)):.2f}",
        "mean": f"{100 * mean:.2f}",
    }
