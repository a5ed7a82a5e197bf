"""One candidate of a race inside Inspect: the early stopping of one task with one model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.inspect_hooks import RACED
from bestarm_agent.interop.inspect_logs import scores_in
from bestarm_agent.interop.inspect_race import PairQueue
from bestarm_agent.interop.inspect_samples import (
    earlier_samples,
    lifetime,
    reduce_epochs,
    spend_of,
    void,
)

if TYPE_CHECKING:
    from anyio import Event
    from inspect_ai.dataset import Sample  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.log import EvalSample, EvalSpec  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.scorer import SampleScore  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.util import EarlyStop  # type: ignore[import-not-found, unused-ignore]

_MANAGER = "bestarm-agent"
_START_SECONDS = 600.0  # a candidate that has not begun by then is left behind


class RaceOfTask(Protocol):
    """The race of a task, as ``inspect.Race`` has it."""

    metric: str | None
    resume: str | None
    failure: ConfigError | None

    def join(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> PairQueue:
        """Check a task that starts, and return the queue of pairs; raises ConfigError."""

    def fail(self, problem: str) -> ConfigError:
        """End the race, and return its error."""

    def verdict(self) -> str:
        """Say in words who leads and how sure that is."""


class RacedTask:
    """One candidate's early stopping, as Inspect's protocol has it; made by ``Race.task``."""

    def __init__(self, race: RaceOfTask, row: int, label: str) -> None:
        self.label, self.is_started = label, False
        self._race, self._row = race, row
        self._queue: PairQueue
        self._places: dict[str, int] = {}  # of samples, in the common order
        self._fails_on_error = True
        self._epochs = 1
        self._waiting: dict[int, list[Event]] = defaultdict(list)  # by place, one for each epoch
        self._outcomes: dict[int, dict[int, Outcome]] = defaultdict(dict)  # of a place, by epoch
        self._ended: dict[tuple[str, int], EvalSample] = {}  # until they are told

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Join the race; raises ConfigError if the task cannot be raced."""
        ids = [str(sample.id) for sample in samples]
        self._queue = self._race.join(self, task, ids, epochs)
        config = task.config
        self._fails_on_error = config.fail_on_error is not False and not (
            config.continue_on_fail or config.score_on_error
        )
        self._places = {name: place for place, name in enumerate(ids)}
        self._epochs, self.is_started = epochs, True
        RACED[task.eval_id] = self
        if self._race.resume is not None:
            await self._tell_earlier(self._race.resume, task)
        return _MANAGER

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Wait until the rule wants the sample, or nothing more."""
        from anyio import Event, get_cancelled_exc_class, move_on_after
        from inspect_ai.util import EarlyStop  # type: ignore[import-not-found, unused-ignore]

        place, go = self._places[str(id)], Event()
        if epoch in self._outcomes[place]:
            return EarlyStop(id=id, epoch=epoch, reason="an earlier log has its score")
        self._arrive(place, go)
        try:
            with move_on_after(_START_SECONDS):
                await go.wait()
            self._queue.start_without_the_missing(void("the task did not begin in time"))
            await go.wait()
        except get_cancelled_exc_class():
            self._queue.leave(self._row, void("the task was cancelled"))
            raise
        if self._queue.may_run(self._row, place):
            return None
        return EarlyStop(id=id, epoch=epoch, reason=f"the race has ended: {self._queue.end}")

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Tell the rule a score."""
        values = scores_in({name: {"value": found.score.value} for name, found in scores.items()})
        sample = self._ended.pop((str(id), epoch), None)
        if scores or sample:
            self._note(str(id), epoch, self._outcome(values, sample))

    async def complete_task(self) -> dict[str, Any]:
        """Leave the race; return what Inspect's log says of it; raises ConfigError if it failed."""
        self._queue.leave(self._row, void("the sample was cancelled before it ran"))
        if self._race.failure is not None:
            raise self._race.failure
        return {"candidate": self.label, "verdict": self._race.verdict()}

    def sample_ended(self, sample: EvalSample) -> None:
        """Keep the cost of a sample until its score comes; one with an error is void."""
        self._ended[str(sample.id), sample.epoch] = sample
        if sample.error is None and sample.scores:
            return
        message = "no score" if sample.error is None else sample.error.message
        self._note(str(sample.id), sample.epoch, void(message, spend_of(sample)))
        if sample.error is not None and self._fails_on_error:
            self._queue.leave(self._row, void("its task failed"))

    def sample_put_back(self, id: str | int) -> None:
        """Note that Inspect tries a sample again, behind those that wait."""
        if self._epochs == 1:  # else its slot is not needed by others
            self._queue.put_back(self._row, self._places[str(id)])

    def _arrive(self, place: int, go: Event) -> None:
        """Note that one of a pair's epochs has a slot; the pair has, once all of them do."""
        if place in self._queue.samples[self._row].running:  # an epoch that is tried again
            go.set()
            return
        self._waiting[place].append(go)
        if len(self._waiting[place]) == self._epochs - len(self._outcomes[place]):
            every = self._waiting.pop(place)
            self._queue.arrive(self._row, place, lambda: _set(every))

    def _note(self, id: str, epoch: int, outcome: Outcome) -> None:
        """Tell a pair's outcome once all its epochs have theirs."""
        place = self._places[id]
        known = self._outcomes[place]
        known.setdefault(epoch, outcome)
        if len(known) == self._epochs and not self._queue.is_told(self._row, place):
            self._queue.tell(self._row, place, reduce_epochs([*known.values()]))

    async def _tell_earlier(self, folder: str, spec: EvalSpec) -> None:
        """Hand over what earlier logs hold; epochs that they lack run."""
        times: dict[int, list[datetime]] = defaultdict(list)
        try:
            async for sample in earlier_samples(folder, spec):
                if sample.epoch <= self._epochs:
                    scores = {name: one.model_dump() for name, one in (sample.scores or {}).items()}
                    place = self._places[str(sample.id)]
                    self._outcomes[place][sample.epoch] = self._outcome(scores_in(scores), sample)
                    times[place] += lifetime(sample)
        except ConfigError as error:
            raise self._race.fail(f"{self.label!r} cannot go on: {error}") from None
        for place, known in self._outcomes.items():
            if len(known) == self._epochs:
                outcome, when = reduce_epochs([*known.values()]), times[place]
                self._queue.remember(self._row, place, outcome, min(when), max(when))

    def _outcome(self, values: Mapping[str, float], sample: EvalSample | None) -> Outcome:
        spend = spend_of(sample)
        metric = self._race.metric
        if metric is None and len(values) > 1:
            self._race.fail(f"{self.label!r} has the metrics {', '.join(values)}; name one: metric")
        if not values or self._race.failure is not None:
            return void("no score", spend)
        score = next(iter(values.values())) if metric is None else values.get(metric)
        if score is None or not 0 <= score <= 1:
            known = ", ".join(f"{name} = {value:g}" for name, value in values.items())
            self._race.fail(f"{self.label!r} has {known}; name a metric with scores in [0, 1]")
            return void("no such score", spend)
        seconds = (sample.working_time or sample.total_time or 0.0) if sample else 0.0
        return Scored(score, None, Usage(), spend, seconds, "")


def _set(events: Iterable[Event]) -> None:
    for event in events:
        event.set()
