"""A whole run over scripted providers in virtual time, without files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.events import BudgetSet, CandidatesAdded, Event, Started
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.journal import Journal, examples_added
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judging import Panel, Seat
from bestarm_agent.prompts.rendering import compile_prompt
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.replies import Replies
from bestarm_agent.roster import Entry, Line, Roster
from bestarm_agent.runner import End, Rules, Runner
from bestarm_agent.schedule.caller import Caller, RetryPolicy
from bestarm_agent.schedule.gate import Gate
from bestarm_agent.schedule.lane import LaneRules
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.schedule.waits import WaitBoard
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.store.fold import RunState
from bestarm_agent.store.memory import MemoryStore
from bestarm_agent.testing.virtual_time import LoopClock, run_virtual

PROMPT = PromptTemplate("q", text="{{ question }}")

Answer = Callable[[Request, int], Reply | Exception]


@dataclass
class Actor:
    """A provider that asks a function what to answer, after a latency.

    Attributes:
        name: its name.
        answer: called with the request and how often it was sent before.
        latency: virtual seconds of a call.
        bound: what an attempt may cost.
        sent: all requests with the time of sending.
        most: highest number of calls at once.
    """

    name: str
    answer: Answer
    latency: Callable[[Request], float] = lambda _request: 1.0
    bound_spend: Spend = field(default_factory=lambda: Spend(calls=1, tokens=10, usd_nanos=100))
    sent: list[tuple[float, Request]] = field(default_factory=list)
    active: int = 0
    most: int = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def check(self, model: str) -> None:
        return None

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(frozenset())

    def fingerprint(self, model: str) -> str:
        return self.name

    def bound(self, request: Request) -> Spend:
        return self.bound_spend

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        return ()

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


class OwnScore:
    """Takes the score that the reply carries."""

    name = "own"
    digest = "own"
    needs_reference = False
    models: tuple[JudgeModel, ...] = ()

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        return ()

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        assert reply.score is not None
        return Score(reply.score)


class AskingJudge:
    """Asks a model what each reply is worth: its answer is the score."""

    name = "asking"
    digest = "asking"
    needs_reference = False

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
        store: MemoryStore | None = None,
        judge: Actor | None = None,
        use_cache: bool = True,
        lanes: Mapping[str, LaneRules] | None = None,
        shared: bool = False,
    ) -> None:
        self.models = models
        self.lanes = lanes or {}
        self.shared = shared
        self.examples = [Example(f"e{j}", {"question": f"q{j}"}) for j in range(n_examples)]
        self.budget = budget or Budget()
        self.rules = rules or Rules(max_failed_share=1.0)
        self.policy = policy or RetryPolicy(max_attempts=3)
        self.in_flight = in_flight
        self.provider_in_flight = provider_in_flight
        self.selector = selector
        self.store = store or MemoryStore()
        self.judge = judge
        self.use_cache = use_cache
        self.board = WaitBoard()
        self.runner: Runner
        self.judges: Panel

    def lines(self, ledger: Ledger) -> dict[str, Line]:
        actors = [*self.models.values(), *([self.judge] if self.judge else [])]
        lines: dict[str, Line] = {}
        for actor in actors:
            if actor.name not in lines:
                caller = self.caller(actor, ledger)
                lines[actor.name] = Line(actor, caller, Gate(self.provider_in_flight))
        return lines

    def caller(self, actor: Actor, ledger: Ledger) -> Caller:
        return Caller(
            actor,
            ledger,
            self.policy,
            LoopClock(),
            self.board,
            rules=lambda model: self.lanes.get(model, LaneRules()),
            shared=self.shared,
        )

    def panel(self, lines: Mapping[str, Line]) -> Panel:
        if self.judge is None:
            return Panel(OwnScore(), {})
        judge = AskingJudge(self.judge)
        return Panel(judge, {judge.models[0].key: Seat(lines[self.judge.name], "judge")})

    def entries(self, lines: Mapping[str, Line], judging: Spend) -> list[Entry]:
        return [
            Entry(
                Candidate(actor.name, model, PROMPT, label=model),
                compile_prompt(PROMPT),
                lines[actor.name],
                actor.name,
                actor.bound_spend + judging,
            )
            for model, actor in self.models.items()
        ]

    async def open(self) -> Runner:
        journal = Journal(await self.store.create("scene"), RunState())
        ledger = Ledger(self.budget)
        lines = self.lines(ledger)
        panel = self.judges = self.panel(lines)
        entries = self.entries(lines, panel.bound(self.examples[0]))
        journal.record(Started("scene", LoopClock().utc(), "0", {}, "."))
        journal.record(examples_added(self.examples))
        journal.record(CandidatesAdded(tuple(entry.candidate for entry in entries)))
        journal.record(BudgetSet(self.budget))
        roster = Roster(self.in_flight, panel.court)
        roster.add(entries)
        problem = Problem(len(entries), len(self.examples), budget=self.budget.pulls)
        self.runner = Runner(
            journal=journal,
            selector=make_selector(self.selector, problem),
            roster=roster,
            examples=self.examples,
            evaluator=Evaluator(
                Replies(self.store, ledger, use_cache=self.use_cache), panel, ledger
            ),
            ledger=ledger,
            clock=LoopClock(),
            rules=self.rules,
        )
        return self.runner

    async def events(self) -> Sequence[Event]:
        """What the log holds."""
        return await self.store.events_of("scene")

    def run(self) -> End:
        """Run to the end in virtual time."""

        async def play() -> End:
            return await (await self.open()).run()

        return run_virtual(play())
