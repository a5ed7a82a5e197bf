"""The failures of a run by candidate and kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bestarm_agent.domain.outcome import Failed
from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class FailureLine:
    """The count of one kind of failure of one candidate."""

    label: str  # the candidate's label
    kind: str  # what went wrong
    blame: str  # whose doing it was
    count: int  # how often
    message: str  # the last message


def failures_of(state: RunState) -> list[FailureLine]:
    """Count failures by candidate and kind, most frequent first."""
    count: Counter[tuple[int, str, str]] = Counter()
    last: dict[tuple[int, str, str], str] = {}
    for seq in state.told.failed():
        outcome = state.told[seq].outcome
        if isinstance(outcome, Failed):
            key = (state.asks.pair(seq)[0], outcome.kind.value, outcome.blame.value)
            count[key] += 1
            last[key] = outcome.message
    return [
        FailureLine(state.candidates[key[0]].label, key[1], key[2], n, last[key])
        for key, n in count.most_common()
    ]
