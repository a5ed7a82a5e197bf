"""Finds the best of several Inspect tasks or models, by early stopping of an unmodified Inspect.

Inspect's protocol for early stopping cannot reorder samples: a sample that has its slot can run,
wait or be skipped. So the order is Inspect's own, shuffled once and the same for all candidates,
and the selection rule decides how far along it each candidate gets. A race has one epoch, since
Inspect begins a second only after all samples of the first.

An ``InspectRace`` has a ``RacedTask`` for each candidate: the early stopping of one task with one
model. Each of its samples, known by its place in the common order, is in one of five states::

                  the rule asks
    OUTSIDE ------------------------> ASKED <----------+
       |                                |              |
       | it takes a slot                | a slot       | it is tried again
       v          the rule asks         v              |
    WAITING -----------------------> RUNNING ----------+
                                        |
                                        | its outcome
                                        v
                                      TOLD

A sample that waits holds one of its task's slots; with few slots, one that the rule has asked for
may still stand behind others. The end of the race lets those that wait go without running. An
outcome ends every state. Hooks pass on outcomes and retries, since the protocol leaves out errors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    ExamplesAdded,
    Started,
    Told,
)
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.domain.values import Candidate, Failure, Outcome, PromptTemplate, Score
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.interop.formats import scores_in, usage_in
from bestarm_agent.plugins import optional
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Ask, Pair, Problem

if TYPE_CHECKING:
    from anyio import Event
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.hooks import SampleAttemptEnd, SampleEnd
    from inspect_ai.log import EvalLog, EvalSample, EvalSpec
    from inspect_ai.model import Model
    from inspect_ai.scorer import SampleScore
    from inspect_ai.util import EarlyStop


# Hooks are global and get only the id of the eval. Weak, so that a race that is over does not live
# on.
RACED: WeakValueDictionary[str, RacedTask] = WeakValueDictionary()  # by Inspect's id of the eval
_FIRST = 2  # samples of a task: where all of these fail, so will the others
_START_SECONDS = 600.0  # a candidate that has not begun by then is left behind


@cache
def install_hooks() -> None:
    """Pass on what Inspect tells, from now on; raises ConfigError without inspect-ai."""
    hooks = optional("inspect_ai.hooks", "inspect", "a race")

    @hooks.hooks(name="bestarm_agent/race", description="ends samples of a race")
    class RaceHooks(hooks.Hooks):  # type: ignore[misc, name-defined] # of the extra
        """Passes what Inspect tells to the tasks of races."""

        async def on_sample_end(self, data: SampleEnd) -> None:
            if (task := RACED.get(data.eval_id)) is not None:
                task.sample_ended(data.sample)

        async def on_sample_attempt_end(self, data: SampleAttemptEnd) -> None:
            if data.will_retry and (task := RACED.get(data.eval_id)) is not None:
                task.sample_put_back(data.summary.id)


def void(message: str, spend: Spend = Spend(answers=1)) -> Outcome:  # noqa: B008 - frozen
    """Return the outcome of a sample that says nothing about its candidate."""
    return Outcome(failure=Failure(FailureKind.INTERNAL, Blame.HARNESS, message), spend=spend)


def likeness(spec: EvalSpec) -> tuple[object, ...]:
    """Return what the logs of one candidate have in common."""
    return (spec.task, spec.model, spec.task_args, spec.solver, spec.solver_args)


class RacedTask:
    """One candidate's early stopping, as Inspect's protocol has it; made by ``InspectRace.task``.

    Its samples' places are in a set for each state.
    """

    def __init__(self, race: InspectRace, row: int, label: str) -> None:
        self.row, self.label = row, label
        self.outside: set[int] = set()
        self.asked: set[int] = set()
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.told: set[int] = set()
        self.has_begun = self.is_over = False  # a sample of it has come; it will run none any more
        self.is_lost = False  # over before the race was
        self._n_failed = 0  # samples that ended with an error
        self.places: dict[str, int] = {}  # of samples, by id; once it has started
        self._race = race
        self._free_slots = 0  # given back, and not taken again yet
        self._fails_on_error = True
        self._letting_go: dict[int, Event] = {}  # by place, of samples that wait
        self._scored_before: set[int] = set()  # places, in earlier logs

    async def start_task(self, task: EvalSpec, samples: list[Sample], epochs: int) -> str:
        """Join the race; raises ConfigError if the task cannot be raced."""
        ids = [str(sample.id) for sample in samples]
        self._race.join(self, task, ids, epochs)
        config = task.config
        self._fails_on_error = config.fail_on_error is not False and not (
            config.continue_on_fail or config.score_on_error
        )
        self.places = {name: place for place, name in enumerate(ids)}
        self.outside = set(range(len(ids)))
        RACED[task.eval_id] = self
        if self._race.resume is not None:
            await self._remember(self._race.resume, task)
        return "bestarm-agent"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Wait until the rule wants the sample, or nothing more."""
        from anyio import Event, get_cancelled_exc_class, move_on_after
        from inspect_ai.util import EarlyStop

        # The wait has three parts. The sample takes a slot and becomes known to the rule; it waits
        # until the rule asks for it, or until the race ends; and if some candidate has not begun
        # after ten minutes, the race begins without it, or all would wait for ever.
        place, go = self.places[str(id)], Event()
        if place in self._scored_before:
            return EarlyStop(id=id, epoch=epoch, reason="an earlier log has its score")
        self.has_begun, self._free_slots = True, max(0, self._free_slots - 1)
        self.move(place, self.running if place in self.asked else self.waiting)
        self._letting_go[place] = go
        if place in self.running:
            go.set()
        self._race.go_on()
        try:
            with move_on_after(_START_SECONDS):
                await go.wait()
            self._race.start_without_the_missing()
            await go.wait()
        except get_cancelled_exc_class():
            self.leave("the task was cancelled")
            raise
        if place in self.running:
            return None
        return EarlyStop(id=id, epoch=epoch, reason=f"the race has ended: {self._race.end}")

    async def complete_sample(
        self, id: str | int, epoch: int, scores: dict[str, SampleScore]
    ) -> None:
        """Do nothing: hooks tell the outcome, of samples with an error too."""

    async def complete_task(self) -> dict[str, Any]:
        """Leave the race; return what Inspect's log says of it; raises ConfigError if it failed."""
        self.leave("the sample was cancelled before it ran")
        if self._race.failure is not None:
            raise self._race.failure
        return {"candidate": self.label, "verdict": self._race.verdict()}

    def sample_ended(self, sample: EvalSample) -> None:
        """Note the score of a sample; one with an error is void."""
        place, outcome = self.places[str(sample.id)], self._outcome_of(sample)
        self._race.record_outcome(self, place, outcome)
        self._race.go_on()
        if sample.error is None:
            return
        self._n_failed += 1
        if self._fails_on_error:
            self.leave("its task failed")
        elif self._n_failed == len(self.told) == _FIRST:
            self._race.fail(
                f"the first {_FIRST} samples of {self.label!r} failed, the last with: "
                f"{sample.error.message:.500}; correct the task, and race again"
            )

    def sample_put_back(self, id: str | int) -> None:
        """Note that Inspect tries a sample again, behind those that wait."""
        self.move(self.places[str(id)], self.asked)
        self._free_slots += 1
        self._race.go_on()

    def leave(self, why: str) -> None:
        """Note that the task is over; what it was asked and never ran becomes void."""
        # The order matters: the flags first, then the waiting samples, so that none of them is
        # asked for any more; then those that were asked for, which become void; and only then the
        # rule, which sees all.
        self.is_lost = self.is_lost or (self._race.end is None and not self.is_over)
        self.is_over = self.has_begun = True
        self.let_go()
        for place in sorted(self.asked | self.running):
            self._race.record_outcome(self, place, void(why))
        self._race.go_on()

    def move(self, place: int, to: set[int]) -> None:
        """Bring a sample into another state; if it waited, let it go."""
        # A slot becomes free when a running sample has its outcome. The number counts samples of
        # this task that Inspect will start soon without anything else having to happen.
        self._free_slots += place in self.running and to is self.told
        for places in (self.outside, self.asked, self.waiting, self.running, self.told):
            places.discard(place)
        to.add(place)
        if (go := self._letting_go.pop(place, None)) is not None:
            go.set()

    def let_go(self) -> None:
        """Let the samples that wait go, without running them."""
        for place in [*self.waiting]:
            self.move(place, self.outside)

    @property
    def coming(self) -> int:
        """Number of samples that are about to take a slot."""
        return min(self._free_slots, len(self.outside) + len(self.asked))

    @property
    def can_run(self) -> bool:
        """Return whether a sample that is asked for now would run soon."""
        return not self.is_over and (bool(self.waiting) or self.coming > len(self.asked))

    async def _remember(self, folder: str, spec: EvalSpec) -> None:
        """Hand over what earlier logs of the task hold, with the times of ask and outcome.

        Raises ConfigError if a log has other samples, or the same in another order.
        """
        from inspect_ai.log import list_eval_logs_async, read_eval_log_async

        def is_earlier(log: EvalLog) -> bool:
            return log.eval.eval_id != spec.eval_id and likeness(log.eval) == likeness(spec)

        for info in await list_eval_logs_async(folder, filter=is_earlier, descending=False):
            log = await read_eval_log_async(info)
            if (log.eval.dataset.sample_ids or []) != (spec.dataset.sample_ids or []):
                raise self._race.fail(
                    f"{self.label!r} cannot go on: {info.name} has other samples, or another order "
                    "of them; give the same samples and the same seed, or another folder"
                )
            for sample in log.samples or ():
                if sample.error is None and sample.scores:
                    place, outcome = self.places[str(sample.id)], self._outcome_of(sample)
                    self._scored_before.add(place)
                    # Ask and outcome are replayed at their own times, among those of all
                    # candidates: what the rule knew when it asked must be what it knew then.
                    for when, result in ((sample.started_at, None), (sample.completed_at, outcome)):
                        time_of = datetime.fromisoformat(when)
                        self._race.earlier.append((time_of, self, place, result))

    def _outcome_of(self, sample: EvalSample) -> Outcome:
        """Return an outcome with its tokens, and dollars where all prices are known to Inspect."""
        used = usage_in([usage.model_dump() for usage in sample.model_usage.values()])
        tokens = used["input_tokens"] + used["output_tokens"]
        spend = Spend(answers=1, tokens=tokens, usd_nanos=nanos(used["usd"] or 0))
        if sample.error is not None or not sample.scores:
            return void("no score" if sample.error is None else sample.error.message, spend)
        values = scores_in({name: each.model_dump() for name, each in sample.scores.items()})
        metric = self._race.metric
        if metric is None and len(values) == 1:
            (metric,) = values
        score = values.get(metric or "")
        if values and (score is None or not 0 <= score <= 1):
            known = ", ".join(f"{name} = {value:g}" for name, value in values.items())
            self._race.fail(f"{self.label!r} has {known}; name a metric with scores in [0, 1]")
        if score is None or self._race.failure is not None:
            return void("no score", spend)
        seconds = sample.working_time or sample.total_time or 0.0
        return Outcome(Score(score), spend=spend, seconds=seconds)


