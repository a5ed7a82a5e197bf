"""Collects what a run's report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.outcome import Failed
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.judge_agreement import JudgeCheck, corrected_rows
from bestarm_agent.engine.results.pair_outcomes import RunTexts
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.history import History
from bestarm_agent.report.html_page import (
    FailureLine,
    JudgeSection,
    Session,
    render_report,
)
from bestarm_agent.report.matrix import matrix_of
from bestarm_agent.report.page_data import Details
from bestarm_agent.report.pair_sample import sample_pairs
from bestarm_agent.report.rates import outcomes_over_time
from bestarm_agent.store.run_state import RunState


async def report_of(
    texts: RunTexts,
    events: Sequence[Event],
    history: History,
    standing: Standing,
    check: JudgeCheck | None = None,
    certified: ModeResult | None = None,
) -> str:
    """Render a run's report as HTML."""
    state = texts.state
    matrix = matrix_of(state, [row.index for row in standing.rows])
    sample = await sample_pairs(texts, standing, matrix)
    return render_report(
        standing,
        config=state.started.config if state.started else None,
        failures=failures_of(state),
        sessions=[
            Session(s.at, s.version, s.stopped.reason if s.stopped else None)
            for s in state.sessions
        ],
        judge=None if check is None else JudgeSection(check, corrected_rows(standing, check)),
        certified=certified,
        remarks=_remarks(state),
        details=Details(state, history, matrix, sample, outcomes_over_time(events)),
    )


def _remarks(state: RunState) -> list[str]:
    stops = [session.stopped for session in state.sessions if session.stopped is not None]
    return list(dict.fromkeys(remark for stop in stops for remark in stop.remarks))


def failures_of(state: RunState) -> list[FailureLine]:
    """Count failures by candidate and kind, most frequent first."""
    count: Counter[tuple[int, str, str]] = Counter()
    last: dict[tuple[int, str, str], str] = {}
    for seq, told in state.told.items():
        outcome = told.outcome
        if isinstance(outcome, Failed):
            key = (state.asks[seq].candidate, outcome.kind.value, outcome.blame.value)
            count[key] += 1
            last[key] = outcome.message
    return [
        FailureLine(state.candidates[key[0]].label, key[1], key[2], n, last[key])
        for key, n in count.most_common()
    ]
