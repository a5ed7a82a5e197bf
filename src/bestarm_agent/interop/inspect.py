"""Finds the best of several Inspect tasks or models, by early stopping of an unmodified Inspect.

Inspect's protocol for early stopping cannot reorder samples: a sample that has its slot can run,
wait or be skipped. So the order is Inspect's own, shuffled once and the same for all candidates,
and the selection rule decides how far along it each candidate gets (``inspect_race``). Inspect
begins a second epoch after all samples of the first; only where every sample and epoch has a slot
can a pair's epochs run together.

A ``Race`` has a ``RacedTask`` for each candidate, which is the early stopping of one task with one
model. Hooks pass on errors and retries, which that protocol leaves out.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.domain.values import Candidate, Failure, Outcome, PromptTemplate, Score
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.interop.formats import scores_in, usage_in
from bestarm_agent.interop.inspect_race import Lanes
from bestarm_agent.report.words import first_line, shortened
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.store.run_state import RunState

if TYPE_CHECKING:
    from anyio import Event
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalLog, EvalSample, EvalSpec
    from inspect_ai.model import Model
    from inspect_ai.scorer import SampleScore
    from inspect_ai.util import EarlyStop


TASKS_OF_RUN: dict[str, int] = {}  # number of tasks, by Inspect's id of the run
RACED: WeakValueDictionary[str, RacedTask] = WeakValueDictionary()  # by Inspect's id of the eval
_START_SECONDS = 600.0  # a candidate that has not begun by then is left behind
_SAMPLES_AT_ONCE = 10  # of a task with epochs, whose slots say nothing


@cache
def install_hooks() -> None:
    """Pass on what Inspect tells, from now on; raises ConfigError without inspect-ai."""
    try:
        from inspect_ai import hooks
    except ImportError:
        raise ConfigError("a race needs inspect-ai: pip install 'bestarm-agent[inspect]'") from None

    @hooks.hooks(name="bestarm_agent/race", description="ends samples of a race")
    class RaceHooks(hooks.Hooks):  # type: ignore[misc] # of the extra, which may be missing
        """Passes what Inspect tells to the tasks of races."""

        async def on_run_start(self, data: hooks.RunStart) -> None:
            TASKS_OF_RUN[data.run_id] = len(data.task_names)

        async def on_run_end(self, data: hooks.RunEnd) -> None:
            TASKS_OF_RUN.pop(data.run_id, None)

        async def on_sample_end(self, data: hooks.SampleEnd) -> None:
            if (task := RACED.get(data.eval_id)) is not None:
                task.sample_ended(data.sample)

        async def on_sample_attempt_end(self, data: hooks.SampleAttemptEnd) -> None:
            if data.will_retry and (task := RACED.get(data.eval_id)) is not None:
                task.sample_put_back(data.summary.id)


def void(message: str, spend: Spend = Spend(pulls=1)) -> Outcome:  # noqa: B008 - frozen
    """Return the outcome of a sample that says nothing about its candidate."""
    return Outcome(failure=Failure(FailureKind.INTERNAL, Blame.HARNESS, message), spend=spend)


def spend_of(sample: EvalSample) -> Spend:
    """Return a sample's tokens, and its dollars where Inspect knows the prices of all models."""
    used = usage_in([usage.model_dump() for usage in sample.model_usage.values()])
    tokens = used["input_tokens"] + used["output_tokens"]
    return Spend(pulls=1, tokens=tokens, usd_nanos=nanos(used["usd"] or 0))


