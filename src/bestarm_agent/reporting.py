"""A run's report, gathered: its standing, its failures, what its judge said, how it went."""

from __future__ import annotations

from collections import Counter

from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.certifying.finding import finding_of
from bestarm_agent.checking import JudgeCheck, moved
from bestarm_agent.domain.outcome import Failed, Scored
from bestarm_agent.report.page import (
    FailureLine,
    JudgeSection,
    Sitting,
    VerdictLine,
    render_report,
)
from bestarm_agent.standing import Standing
from bestarm_agent.store.fold import RunState

_SHOWN_VERDICTS = 100


def report_of(
    state: RunState,
    standing: Standing,
    check: JudgeCheck | None = None,
    certifying: CertifyingSelector | None = None,
) -> str:
    """Render a run's report as HTML."""
    return render_report(
        standing,
        config=state.started.config if state.started else None,
        failures=failures_of(state),
        sittings=[
            Sitting(s.at, s.version, s.stopped.reason if s.stopped else None)
            for s in state.sittings
        ],
        judge=None if check is None else JudgeSection(check, moved(standing, check)),
        verdicts=_verdicts(state),
        certified=None if certifying is None else finding_of(certifying, standing),
        remarks=_remarks(state),
    )


def _remarks(state: RunState) -> list[str]:
    """What the replies showed, by sitting; those that go on in one process say more of the same."""
    stops = [sitting.stopped for sitting in state.sittings if sitting.stopped is not None]
    return list(dict.fromkeys(remark for stop in stops for remark in stop.remarks))


def _verdicts(state: RunState) -> list[VerdictLine]:
    """The latest judgements, the last first."""
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