class InspectRace:
    """Runs the samples of K candidates as a selection rule asks for them.

    Args:
        selector: a rule that draws common examples, such as ``auto`` or ``sysrs``.
        budget: samples to run in all; None: until the best is established.
        metric: the scorer to go by, needed where a task has several; ``scorer/key`` for one value
            of a scorer that returns several.
        confidence: of the verdict, in (0, 1).
        seed: of the rule, and of the order of samples in ``select``.
        resume: folder with logs of the same race; samples that they hold a score of are told to the
            rule, and do not run again.
        params: the rule's own parameters.

    Attributes:
        end: why nothing more is asked, as in ``Stopped``; None while the race goes on.
        record: what the race amounts to, as that of a run, once a task has begun.

    Raises:
        ConfigError: inspect-ai is not installed.
    """

    record: RunRecord
    _rule: Pairs

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
        self._tasks: list[RacedTask] = []
        self._ids: list[str] = []  # of the samples, in their order, once the race has begun
        self._raced: list[tuple[object, ...]] = []  # what is known of the tasks in their logs
        self._seqs: dict[Pair, int] = {}
        # when, candidate and place of an earlier race's asks (None) and outcomes
        self.earlier: list[tuple[datetime, RacedTask, int, Outcome | None]] = []
        self.end: str | None = None
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
        logs = inspect_eval(racing, **{**usual, **options})
        if self.failure is not None:
            raise self.failure
        return list(logs)

    def standing(self) -> Standing:
        """Return the standing, as of a study; raises ConfigError before any task has begun."""
        if not self._ids:
            raise ConfigError("the race has not begun: give its tasks to inspect_ai.eval first")
        state, unseen = self.record.state, self._rule.table.n_unseen
        lost = [task.label for task in self._tasks if task.is_lost and unseen[task.row]]
        standing = build_standing(
            state,
            self._rule,
            state.name,
            spent=state.spend,
            seconds=time.monotonic() - self._began,
            broken=dict.fromkeys(lost, "its task ended before the race did"),
            in_flight=sum(len(task.running) for task in self._tasks),
        )
        return decided(replace(standing, end=self.end))

    def verdict(self) -> str:
        """Say in words who leads and how sure that is; raises ConfigError as ``standing`` does."""
        return self.standing().decision.text

    def join(self, task: RacedTask, spec: EvalSpec, ids: list[str], epochs: int) -> None:
        """Check a task that starts, and begin with the first; raises ConfigError."""
        config, count = spec.config, len(self._tasks)
        # Reasons by which a race would be wrong or never end, by what is said about each. All
        # values are worked out, and the first that is true is raised.
        problems = {
            "a candidate is one task with one model, and a race is run once": bool(task.places),
            f"it has {epochs} epochs, and an eval with one is raced; draws of an example are "
            "samples of their own": epochs > 1,
            "with resume, its logs are known by task, model and solver, and those of another "
            "candidate are the same": (self.resume is not None and likeness(spec) in self._raced),
            "without logged samples Inspect stops none early; drop log_samples": (
                config.log_samples is False
            ),
            f"its {count} tasks must run at the same time; give all of them to one eval with "
            f"max_tasks={count}": (config.max_tasks or 1) < count,
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
        if not self._ids:
            self._begin(spec, ids)

    def _begin(self, spec: EvalSpec, ids: list[str]) -> None:
        """Make the rule, and write what a run's log begins with."""
        problem = Problem(
            n_candidates=len(self._tasks),
            n_examples=len(ids),
            seed=self._seed,
            confidence=self._confidence,
            budget=self._budget,
        )
        try:
            rule = make_selector(self._selector, problem, **self._params)
        except ValueError as error:
            raise self.fail(str(error)) from None
        if not rule.rule.common_examples:
            raise self.fail(f"rule {rule.rule.name!r} does not take common examples in one order")
        order = rule.rule.order.examples
        self._order: list[int] = order.tolist()  # place -> example
        self._place_of: list[int] = order.argsort().tolist()  # example -> place
        candidates = [
            Candidate("inspect", task.label, PromptTemplate(spec.task, text=""), label=task.label)
            for task in self._tasks
        ]
        by_example = tuple(ids[place] for place in self._place_of)
        self._ids, self._rule, self._began = ids, rule, time.monotonic()
        self.record = RunRecord(lambda *_: rule)
        for event in (
            Started(spec.task, spec.created, __version__, {}, "."),
            CandidatesAdded(tuple(candidates)),
            ExamplesAdded(by_example, by_example),
            BudgetSet(Budget(answers=self._budget)),
        ):
            self.record.record(event)

    def fail(self, problem: str) -> ConfigError:
        """End the race, and return its error, which each task of it raises once.

        Inspect renders every error with its traceback, which takes about a second each.
        """
        self.failure = self.failure or ConfigError(problem)
        if self._ids:
            self.end = self.end or "error"
            self.go_on()
        return self.failure

    def start_without_the_missing(self) -> None:
        """Begin; candidates none of whose samples has come yet take no part."""
        for task in self._tasks:
            if not task.has_begun:
                task.leave("the task did not begin in time")

    def go_on(self) -> None:
        """Ask the rule for as many pairs as can run now; at the end, let all go.

        Nothing is asked before every candidate has begun. Asks and outcomes of an earlier race come
        back in the order of time: who leads at a place must be known before a score at that place.
        """
        # A rule that may not ask for a candidate yet would judge it by nothing; Inspect may begin
        # tasks at quite different times.
        if self.end is None and not all(task.has_begun for task in self._tasks):
            return
        earlier, self.earlier = sorted(self.earlier, key=itemgetter(0)), []
        for _, task, place, outcome in earlier:
            if outcome is None:
                self._ask_up_to(task, place, "resumed")
            else:
                self.record_outcome(task, place, outcome)
        while self.end is None and self._ask_rule():
            pass
        if self.end is None:
            self._run_blocking_sample()
        if self.end is not None:
            for task in self._tasks:
                task.let_go()

    def record_outcome(self, task: RacedTask, place: int, outcome: Outcome) -> None:
        """Record a sample's outcome; only the first counts."""
        if place in task.told:
            return
        # Outcomes can come for samples that the rule never asked for (of an earlier log, or passed
        # over). Its table needs the ask first.
        self._ask_up_to(task, place, "resumed")
        task.move(place, task.told)
        seq = self._seqs[Pair(task.row, self._order[place])]
        score = outcome.score.value if outcome.score else None
        self.record.record(Told(seq, outcome, score))

    def _ask_rule(self) -> bool:
        """Ask for one more pair; return False if there is none now, or never again."""
        stop, budget = self._rule.stopped(), self._budget
        if stop is not None or (budget is not None and self._rule.table.n_asked >= budget):
            self.end = "budget" if stop is None else stop.value
            return False
        can_run = np.array([task.can_run for task in self._tasks])
        runs = [bool(task.running) for task in self._tasks]
        # A candidate that cannot run a sample now, but has one under way, will be able to soon: the
        # rule may wait for it rather than ask the second best.
        is_busy = ~can_run & runs  # it can run soon
        asks = self._rule.ask(allowed=can_run | is_busy, busy=is_busy)
        for ask in asks:
            self._note(ask, is_known=True)
        return bool(asks)

    def _ask_up_to(self, task: RacedTask, place: int, reason: str) -> None:
        """Ask for a candidate's samples up to a place, without the rule."""
        for example in self._order[: place + 1]:
            if (pair := Pair(task.row, example)) not in self._seqs:
                self._note(Ask(self._rule.table.n_asked, pair, reason), is_known=False)

    def _note(self, ask: Ask, *, is_known: bool) -> None:
        self._seqs[ask.pair] = ask.seq
        self.record.record(Asked(ask.seq, *ask.pair, ask.reason), is_known=is_known)
        task, place = self._tasks[ask.pair.candidate], self._place_of[ask.pair.example]
        task.move(place, task.running if place in task.waiting else task.asked)

    def _run_blocking_sample(self) -> None:
        """Run a sample that the rule does not want yet where all are stuck, or end the race.

        The wanted sample waits behind it. The order stays the common one, so the evidence stays
        valid; it may cost one sample more.
        """
        # Stuck: no sample runs or is about to start, and yet some wait. If a task holds all its
        # slots with samples that the rule does not want, the wanted one stands behind them.
        going = [task for task in self._tasks if not task.is_over]
        waiting = [task for task in going if task.waiting]
        if not waiting or any(task.running or task.coming for task in going):
            return
        blocked = next((task for task in waiting if task.asked), None)
        if blocked is None:
            self.end = "exhausted"
        else:
            self._ask_up_to(blocked, min(blocked.waiting), "in the way")
