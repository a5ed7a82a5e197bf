"""Plan a study before it begins: what it can cost, and one call to each of its models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.engine.call import BudgetEndedError, ReplyCache
from bestarm_agent.engine.clock import Clock, SystemClock
from bestarm_agent.engine.judging import JudgeCalls, JudgeClient, JudgeUnavailableError
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.limits.wait_reasons import Wait, WaitBoard
from bestarm_agent.engine.pool import ReadyCandidate
from bestarm_agent.engine.record import Size, known_costs
from bestarm_agent.engine.results.confirmation import widest
from bestarm_agent.engine.setup.open_run import Options, store_of
from bestarm_agent.engine.setup.parts import StudyParts, check_prices, longest_of, prepare
from bestarm_agent.errors import JudgeError, ProviderError
from bestarm_agent.selectors.rule import pull_weights
from bestarm_agent.selectors.types import FloatArray
from bestarm_agent.stats.detectable import examples_to_part
from bestarm_agent.stats.mcnemar import examples_needed
from bestarm_agent.store.store import open_store

POWER = 0.8  # probability of finding a difference
_DISAGREE = (0.05, 0.1, 0.2, 0.4, 0.8)  # of examples on which one of two candidates is right


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of a model, as far as it is known."""

    model: str  # provider and model
    source: str | None  # where the price comes from, for people; None where it is not known
    # the most that one call for the longest example can cost, over the candidates that use the
    # model; None where that is not known
    most_usd_nanos: int | None
    role: str  # "candidate" or "judge"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a study and what running it can cost."""

    n_candidates: int  # K
    n_examples: int  # N
    pulls: int  # pairs that the budget allows, at most the whole grid
    # one attempt for every pair, spread over the candidates (evenly, or as working per dollar
    # spreads them), each at the most that it can cost; within the caps
    expected: Spend
    worst: Spend  # every pair at the most expensive candidate, every attempt used; within the caps
    sure_pulls: int  # pairs that the caps pay for even if each costs the most that it can
    prices: tuple[ModelPrice, ...]  # what is known of each model's price
    unpriced: tuple[str, ...]  # models whose price is not known, the judge's included
    budget: Budget  # the caps
    notices: tuple[str, ...]  # what the user should know before a call is paid for


def make_plan(parts: StudyParts) -> Plan:
    """Check a study as a run would, and work out what it can cost; no call is made.

    Raises:
        ConfigError: the study cannot run.
    """
    prepared = prepare(parts, parts.candidates, Ledger(parts.budget), SystemClock())
    entries, budget = prepared.ready, parts.budget
    check_prices(parts.config, entries)
    costs = tuple(entry.usd for entry in entries)
    size = Size(len(costs), len(parts.examples), budget, costs, parts.slices)
    pairs = parts.mode.pairs(size, parts.candidates)
    grid = len(entries) * len(parts.examples)
    pulls = grid if budget.pulls is None else min(grid, budget.pulls)
    bounds = np.array([_amounts(entry.bound) for entry in entries])
    most = _spend(bounds.max(axis=0), 1)
    expected = _spend(pulls * (_shares(parts, entries) @ bounds), pulls)
    worst = _spend(bounds.max(axis=0) * pulls * parts.config.limits.max_attempts, pulls)
    longest = longest_of(parts.examples)
    prices = (*_prices(entries), *_judge_prices(prepared.judge_client, longest))
    return Plan(
        n_candidates=len(entries),
        n_examples=len(parts.examples),
        pulls=pulls,
        expected=_capped(expected, budget),
        worst=_capped(worst, budget),
        sure_pulls=Ledger(budget).room_for(most, pulls),
        prices=prices,
        unpriced=tuple(sorted(price.model for price in prices if price.most_usd_nanos is None)),
        budget=budget,
        notices=(*parts.notices, *parts.mode.notices(pairs, size)),
    )


def _amounts(spend: Spend) -> tuple[int, int, int]:
    return spend.calls, spend.tokens, spend.usd_nanos


def _spend(amounts: FloatArray, pulls: int) -> Spend:
    calls, tokens, usd_nanos = (round(amount) for amount in amounts.tolist())
    return Spend(pulls=pulls, calls=calls, tokens=tokens, usd_nanos=usd_nanos)


def _capped(spend: Spend, budget: Budget) -> Spend:
    caps = budget.calls, budget.tokens, budget.usd_nanos
    calls, tokens, usd_nanos = (
        amount if cap is None else min(amount, cap)
        for amount, cap in zip(_amounts(spend), caps, strict=True)
    )
    return Spend(pulls=spend.pulls, calls=calls, tokens=tokens, usd_nanos=usd_nanos)


def _shares(parts: StudyParts, entries: Sequence[ReadyCandidate]) -> FloatArray:
    """(K,) shares of the pulls if no candidate proves better or worse; they sum to 1."""
    per_dollar = parts.config.selector.per == "dollar"
    costs = known_costs([entry.usd for entry in entries]) if per_dollar else None
    weights = np.ones(len(entries)) if costs is None else pull_weights(np.array(costs))
    shares: FloatArray = (1 / weights) / (1 / weights).sum()
    return shares


def _prices(entries: Sequence[ReadyCandidate]) -> tuple[ModelPrice, ...]:
    found: dict[str, ModelPrice] = {}
    for entry in entries:
        most = None if entry.usd is None else nanos(entry.usd)
        _note(found, ModelPrice(entry.model, entry.price_source, most, "candidate"))
    return tuple(found.values())


