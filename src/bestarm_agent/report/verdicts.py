"""The latest judgements of a model that judges."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from bestarm_agent.domain.outcome import Scored, Vote
from bestarm_agent.store.run_state import RunState

_SHOWN_VERDICTS = 100
_LOOKED_AT = 1000  # outcomes: a judge that asks a model says something of each that it scores


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One judgement."""

    label: str  # the candidate's label
    example: str  # the example's id
    vote: Vote  # what the judge said
    seq: int  # number of the ask


def latest_verdicts(state: RunState) -> list[VerdictLine]:
    """Return the latest judgements, the newest first; none where a rule scores."""
    lines: list[VerdictLine] = []
    for seq in islice(reversed(state.told), _LOOKED_AT):
        ask, outcome = state.asks[seq], state.told[seq].outcome
        if isinstance(outcome, Scored):
            label, example = state.candidates[ask.candidate].label, state.example_ids[ask.example]
            lines += [VerdictLine(label, example, vote, seq) for vote in outcome.votes]
        if len(lines) >= _SHOWN_VERDICTS:
            break
    return lines[:_SHOWN_VERDICTS]
