"""Finds the best of several Inspect tasks or models, by early stopping of an unmodified Inspect.

Inspect's protocol for early stopping cannot reorder samples: a sample that has its slot can run,
wait or be skipped. So the order is Inspect's own, shuffled once and the same for all candidates,
and the selection rule decides how far along it each candidate gets. Inspect begins a second epoch
after all samples of the first; only where every sample and epoch has a slot can a pair's epochs run
together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from itertools import product
from typing import TYPE_CHECKING, Any

from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.inspect_hooks import TASKS_OF_RUN, install_hooks
from bestarm_agent.interop.inspect_race import PairQueue
from bestarm_agent.interop.inspect_samples import likeness
from bestarm_agent.interop.inspect_task import RacedTask
from bestarm_agent.report.text import how_sure, shortened, verdict_line
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem

if TYPE_CHECKING:
    from inspect_ai import Task  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.log import EvalLog, EvalSpec  # type: ignore[import-not-found, unused-ignore]
    from inspect_ai.model import Model  # type: ignore[import-not-found, unused-ignore]

_SAMPLES_AT_ONCE = 10  # of a task with epochs, whose slots say nothing


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
        from inspect_ai import eval as inspect_eval  # type: ignore[import-not-found, unused-ignore]
        from inspect_ai import task_with  # type: ignore[import-not-found, unused-ignore]

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
        if self.queue is None:
            raise ConfigError("the race has not begun: give its tasks to inspect_ai.eval first")
        return self.queue.standing(time.monotonic() - self._began)

    def verdict(self) -> str:
        """Say in words who leads and how sure that is, or why no sample has a score.

        Raises ConfigError as ``standing`` does.
        """
        standing = self.standing()
        if standing.winner is None:
            return "; ".join([verdict_line(standing), *self._why_void()])
        return f"{verdict_line(standing)}; {how_sure(standing)}"

    def _why_void(self) -> list[str]:
        told = self.queue.state.told.values() if self.queue is not None else ()
        messages = Counter(
            one.outcome.message for one in told if not isinstance(one.outcome, Scored)
        )
        return [f"{count} void: {shortened(said, 200)}" for said, count in messages.most_common(1)]

    def join(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> PairQueue:
        """Check a task that starts, and return the queue of pairs; raises ConfigError."""
        self._check(task, spec, ids, epochs)
        if self.queue is None:
            self.queue, self._ids = self._begin(spec, ids, epochs), ids
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

    def _begin(self, spec: EvalSpec, ids: list[str], epochs: int) -> PairQueue:
        budget = None if self._budget is None else self._budget // epochs
        at_once = None if epochs == 1 else max(1, self._at_once // epochs)
        problem = Problem(
            n_candidates=len(self._tasks),
            n_examples=len(ids),
            seed=self._seed,
            confidence=self._confidence,
            budget=budget,
            stop_when_separated=True,
        )
        candidates = [
            Candidate("inspect", task.label, PromptTemplate(spec.task, text=""), label=task.label)
            for task in self._tasks
        ]
        try:
            rule = make_selector(self._selector, problem, **self._params)
            return PairQueue(spec.task, spec.created, rule, candidates, ids, budget, at_once)
        except ValueError as error:
            raise self.fail(str(error)) from None
