"""A whole run over scripted providers in virtual time, without files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.events import BudgetSet, CandidatesAdded, Event, Started
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import (
    Candidate,
    Example,
    Outcome,
    PromptTemplate,
    Reply,
    Request,
    Score,
    Vote,
)
from bestarm_agent.engine.call import AttemptLog, Model, ProviderClient, RetryPolicy
from bestarm_agent.engine.evaluate import Evaluator, ReadyCandidate
from bestarm_agent.engine.judging import JudgeClient
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.engine.limits.waits import Wait, WaitBoard
from bestarm_agent.engine.loop import End, Rules, RunLoop, StopFlag
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord, Size, examples_added
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.store import RunLog, Store
from tests.support.store_runs import outcomes_in
from tests.support.virtual_time import LoopClock, run_virtual

PROMPT = PromptTemplate("q", text="{{ question }}")

Answer = Callable[[Request, int], Reply | Exception]


@dataclass
class Actor(Provider):
    """A provider that asks a function what to answer, after a latency.

    Attributes:
        name: its name.
        answer: called with the request and how often it was sent before.
        latency: virtual seconds of a call.
        bound: what an attempt may cost.
        sent: all requests with the time of sending.
        most: highest number of calls at once.
        queued: whether calls have no time-out.
    """

    name: str
    answer: Answer
    latency: Callable[[Request], float] = lambda _request: 1.0
    bound_spend: Spend = field(default_factory=lambda: Spend(calls=1, tokens=10, usd_nanos=100))
    sent: list[tuple[float, Request]] = field(default_factory=list)
    active: int = 0
    most: int = 0
    queued: bool = False

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(frozenset(), price_source="tests", queued=self.queued)

    def fingerprint(self, model: str) -> str:
        return self.name

    def bound(self, request: Request) -> Spend:
        return self.bound_spend

    async def generate(self, request: Request) -> Reply:
        before = sum(earlier == request for _, earlier in self.sent)
        self.sent.append((asyncio.get_running_loop().time(), request))
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            await asyncio.sleep(self.latency(request))
        finally:
            self.active -= 1
        reply = self.answer(request, before)
        if isinstance(reply, Exception):
            raise reply
        return reply


def scored(value: float) -> Reply:
    """A reply that carries its own score."""
    return Reply("", usage=Usage(input=3, output=2), usd_nanos=60, score=value)


def always(value: float) -> Answer:
    """Answer every request with the same score."""
    return lambda _request, _before: scored(value)


def failing(
    kind: FailureKind, *, retry_after: float | None = None, fatal: bool = False
) -> ProviderError:
    """A failure that passes, unless it is fatal."""
    return ProviderError(
        f"scripted {kind}", kind=kind, transient=not fatal, fatal=fatal, retry_after=retry_after
    )


def attempt_log(*begun: str, record: Callable[[Event], None] = lambda _event: None) -> AttemptLog:
    """A log of no run: attempts at the replies of these keys were begun before."""

    async def flush() -> None:
        await asyncio.sleep(0)

    return AttemptLog(0, record, flush, begun={*begun})


class OwnScore(Judge):
    """Takes the score that the reply carries."""

    name = "own"
    digest = "own"

    def __init__(self) -> None:
        """Take no options."""

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        assert reply.score is not None
        return Score(reply.score)


class ModelJudge(Judge):
    """Asks a model what each reply is worth: its answer is the score."""

    name = "asking"
    digest = "asking"

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.models: tuple[JudgeModel, ...] = (JudgeModel(actor.name, "judge-model"),)

    def _call(self, example: Example, text: str) -> JudgeCall:
        return JudgeCall(self.models[0], Request("judge-model", text=text, example=example.id))

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        return (self._call(example, "longest"),)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        said = await calls.ask(self._call(example, f"{example.id}: {reply.text}"))
        return Score(float(said.text), votes=(Vote("judge-model", float(said.text), said.text),))


class Scene:
    """A run of some models, each on its provider; scored by a model if there is a ``judge``."""

    def __init__(
        self,
        models: Mapping[str, Actor],
        *,
        n_examples: int = 20,
        in_flight: int = 8,
        provider_in_flight: int = 64,
        budget: Budget | None = None,
        rules: Rules | None = None,
        policy: RetryPolicy | None = None,
        selector: str = "ucb-e",
        store: Store | None = None,
        judge: Actor | None = None,
        use_cache: bool = True,
        limiters: Mapping[str, RateLimits] | None = None,
        shared: bool = False,
        stops: bool = False,
    ) -> None:
        self.stops = stops
        self.models = models
        self.limiters = limiters or {}
        self.shared = shared
        self.examples = [Example(f"e{j}", {"question": f"q{j}"}) for j in range(n_examples)]
        self.budget = budget or Budget()
        self.rules = rules or Rules(max_failed_share=1.0)
        self.policy = policy or RetryPolicy(max_attempts=3)
        self.in_flight = in_flight
        self.provider_in_flight = provider_in_flight
        self.selector = selector
        self.store = store or Store.in_memory()
        self.judge = judge
        self.use_cache = use_cache
        self.board = WaitBoard()
        self.loop: RunLoop

    def clients(self, ledger: Ledger) -> dict[str, ProviderClient]:
        actors = [*self.models.values(), *([self.judge] if self.judge else [])]
        by_name = {actor.name: actor for actor in reversed(actors)}
        return {name: self.client(actor, ledger) for name, actor in by_name.items()}

    def client(self, actor: Actor, ledger: Ledger) -> ProviderClient:
        return ProviderClient(
            actor,
            ledger,
            self.policy,
            LoopClock(),
            self.board,
            Gate(self.provider_in_flight),
            rules=lambda model: self.limiters.get(model, RateLimits()),
            shared=self.shared,
        )

    def judge_client(self, clients: Mapping[str, ProviderClient]) -> JudgeClient:
        if self.judge is None:
            return JudgeClient(OwnScore(), {})
        judge = ModelJudge(self.judge)
        model = Model(clients[self.judge.name], judge.models[0].name, "judge")
        return JudgeClient(judge, {judge.models[0].key: model})

    def candidates(
        self, clients: Mapping[str, ProviderClient], judging: Spend
    ) -> list[ReadyCandidate]:
        return [
            ReadyCandidate(
                Candidate(actor.name, model, PROMPT, label=model),
                CompiledPrompt(PROMPT),
                Model(clients[actor.name], model, actor.name),
                actor.bound_spend + judging,
            )
            for model, actor in self.models.items()
        ]

    async def open(self) -> RunLoop:
        """Begin a run."""
        candidates = self.candidates(self.clients(Ledger(self.budget)), Spend())
        log = await self.store.create("scene")
        for event in (
            Started("scene", LoopClock().utc(), "0", {}, "."),
            examples_added(self.examples),
            CandidatesAdded(tuple(one.candidate for one in candidates)),
            BudgetSet(self.budget),
        ):
            log.append(event)
        await log.flush()
        return self._loop(log, await self.store.events_of(log.run_id))

    async def reopen(self) -> RunLoop:
        """Go on with the run that the store holds."""
        log = await self.store.open("scene")
        return self._loop(log, await self.store.events_of(log.run_id))

    def _loop(self, log: RunLog, events: Sequence[Event]) -> RunLoop:
        self.log = log
        record = RunRecord(self.pairs, log)
        record.take([line_of(event) for event in events])
        state = record.state
        ledger = Ledger(state.budget, state.spend + state.pending_spend)
        clients = self.clients(ledger)
        judge_client = self.judge_client(clients)
        candidates = self.candidates(clients, judge_client.bound(self.examples[0]))
        pool = CandidatePool(self.in_flight)
        pool.add(candidates)
        self.loop = RunLoop(
            record=record,
            pool=pool,
            examples=self.examples,
            evaluator=Evaluator(
                ReplyCache(self.store, ledger, own="" if self.use_cache else log.run_id),
                judge_client,
            ),
            ledger=ledger,
            clock=LoopClock(),
            rules=self.rules,
            stop=StopFlag(),
        )
        return self.loop

    def pairs(self, size: Size, _candidates: Sequence[Candidate] = ()) -> Pairs:
        """The rule."""
        problem = Problem(
            size.n_candidates,
            size.n_examples,
            budget=self.budget.answers,
            stop_when_separated=self.stops,
        )
        return make_selector(self.selector, problem)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes that the log holds."""
        return outcomes_in(self.store, "scene")

    async def events(self) -> Sequence[Event]:
        """What the log holds."""
        return await self.store.events_of("scene")

    def run(self) -> End:
        """Run to the end in virtual time."""

        async def play() -> End:
            return await (await self.open()).run()

        return run_virtual(play())

    async def waits_after(self, seconds: float) -> tuple[Wait, ...]:
        """Run to the end; return what calls waited for after so many seconds."""
        running = asyncio.create_task((await self.open()).run())
        await asyncio.sleep(seconds)
        waits = self.board.summary(asyncio.get_running_loop().time())
        await running
        return waits

    async def cut_off(self, seconds: float) -> RunLoop:
        """Begin a run and cancel it after so many seconds; return its loop, which can go on."""
        running = asyncio.create_task((await self.open()).run())
        await asyncio.sleep(seconds)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
            raise AssertionError("a cancelled run went on")
        return self.loop

    async def stopped(self, seconds: float) -> End:
        """Begin a run and stop it after so many seconds."""
        running = asyncio.create_task((await self.open()).run())
        await asyncio.sleep(seconds)
        self.loop.stop.set()
        return await running
