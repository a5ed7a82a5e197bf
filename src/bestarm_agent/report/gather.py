"""Collects what a run's report shows: standing, failures, judgements, sessions."""

from __future__ import annotations

from collections import Counter

from bestarm_agent.domain.outcome import Failed, Scored
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.judge_agreement import JudgeCheck, corrected_rows
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.html_page import (
    FailureLine,
    JudgeSection,
    Session,
    VerdictLine,
    render_report,
)
from bestarm_agent.store.run_state import RunState

_SHOWN_VERDICTS = 100


def report_of(
    state: RunState,
    standing: Standing,
    check: JudgeCheck | None = None,
    certified: ModeResult | None = None,
) -> str:
    """Render a run's report as HTML."""
    return render_report(
        standing,
        config=state.started.config if state.started else None,
        failures=failures_of(state),
        sessions=[
            Session(s.at, s.version, s.stopped.reason if s.stopped else None)
            for s in state.sessions
        ],
        judge=None if check is None else JudgeSection(check, corrected_rows(standing, check)),
        verdicts=_verdicts(state),
        certified=certified,
        remarks=_remarks(state),
    )


def _remarks(state: RunState) -> list[str]:
    stops = [session.stopped for session in state.sessions if session.stopped is not None]
    return list(dict.fromkeys(remark for stop in stops for remark in stop.remarks))


def _verdicts(state: RunState) -> list[VerdictLine]:
    lines: list[VerdictLine] = []
    for seq, told in reversed(state.told.items()):
        ask, outcome = state.asks[seq], told.outcome
        if isinstance(outcome, Scored):
            label, example = state.candidates[ask.candidate].label, state.example_ids[ask.example]
            lines += [VerdictLine(label, example, vote) for vote in outcome.votes]
        if len(lines) >= _SHOWN_VERDICTS:
            break
    return lines[:_SHOWN_VERDICTS]


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
