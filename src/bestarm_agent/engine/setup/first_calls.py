"""One call to each model of a study, judged: what a run would do first, before it begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.judge_calls import JudgeCalls, JudgeClient, JudgeUnavailableError
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import BudgetEndedError
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.limits.wait_reasons import Wait, WaitBoard
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.engine.setup.candidates import check_prices, prepare
from bestarm_agent.engine.setup.open_run import Options, store_of
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import JudgeError, ProviderError
from bestarm_agent.store.registry import open_store


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
    check_prices(parts.config, prepared.entries)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(store_of(parts.study, options)))
        for provider in parts.providers.in_use:
            await stack.enter_async_context(provider)
        replies = ReplyCache(store, ledger, use_cache=options.use_cache)
        caller = _Caller(prepared.factory.judge_client, replies, ledger, asyncio.Lock())
        await stack.enter_async_context(_watched(prepared.board, options.clock, waiting))
        by_model = {(id(one.client), one.model): one for one in reversed(prepared.entries)}
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
