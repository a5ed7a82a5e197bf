"""Finds the best of several Inspect tasks or models, by early stopping of an unmodified Inspect.

Inspect's protocol for early stopping cannot reorder samples: a sample that has its slot can run,
wait or be skipped. So the order is Inspect's own, shuffled once and the same for all candidates,
and the selection rule decides how far along it each candidate gets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import product
from typing import TYPE_CHECKING, Any

from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, Usage, nanos
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.interop.inspect_hooks import RACED, TASKS_OF_RUN, install_hooks
from bestarm_agent.interop.inspect_logs import scores_in, usage_in
from bestarm_agent.interop.inspect_race import PairQueue
from bestarm_agent.report.text import how_sure, verdict_line
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem

if TYPE_CHECKING:
    from inspect_ai import Task  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.dataset import Sample  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.log import EvalLog, EvalSample, EvalSpec  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.scorer import SampleScore  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.util import EarlyStop  # type: ignore[import-not-found, unused-ignore]

_MANAGER = "bestarm-agent"
_START_SECONDS = 600.0  # a candidate that has not begun by then is left behind


class Race:
    """Runs the samples of K candidates as a selection rule asks for them.

    Args:
        selector: a rule that draws common examples, such as ``auto`` or ``sysrs``.
        budget: samples to run in all; None: until the best is established.
        metric: the scorer to go by, needed where a task has several; ``scorer/key`` for one value
            of a scorer that returns several.
        confidence: of the verdict, in (0, 1).
        seed: of the rule, and of the order of samples in ``select``.
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
        **params: Any,  # noqa: ANN401
    ) -> None:
        install_hooks()
        self._selector, self._budget, self._params = selector, budget, params
        self.metric, self._confidence, self._seed = metric, confidence, seed
        self._tasks: list[RacedTask] = []
        self._ids: list[str] = []  # of the samples, in their order
        self.queue: PairQueue | None = None
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
        models: Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401 - as inspect_ai.eval
    ) -> list[EvalLog]:
        """Race every task with every model (by default, the task's own); return Inspect's logs.

        Args:
            tasks: over the same samples.
            models: names of models as Inspect knows them.
            options: of ``inspect_ai.eval``. Samples are shuffled by the race's seed, and an error
                fails its sample alone, unless given otherwise.

        Raises:
            ConfigError: the candidates cannot be raced; the logs say so too.
        """
        from inspect_ai import eval as inspect_eval  # type: ignore[import-not-found, unused-ignore]
        from inspect_ai import task_with  # type: ignore[import-not-found, unused-ignore]

        listed = [*tasks] if isinstance(tasks, Sequence) else [tasks]
        racing = []
        for task, model in product(listed, models or [""]):
            names = [task.name, model] if len(listed) > 1 else [model or task.name]
            stopping = self.task(",".join(filter(None, names)))
            chosen: dict[str, Any] = {"model": model} if model else {}
            racing.append(task_with(copy(task), early_stopping=stopping, **chosen))
        fixed = {"sample_shuffle": self._seed + 1, "fail_on_error": False, **options}
        logs = inspect_eval(racing, **{"max_tasks": len(self._tasks), **fixed})
        if self.failure is not None:
            raise self.failure
        return list(logs)

    def standing(self) -> Standing:
        """Return the standing, as of a study; raises ConfigError before any task has begun."""
        if self.queue is None:
            raise ConfigError("the race has not begun: give its tasks to inspect_ai.eval first")
        return self.queue.standing(time.monotonic() - self._began)

    def verdict(self) -> str:
        """Say in words who leads and how sure that is; raises ConfigError as ``standing`` does."""
        standing = self.standing()
        if standing.winner is None:
            return verdict_line(standing)
        return f"{verdict_line(standing)}; {how_sure(standing)}"

    def join(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> PairQueue:
        """Check a task that starts, and return the queue of pairs; raises ConfigError."""
        self._check(task, spec, ids, epochs)
        if self.queue is None:
            self.queue, self._ids = self._begin(spec, ids), ids
            self._began = time.monotonic()
        return self.queue

    def fail(self, problem: str) -> ConfigError:
        """End the race, and return its error, which each task of it raises once.

        Inspect renders every error with its traceback, which takes about a second each.
        """
        self.failure = self.failure or ConfigError(problem)
        if self.queue is not None:
            self.queue.stop("error")
        return self.failure

    def _check(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> None:
        config, count = spec.config, len(self._tasks)
        together = min(config.max_tasks or 1, TASKS_OF_RUN.get(spec.run_id, count))
        problems = {
            "a candidate is one task with one model, and a race is run once": task.is_started,
            f"{epochs} epochs come one after the other over all samples, so their means cannot be "
            "raced; use epochs=1": epochs > 1,
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

    def _begin(self, spec: EvalSpec, ids: list[str]) -> PairQueue:
        problem = Problem(
            n_candidates=len(self._tasks),
            n_examples=len(ids),
            seed=self._seed,
            confidence=self._confidence,
            budget=self._budget,
            stop_when_separated=True,
        )
        candidates = [
            Candidate("inspect", task.label, PromptTemplate(spec.task, text=""), label=task.label)
            for task in self._tasks
        ]
        try:
            rule = make_selector(self._selector, problem, **self._params)
            return PairQueue(spec.task, spec.created, rule, candidates, ids, self._budget)
        except ValueError as error:
            raise self.fail(str(error)) from None


class RacedTask:
    """One candidate's early stopping, as Inspect's protocol has it; made by ``Race.task``."""

    def __init__(self, race: Race, row: int, label: str) -> None:
        self.label, self.is_started = label, False
        self._race, self._row = race, row
        self._queue: PairQueue
        self._places: dict[str, int] = {}  # of samples, in the common order
        self._fails_on_error = True
        self._ended: dict[str, EvalSample] = {}  # until they are told

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Join the race; raises ConfigError if the task cannot be raced."""
        ids = [str(sample.id) for sample in samples]
        self._queue = self._race.join(self, task, ids, epochs)
        config = task.config
        self._fails_on_error = config.fail_on_error is not False and not (
            config.continue_on_fail or config.score_on_error
        )
        self._places = {name: place for place, name in enumerate(ids)}
        self.is_started = True
        RACED[task.eval_id] = self
        return _MANAGER

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Wait until the rule wants the sample, or nothing more."""
        from anyio import Event, get_cancelled_exc_class, move_on_after
        from inspect_ai.util import EarlyStop  # type: ignore[import-not-found, unused-ignore]

        place, go = self._places[str(id)], Event()
        self._queue.arrive(self._row, place, go.set)
        try:
            with move_on_after(_START_SECONDS):
                await go.wait()
            self._queue.start_without_the_missing(_void("the task did not begin in time"))
            await go.wait()
        except get_cancelled_exc_class():
            self._queue.leave(self._row, _void("the task was cancelled"))
            raise
        if self._queue.may_run(self._row, place):
            return None
        return EarlyStop(id=id, epoch=epoch, reason=f"the race has ended: {self._queue.end}")

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Tell the rule a score, also that of a sample reused from an earlier log."""
        place = self._places[str(id)]
        values = scores_in({name: {"value": found.score.value} for name, found in scores.items()})
        sample = self._ended.pop(str(id), None)
        if (scores or sample) and not self._queue.is_told(self._row, place):
            self._queue.tell(self._row, place, self._outcome(values, sample))

    async def complete_task(self) -> dict[str, Any]:
        """Leave the race; return what Inspect's log says of it; raises ConfigError if it failed."""
        self._queue.leave(self._row, _void("the sample was cancelled before it ran"))
        if self._race.failure is not None:
            raise self._race.failure
        return {"candidate": self.label, "verdict": self._race.verdict()}

    def sample_ended(self, sample: EvalSample) -> None:
        """Keep the cost of a sample until its score comes; one with an error is void."""
        self._ended[str(sample.id)] = sample
        if sample.error is None and sample.scores:
            return
        place = self._places[str(sample.id)]
        message = "no score" if sample.error is None else sample.error.message
        self._queue.tell(self._row, place, _void(message, _spend(sample)))
        if sample.error is not None and self._fails_on_error:
            self._queue.leave(self._row, _void("its task failed"))

    def sample_put_back(self, id: str | int) -> None:
        """Note that Inspect tries a sample again, behind those that wait."""
        self._queue.put_back(self._row, self._places[str(id)])

    def _outcome(self, values: Mapping[str, float], sample: EvalSample | None) -> Outcome:
        spend = _spend(sample)
        metric = self._race.metric
        if metric is None and len(values) > 1:
            self._race.fail(f"{self.label!r} has the metrics {', '.join(values)}; name one: metric")
        if not values or self._race.failure is not None:
            return _void("no score", spend)
        score = next(iter(values.values())) if metric is None else values.get(metric)
        if score is None or not 0 <= score <= 1:
            known = ", ".join(f"{name} = {value:g}" for name, value in values.items())
            self._race.fail(f"{self.label!r} has {known}; name a metric with scores in [0, 1]")
            return _void("no such score", spend)
        seconds = (sample.working_time or sample.total_time or 0.0) if sample else 0.0
        return Scored(score, None, Usage(), spend, seconds, "")


def _void(message: str, spend: Spend = Spend(pulls=1)) -> Failed:  # noqa: B008 - frozen
    return Failed(FailureKind.INTERNAL, Blame.HARNESS, message, spend)


def _spend(sample: EvalSample | None) -> Spend:
    """Return a sample's tokens, and its dollars where Inspect knows the prices of all models."""
    if sample is None:
        return Spend(pulls=1)
    used = usage_in([usage.model_dump() for usage in sample.model_usage.values()])
    tokens = used["input_tokens"] + used["output_tokens"]
    return Spend(pulls=1, tokens=tokens, usd_nanos=nanos(used["usd"] or 0))
