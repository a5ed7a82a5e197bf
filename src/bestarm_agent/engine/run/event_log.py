"""Records what happens in a run, and rebuilds its selector from the log."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm_agent.domain.events import (
    Attempted,
    CandidatesAdded,
    Event,
    ExamplesAdded,
)
from bestarm_agent.domain.example import Example, Slice
from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.errors import Blame
from bestarm_agent.selectors.types import State
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import RunLog

_MOST_SPREAD = 1e4  # of costs, as selectors see them


class EventLog:
    """Appends events to a run's log and keeps the state that they amount to."""

    def __init__(
        self,
        log: RunLog,
        state: RunState,
        objective: ObjectiveTracker | None = None,
        trajectory: Trajectory | None = None,
    ) -> None:
        self._log = log
        self.state = state  # read only for others
        self.trajectory = trajectory or Trajectory()
        self._objective = objective

    def record(self, event: Event) -> None:
        """Append an event; it is durable after the next ``flush``."""
        self.state.apply(event)
        if self._objective is not None:
            self._objective.take(event)
        self._log.append(event)

    async def flush(self) -> None:
        """Wait until everything recorded is durable; raise StoreError if it cannot be written."""
        await self._log.flush()


class PairLog:
    """Logs the attempts at the calls of one pair; ``lost`` is as in ``AttemptLog``."""

    def __init__(self, event_log: EventLog, seq: int, lost: dict[str, Spend] | None = None) -> None:
        self.lost = lost or {}
        self._event_log = event_log
        self._seq = seq

    async def attempt(self, key: str, cost: Spend, *, judge: bool) -> None:
        """Log an attempt that costs at most ``cost``; durable on return."""
        self._event_log.record(Attempted(self._seq, key, cost, judge))
        await self._event_log.flush()


def examples_added(examples: Sequence[Example], slices: Sequence[Slice] = ()) -> ExamplesAdded:
    """Record examples by id and content."""
    return ExamplesAdded(
        ids=tuple(example.id for example in examples),
        digests=tuple(example.digest for example in examples),
        slices=tuple(slices),
    )


def judged(outcome: Outcome, failed_score: float) -> tuple[State, float | None]:
    """Return state and score for the selector: only its own failure counts against a candidate."""
    if isinstance(outcome, Scored):
        return State.DONE, outcome.value
    if outcome.blame is Blame.CANDIDATE:
        return State.FAILED, failed_score
    return State.VOID, None


def candidates_added(candidates: Sequence[ReadyCandidate]) -> CandidatesAdded:
    """Record candidates with the most that a call to each can cost, and the price's source."""
    return CandidatesAdded(
        candidates=tuple(one.candidate for one in candidates),
        costs=tuple(one.usd for one in candidates),
        prices=tuple(one.price_source for one in candidates),
    )