def _judge_prices(judge_client: JudgeClient, longest: Example) -> tuple[ModelPrice, ...]:
    found: dict[str, ModelPrice] = {}
    for judge_call in judge_client.judge.longest_calls(longest):
        call = judge_client.call(judge_call)
        able = call.client.provider.capabilities(call.request.model)
        most = call.bound().usd_nanos if able.priced else None
        _note(found, ModelPrice(str(judge_call.model), able.price_source, most, "judge"))
    return tuple(found.values())


def _note(found: dict[str, ModelPrice], price: ModelPrice) -> None:
    before = found.get(price.model)
    if before is None or (price.most_usd_nanos or 0) > (before.most_usd_nanos or 0):
        found[price.model] = price


@dataclass(frozen=True, slots=True)
class Detectable:
    """The examples that finding a difference takes, by the share on which one of two is right."""

    difference: float
    error: float  # probability of a wrong answer
    n_examples: int  # that a run chooses by
    once: Mapping[str, int]  # by a test of a number fixed in advance
    at_all_times: Mapping[str, int]  # by a run, of a rival of its leader


@dataclass(frozen=True, slots=True)
class KeptBack:
    """The examples kept back for the winner, and what they will tell."""

    examples: int
    half_width: float  # of the interval of its mean, where half of the answers are right


def examples_to_detect(parts: StudyParts, difference: float) -> Detectable:
    """Say how many common examples a difference of accuracy takes, in (0, 1)."""
    error = 1.0 - parts.config.selector.level
    n = len(parts.examples)
    shares = [share for share in (*_DISAGREE, 1.0) if share >= difference][: len(_DISAGREE)]
    return Detectable(
        difference,
        error,
        n,
        {f"{s:g}": examples_needed(difference, s, level=error, power=POWER) for s in shares},
        {
            f"{s:g}": examples_to_part(difference, s, n_examples=n, alpha=error, power=POWER)
            for s in shares
        },
    )


def kept_back(parts: StudyParts) -> KeptBack | None:
    """Say what is kept back for the winner; None where nothing is."""
    count = len(parts.kept_back)
    return KeptBack(count, widest(count, parts.config.selector.level)) if count else None


@dataclass(frozen=True, slots=True)
class FirstCall:
    """One call to a model, as far as it came."""

    candidate: Candidate
    example: Example
    request: Request  # with the rendered prompt
    reply: Reply | None  # None if there was none
    cached: bool  # whether the reply was bought before
    score: Score | None  # None if there is no reply, or it could not be scored
    problem: str  # why there is no score, or ""
    spend: Spend  # retries and judging included


async def make_first_calls(
    parts: StudyParts, options: Options, waiting: Callable[[Sequence[Wait]], None]
) -> list[FirstCall]:
    """Ask each model the first example by its first candidate, and let the judge score the reply.

    Replies go to the reply cache of the study's store, and the study's caps hold. ``waiting`` is
    told every second what calls wait for.

    Raises:
        ConfigError: a model cannot be used, or a price that is needed is not known.
        StoreError: the store cannot be used.
    """
    ledger = Ledger(parts.budget)
    prepared = await asyncio.to_thread(prepare, parts, parts.candidates, ledger, options.clock)
    check_prices(parts.config, prepared.ready)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(store_of(parts.study, options)))
        for provider in parts.providers.in_use:
            await stack.enter_async_context(provider)
        replies = ReplyCache(store, ledger, use_cache=options.use_cache)
        caller = _Caller(prepared.judge_client, replies, ledger, asyncio.Lock())
        await stack.enter_async_context(_watched(prepared.board, options.clock, waiting))
        by_model = {(id(one.client), one.model): one for one in reversed(prepared.ready)}
        firsts = reversed([*by_model.values()])
        return await together(caller.call(one, parts.examples[0]) for one in firsts)


@asynccontextmanager
async def _watched(
    board: WaitBoard, clock: Clock, waiting: Callable[[Sequence[Wait]], None]
) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            waiting(board.summary(clock.now()))
            await clock.sleep(1.0)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


@dataclass(frozen=True, slots=True)
class _Caller:
    judge_client: JudgeClient
    replies: ReplyCache
    ledger: Ledger
    local: asyncio.Lock  # models that run on this machine take turns: they may share its memory

    async def call(self, entry: ReadyCandidate, example: Example) -> FirstCall:
        if entry.client.provider.capabilities(entry.candidate.model).rate_limited:
            return await self._call(entry, example)
        async with self.local:
            return await self._call(entry, example)

    async def _call(self, entry: ReadyCandidate, example: Example) -> FirstCall:
        call, judging = entry.call(example), SharedReserve(self.ledger)
        call.is_first = True
        call.slot = Slot.outside(*entry.client.gates(entry.candidate.model))
        reply, score, problem = None, None, ""
        try:
            await call.slot.reenter()
            reply = await self.replies.obtain(call)
            call.let_go()  # the judge may need the place
            judge = JudgeCalls(self.judge_client, self.replies, judging, entry.candidate.label)
            score = await judge.score(example, reply)
        except (ProviderError, JudgeError, JudgeUnavailableError) as error:
            problem = str(error)
        except BudgetEndedError:
            problem = "the study's budget does not pay the call and its judging"
        finally:
            call.let_go()
        spend = call.spend + judging.spent
        return FirstCall(
            entry.candidate, example, call.request, reply, call.found, score, problem, spend
        )