def reduce_epochs(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a pair: the mean of its epochs, or void if one of them is."""
    spend = replace(sum((one.spend for one in outcomes), Spend()), pulls=1)
    for one in outcomes:
        if one.score is None:
            return replace(one, spend=spend)
    mean = fmean(one.score.value for one in outcomes if one.score is not None)
    return replace(outcomes[0], score=Score(mean), spend=spend)


async def earlier_samples(folder: str, spec: EvalSpec) -> AsyncIterator[EvalSample]:
    """Yield the scored samples that logs of the same task and model hold, the oldest log first.

    Raises ConfigError if a log has other samples, or the same in another order.
    """
    from inspect_ai.log import list_eval_logs_async, read_eval_log_async

    ids = [str(name) for name in spec.dataset.sample_ids or ()]

    def is_earlier(log: EvalLog) -> bool:
        return log.eval.eval_id != spec.eval_id and likeness(log.eval) == likeness(spec)

    for info in await list_eval_logs_async(folder, filter=is_earlier, descending=False):
        log = await read_eval_log_async(info)
        if [str(name) for name in log.eval.dataset.sample_ids or ()] != ids:
            raise ConfigError(
                f"{info.name} has other samples, or another order of them; give the same samples "
                "and the same seed, or another folder"
            )
        for sample in log.samples or ():
            if sample.error is None and sample.scores:
                yield sample


def lifetime(sample: EvalSample) -> tuple[datetime, datetime]:
    """Return when a sample began and ended; raises ConfigError if its log does not say."""
    if sample.started_at is None or sample.completed_at is None:
        raise ConfigError(
            "its log does not say when samples began and ended; write it again with a current "
            "version of inspect-ai"
        )
    return datetime.fromisoformat(sample.started_at), datetime.fromisoformat(sample.completed_at)


def likeness(spec: EvalSpec) -> tuple[object, ...]:
    """Return what the logs of one candidate have in common."""
    return (spec.task, spec.model, spec.task_args, spec.solver, spec.solver_args)


class RacedTask:
    """One candidate's early stopping, as Inspect's protocol has it; made by ``Race.task``."""

    def __init__(self, race: Race, row: int, label: str) -> None:
        self.label, self.is_started = label, False
        self._race, self._row = race, row
        self._lanes: Lanes
        self._places: dict[str, int] = {}  # of samples, in the common order
        self._fails_on_error = True
        self._epochs = 1
        self._waiting: dict[int, list[Event]] = defaultdict(list)  # by place, one for each epoch
        self._outcomes: dict[int, dict[int, Outcome]] = defaultdict(dict)  # of a place, by epoch

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Join the race; raises ConfigError if the task cannot be raced."""
        ids = [str(sample.id) for sample in samples]
        self._lanes = self._race.join(self, task, ids, epochs)
        config = task.config
        self._fails_on_error = config.fail_on_error is not False and not (
            config.continue_on_fail or config.score_on_error
        )
        self._places = {name: place for place, name in enumerate(ids)}
        self._epochs, self.is_started = epochs, True
        RACED[task.eval_id] = self
        if self._race.resume is not None:
            await self._remember(self._race.resume, task)
        return "bestarm-agent"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Wait until the rule wants the sample, or nothing more."""
        from anyio import Event, get_cancelled_exc_class, move_on_after
        from inspect_ai.util import EarlyStop

        place, go = self._places[str(id)], Event()
        if epoch in self._outcomes[place]:
            return EarlyStop(id=id, epoch=epoch, reason="an earlier log has its score")
        self._arrive(place, go)
        try:
            with move_on_after(_START_SECONDS):
                await go.wait()
            self._lanes.start_without_the_missing(void("the task did not begin in time"))
            await go.wait()
        except get_cancelled_exc_class():
            self._lanes.leave(self._row, void("the task was cancelled"))
            raise
        if self._lanes.is_running(self._row, place):
            return None
        return EarlyStop(id=id, epoch=epoch, reason=f"the race has ended: {self._lanes.end}")

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Note the score of a sample that did not run, since Inspect reused that of an old log."""
        values = scores_in({name: {"value": found.score.value} for name, found in scores.items()})
        if scores and epoch not in self._outcomes[self._places[str(id)]]:
            self._note(str(id), epoch, self._outcome(values, Spend(pulls=1)))

    async def complete_task(self) -> dict[str, Any]:
        """Leave the race; return what Inspect's log says of it; raises ConfigError if it failed."""
        self._lanes.leave(self._row, void("the sample was cancelled before it ran"))
        if self._race.failure is not None:
            raise self._race.failure
        return {"candidate": self.label, "verdict": self._race.verdict()}

    def sample_ended(self, sample: EvalSample) -> None:
        """Note the score of a sample; one with an error is void."""
        self._note(str(sample.id), sample.epoch, self._outcome_of(sample))
        if sample.error is not None and self._fails_on_error:
            self._lanes.leave(self._row, void("its task failed"))

    def sample_put_back(self, id: str | int) -> None:
        """Note that Inspect tries a sample again, behind those that wait."""
        if self._epochs == 1:  # else its slot is not needed by others
            self._lanes.put_back(self._row, self._places[str(id)])

    def _arrive(self, place: int, go: Event) -> None:
        """Note that one of a pair's epochs has a slot; the pair has, once all of them do."""
        if self._lanes.is_running(self._row, place):  # an epoch that is tried again
            go.set()
            return
        self._waiting[place].append(go)
        if len(self._waiting[place]) == self._epochs - len(self._outcomes[place]):
            every = self._waiting.pop(place)
            self._lanes.arrive(self._row, place, lambda: _set(every))

    def _note(self, id: str, epoch: int, outcome: Outcome) -> None:
        """Tell a pair's outcome once all its epochs have theirs."""
        place = self._places[id]
        known = self._outcomes[place]
        known.setdefault(epoch, outcome)
        if len(known) == self._epochs:
            self._lanes.tell(self._row, place, reduce_epochs([*known.values()]))

    async def _remember(self, folder: str, spec: EvalSpec) -> None:
        """Hand over what earlier logs hold; epochs that they lack run."""
        times: dict[int, list[datetime]] = defaultdict(list)
        try:
            async for sample in earlier_samples(folder, spec):
                if sample.epoch <= self._epochs:
                    place = self._places[str(sample.id)]
                    self._outcomes[place][sample.epoch] = self._outcome_of(sample)
                    times[place] += lifetime(sample)
        except ConfigError as error:
            raise self._race.fail(f"{self.label!r} cannot go on: {error}") from None
        for place, known in self._outcomes.items():
            if len(known) == self._epochs:
                outcome, when = reduce_epochs([*known.values()]), times[place]
                self._lanes.remember(self._row, place, outcome, min(when), max(when))

    def _outcome_of(self, sample: EvalSample) -> Outcome:
        if sample.error is not None or not sample.scores:
            message = "no score" if sample.error is None else sample.error.message
            return void(message, spend_of(sample))
        values = scores_in({name: one.model_dump() for name, one in sample.scores.items()})
        seconds = sample.working_time or sample.total_time or 0.0
        return self._outcome(values, spend_of(sample), seconds)

    def _outcome(self, values: Mapping[str, float], spend: Spend, seconds: float = 0.0) -> Outcome:
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
        return Outcome(Score(score), spend=spend, seconds=seconds)


def _set(events: Iterable[Event]) -> None:
    for event in events:
        event.set()


class Race:
    """Runs the samples of K candidates as a selection rule asks for them.

    Args:
        selector: a rule that draws common examples, such as ``auto`` or ``sysrs``.
        budget: samples to run in all, each epoch one; None: until the best is established.
        metric: the scorer to go by, needed where a task has several; ``scorer/key`` for one value
            of a scorer that returns several.
        confidence: of the verdict, in (0, 1).
        seed: of the rule, and of the order of samples in ``select``.
        resume: folder with logs of the same race; samples that they hold a score of are told to the
            rule, and do not run again.
        params: the rule's own parameters.

    Raises:
        ConfigError: inspect-ai is not installed.
    """

    def __init__(
        self,
        selector: str = "auto",
        budget: int | None = None,
        *,
        metric: str | None = None,
        confidence: float = 0.95,
        seed: int = 0,
        resume: str | None = None,
        **params: Any,  # noqa: ANN401
    ) -> None:
        install_hooks()
        self._selector, self._budget, self._params = selector, budget, params
        self.metric, self.resume = metric, resume
        self._confidence, self._seed = confidence, seed
        self._at_once = _SAMPLES_AT_ONCE
        self._tasks: list[RacedTask] = []
        self._ids: list[str] = []  # of the samples, in their order
        self._raced: list[tuple[object, ...]] = []  # what is known of the tasks in their logs
        self.lanes: Lanes | None = None
        self.failure: ConfigError | None = None
        self._began = 0.0

    def task(self, label: str) -> RacedTask:
        """Return a candidate's ``early_stopping``, for one task and one model.

        Raises:
            ConfigError: the label is taken, or the race has begun.
        """
        if self._ids or label in [task.label for task in self._tasks]:
            problem = "the race has begun" if self._ids else "the label is taken"
            raise ConfigError(f"candidate {label!r} cannot join: {problem}; begin another race")
        self._tasks.append(RacedTask(self, len(self._tasks), label))
        return self._tasks[-1]

    def select(
        self,
        tasks: Task | Sequence[Task],
        models: Sequence[str | Model] | None = None,
        **options: Any,  # noqa: ANN401 - as inspect_ai.eval
    ) -> list[EvalLog]:
        """Race every task with every model (by default, the task's own); return Inspect's logs.

        Args:
            tasks: over the same samples.
            models: as ``inspect_ai.eval`` takes them: names, or what ``get_model`` returned.
            options: of ``inspect_ai.eval``. Samples are shuffled by the race's seed, an error fails
                its sample alone, and each sample is logged at once, unless given otherwise.

        Raises:
            ConfigError: the candidates cannot be raced; the logs say so too.
        """
        from inspect_ai import eval as inspect_eval
        from inspect_ai import task_with

        listed = [*tasks] if isinstance(tasks, Sequence) else [tasks]
        racing = []
        for task, model in product(listed, models or [""]):
            names = [task.name, str(model)] if len(listed) > 1 else [str(model) or task.name]
            stopping = self.task(",".join(filter(None, names)))
            chosen: dict[str, Any] = {"model": model} if model else {}
            racing.append(task_with(copy(task), early_stopping=stopping, **chosen))
        usual = {"sample_shuffle": self._seed + 1, "fail_on_error": False, "log_buffer": 1}
        usual["max_tasks"] = len(self._tasks)
        logs = inspect_eval(racing, **{**usual, **options, **self._slots(racing, options)})
        if self.failure is not None:
            raise self.failure
        return list(logs)

    def _slots(self, tasks: Sequence[Task], options: Mapping[str, Any]) -> dict[str, int]:
        """Return a slot for each sample and epoch, if there are several epochs."""
        given = options.get("epochs") or 0
        epochs = max(getattr(given, "epochs", given) or task.epochs or 1 for task in tasks)
        if epochs == 1:
            return {}
        self._at_once = options.get("max_samples") or _SAMPLES_AT_ONCE
        return {"max_samples": epochs * max(len(task.dataset) for task in tasks)}

    def standing(self) -> Standing:
        """Return the standing, as of a study; raises ConfigError before any task has begun."""
        if self.lanes is None:
            raise ConfigError("the race has not begun: give its tasks to inspect_ai.eval first")
        return self.lanes.standing(time.monotonic() - self._began)

    def verdict(self) -> str:
        """Say in words who leads and how sure that is, or why no sample has a score.

        Raises ConfigError as ``standing`` does.
        """
        standing = self.standing()
        if standing.winner is None:
            return "; ".join([first_line(standing), *self._why_void()])
        return first_line(standing)

    def _why_void(self) -> list[str]:
        state = RunState() if self.lanes is None else self.lanes.record.state
        numbers = state.told["failure"][state.failed()].tolist()
        messages = Counter(state.failures[number].message for number in numbers)
        return [f"{count} void: {shortened(said, 200)}" for said, count in messages.most_common(1)]

    def join(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> Lanes:
        """Check a task that starts, and return its lanes; raises ConfigError."""
        self._check(task, spec, ids, epochs)
        if self.lanes is None:
            self.lanes, self._ids = self._begin(spec, ids, epochs), ids
            self._began = time.monotonic()
        return self.lanes

    def fail(self, problem: str) -> ConfigError:
        """End the race, and return its error, which each task of it raises once.

        Inspect renders every error with its traceback, which takes about a second each.
        """
        self.failure = self.failure or ConfigError(problem)
        if self.lanes is not None:
            self.lanes.stop("error")
        return self.failure

    def _check(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> None:
        config, count = spec.config, len(self._tasks)
        together = min(config.max_tasks or 1, TASKS_OF_RUN.get(spec.run_id, count))
        problems = {
            "a candidate is one task with one model, and a race is run once": task.is_started,
            "Inspect begins a second epoch after the first of all samples; give eval a slot for "
            f"each sample and epoch: max_samples={len(ids) * epochs}": (
                epochs > 1 and (config.max_samples or 0) < len(ids) * epochs
            ),
            "with resume, its logs are known by task, model and solver, and those of another "
            "candidate are the same": (self.resume is not None and likeness(spec) in self._raced),
            "without logged samples Inspect stops none early; drop log_samples": (
                config.log_samples is False
            ),
            f"its {count} tasks must run at the same time, and {together} would; give all of them "
            f"to one eval with max_tasks={count} (eval-retry runs one after another)": (
                together < count
            ),
            "the intervals need samples in random order; give eval sample_shuffle=1": (
                not spec.dataset.shuffled
            ),
            "all tasks need the same samples in the same order; give eval one whole number as "
            "sample_shuffle": bool(self._ids) and ids != self._ids,
        }
        if self.failure is not None:
            raise self.failure
        for problem, applies in problems.items():
            if applies:
                raise self.fail(f"{task.label!r} cannot be raced: {problem}")
        self._raced.append(likeness(spec))

    def _begin(self, spec: EvalSpec, ids: list[str], epochs: int) -> Lanes:
        budget = None if self._budget is None else self._budget // epochs
        at_once = None if epochs == 1 else max(1, self._at_once // epochs)
        problem = Problem(
            n_candidates=len(self._tasks),
            n_examples=len(ids),
            seed=self._seed,
            confidence=self._confidence,
            budget=budget,
        )
        candidates = [
            Candidate("inspect", task.label, PromptTemplate(spec.task, text=""), label=task.label)
            for task in self._tasks
        ]
        try:
            rule = make_selector(self._selector, problem, **self._params)
            started = Started(spec.task, spec.created, __version__, {}, ".")
            return Lanes(started, rule, candidates, ids, at_once)
        except ValueError as error:
            raise self.fail(str(error)) from None
