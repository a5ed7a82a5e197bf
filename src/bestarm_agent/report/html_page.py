"""One run as one HTML file: opens offline, loads nothing, evaluates no text, escapes everything."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape

from bestarm_agent.domain.candidate import PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.spend import NANOS_PER_USD
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.effects import AxisEffects, axis_effects
from bestarm_agent.engine.results.judge_check import CorrectedRow, JudgeCheck
from bestarm_agent.engine.results.standing import FailureLine, Row, Standing, latency_by_model
from bestarm_agent.report.caveats import caveat, caveat_lines, passed_caps
from bestarm_agent.report.differences import departure, differences
from bestarm_agent.report.limits import limit_text
from bestarm_agent.report.outlook import headline, is_clear, outlook
from bestarm_agent.report.page_data import Details, page_data
from bestarm_agent.report.progress_text import budget_line, ending
from bestarm_agent.report.quantities import price_per_1k
from bestarm_agent.report.slices import slice_rows, slice_text
from bestarm_agent.report.text import (
    cost_text,
    duration,
    estimate,
    how_sure,
    interval,
    measure,
    measured_text,
    money,
    objective_text,
    price_text,
    safe,
    seconds_text,
    seen,
    seen_title,
    share,
    state,
)
from bestarm_agent.report.verdicts import latest_verdicts
from bestarm_agent.report.winners_number import number_lines

_SHOWN_ROWS = 500
_SHOWN_LEVELS = 12


@dataclass(frozen=True, slots=True)
class Session:
    """One session of the run."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # version of the package
    end: str | None  # why it ended, or None after a crash


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
    result: ModeResult | None = None,
    remarks: Sequence[str] = (),
    details: Details | None = None,
) -> str:
    """Render the report of a run: an HTML document that uses nothing outside it.

    Args:
        standing: the ranking and the spend.
        config: the resolved configuration.
        failures: what went wrong, most frequent first.
        sessions: when the run was worked on.
        judge: how the judge fares on gold scores, if there are any.
        result: the answer of a mode that has one of its own.
        remarks: what the replies showed that users should know, such as what servers ignored.
        details: the trajectory of the run and its pairs; None leaves charts and answers out.
    """
    style = _asset("uplot/uPlot.min.css") + _asset("report.css")
    charts = f"/*\n{_asset('uplot/LICENSE')}*/\n{_asset('uplot/uPlot.iife.min.js')}"
    script = _asset("report.js")
    return _page().render(
        s=standing,
        style=Markup(style),
        scripts=[] if details is None else [Markup(charts), Markup(script)],
        policy=_policy(style, [] if details is None else [charts, script]),
        data=None if details is None else Markup(page_data(standing, details)),
        rows=standing.rows[:_SHOWN_ROWS],
        measured=standing.rows[0].measures if standing.rows else (),
        hidden=max(0, len(standing.rows) - _SHOWN_ROWS),
        effects=axis_effects(standing) if result is None else [],
        config=json.dumps(config, indent=2, ensure_ascii=False),
        seed=_seed(config),
        failures=failures,
        sessions=sessions,
        judge=judge,
        verdicts=[] if details is None else latest_verdicts(details.state),
        remarks=remarks,
        mode=result,
        details=details,
        differing=[] if details is None else list(differences(details)),
        latencies=[] if details is None else latency_by_model(details.state),
        prompts=_prompts(standing),
        departures=_departures(standing, details),
    )


def _label(text: str) -> Markup:
    """Write a label that may break after its slashes."""
    return escape(safe(text)).replace("/", Markup("/<wbr>"))


@cache
def _asset(name: str) -> str:
    return files("bestarm_agent.report").joinpath("page", name).read_text(encoding="utf-8")


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Allow what is written here to run, by its digest, and nothing else."""
    allowed = " ".join(_digest(script) for script in scripts) or "'none'"
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {allowed}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _seed(config: Json) -> Json:
    selector = config.get("selector") if isinstance(config, dict) else None
    return selector.get("seed") if isinstance(selector, dict) else None


def _prompts(standing: Standing) -> list[PromptTemplate]:
    """Return the prompts in the order of their best candidates."""
    return list(dict.fromkeys(row.candidate.prompt for row in standing.rows))


def _departures(standing: Standing, details: Details | None) -> dict[int, tuple[int | None, str]]:
    if details is None:
        return {}
    labels = {row.index: row.candidate.label for row in standing.rows}
    return {row.index: departure(row, details, labels) for row in standing.rows}


@cache
def _page() -> Template:
    """Compile the page's template, once per process."""
    environment = Environment(
        autoescape=select_autoescape(default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ending=ending,
        safe_text=safe,
        label=_label,
        cost=cost_text,
        duration=duration,
        estimate=estimate,
        interval=interval,
        measured=measured_text,
        percent=_percent,
        points=_points,
        price=price_text,
        seconds=seconds_text,
        sentence=_sentence,
    )
    environment.globals.update(
        how_sure=how_sure,
        headline=headline,
        outlook=outlook,
        caveat=caveat,
        caveat_lines=caveat_lines,
        number_lines=number_lines,
        passed_caps=passed_caps,
        budget_line=budget_line,
        bar=_bar,
        effect_bar=_effect_bar,
        effect_title=_effect_title,
        full_grid=_full_grid,
        limit_text=limit_text,
        slice_rows=slice_rows,
        slice_text=slice_text,
        objective_text=objective_text,
        measure=measure,
        per_1k=_per_1k,
        seen=seen,
        seen_title=seen_title,
        state=state,
        shown_levels=_SHOWN_LEVELS,
    )
    return environment.from_string(_asset("page.html.j2"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _percent(value: float) -> str:
    return f"{value:.0%}" if value in (0, 1) or value >= 0.1 else f"{value:.1%}"


def _points(value: float, width: float = 1.0) -> str:
    """Write a difference of shares with its sign."""
    return f"{'+' if value >= 0 else '−'}{share(abs(value), width)}"


def _bar(row: Row) -> dict[str, str]:
    """Place a row's interval and estimate on a 0..100 axis, as SVG coordinates."""
    mean = row.lower if row.estimate is None else row.estimate
    return {
        "x": f"{100 * row.lower:.2f}",
        "width": f"{max(0.4, 100 * (row.upper - row.lower)):.2f}",
        "mean": f"{100 * mean:.2f}",
    }


def _effect_bar(value: float, effects: Sequence[AxisEffects]) -> str:
    """Place an effect on a 0..100 axis that all axes share; 50 stands for no effect."""
    most = max(max(-one.effect.lower, one.effect.upper) for axis in effects for one in axis.levels)
    return f"{50 + 49 * value / max(most, 1e-9):.2f}"


def _effect_title(axis: AxisEffects) -> str:
    """Say what an axis is seen to do, as a heading."""
    name = axis.axis.replace("_", " ").capitalize()
    if not is_clear(axis):
        return f"{name}: no clear difference"
    return f"{name}: {share(axis.spread)} between best and worst"


def _per_1k(row: Row) -> str:
    price = price_per_1k(row)
    return "unknown" if price is None else money(round(price * NANOS_PER_USD))


def _full_grid(standing: Standing) -> str:
    """Say what all pairs would have cost, judging included, by what pairs have cost so far."""
    called = [row.spend for row in standing.rows if row.spend.pulls]
    if not called or not standing.priced:
        return "unknown"
    # candidates that were never called count with the mean of the others
    mean = sum(spend.usd_nanos / spend.pulls for spend in called) / len(called)
    return money(round(mean * len(standing.rows) * standing.n_examples))
