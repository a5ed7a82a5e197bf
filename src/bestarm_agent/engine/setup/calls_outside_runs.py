"""Calls of a study outside a run: one to each model, and the judge's of labelled answers.

Their replies go to the reply cache of the study's store, and the study's caps hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass

from bestarm_agent.config.datasets import Label
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Candidate, Example, Reply, Request, Score
from bestarm_agent.engine.call import BudgetEndedError, ReplyCache
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.judging import JudgeCalls, JudgeUnavailableError
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.wait_reasons import Wait, WaitBoard
from bestarm_agent.engine.results.judge_check import JudgedAnswer, JudgedLabels
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.parts import Options, StudyParts
from bestarm_agent.errors import Blame, ConfigError, JudgeError, ProviderError, nearest
from bestarm_agent.providers.base import Provider
from bestarm_agent.store.store import open_store


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

    ``waiting`` is told every second what calls wait for.

    Raises:
        ConfigError: a model cannot be used, or a price that is needed is not known.
        StoreError: the store cannot be used.
    """
    prepared = await asyncio.to_thread(ReadyCandidates, parts, options.clock)
    first = {one.model: one for one in reversed(prepared.ready)}
    local = asyncio.Lock()  # models that run on this machine take turns: they may share its memory
    async with (
        _opened(parts, options, prepared.ledger, parts.providers.in_use) as replies,
        _watched(prepared.board, options.clock, waiting),
    ):

        async def called(entry: ReadyCandidate) -> FirstCall:
            async with nullcontext() if entry.model.able.rate_limited else local:
                return await _first_call(entry, parts.examples[0], prepared, replies)

        return await together(map(called, reversed([*first.values()])))


async def _first_call(
    entry: ReadyCandidate, example: Example, prepared: ReadyCandidates, replies: ReplyCache
) -> FirstCall:
    call, label = entry.call(example), entry.candidate.label
    judge = JudgeCalls(prepared.judge_client, replies, label)
    call.is_first = True
    reply, score, problem = None, None, ""
    try:
        async with call.in_turn():  # and no longer: the judge may need the place
            reply = await replies.obtain(call)
        score = await judge.score(example, reply)
    except (ProviderError, JudgeError, JudgeUnavailableError) as error:
        problem = str(error)
    except BudgetEndedError:
        problem = "the study's budget does not pay the call and its judging"
    spend = call.spend + judge.spent
    return FirstCall(
        entry.candidate, example, call.request, reply, call.found, score, problem, spend
    )


async def compare_answers(
    parts: StudyParts, options: Options, labels: Sequence[Label]
) -> JudgedLabels:
    """Let a study's judge score labelled answers, within its budget and from its reply cache.

    Raises:
        ConfigError: a label lacks the answer's text, or its example is not in the dataset.
        ProviderError: the judge's model cannot be called.
    """
    examples = {example.id: example for example in parts.examples}
    for label in labels:
        if label.answer is None:
            raise ConfigError(
                f"the label of example `{label.example}` holds no `answer` to be judged; add the "
                f"text, or check a stored run instead"
            )
        if label.example not in examples:
            known = nearest(label.example, examples)
            raise ConfigError(f"the dataset has no example `{label.example}`; {known}")
    prepared = ReadyCandidates(parts, options.clock, candidates=())
    judge_client, ledger = prepared.judge_client, prepared.ledger
    gate = asyncio.Semaphore(parts.config.limits.in_flight)
    void: list[str] = []  # why answers got no score by the judge's doing
    async with _opened(parts, options, ledger, judge_client.providers) as replies:

        async def judged(label: Label) -> JudgedAnswer | None:
            calls = JudgeCalls(judge_client, replies, label.candidate or "labelled")
            answer = label.answer or ""
            async with gate:
                try:
                    score = await calls.score(examples[label.example], Reply(answer))
                except BudgetEndedError:
                    void.append("the study's budget ended")
                    return None
                except JudgeError as error:
                    if error.blame is Blame.JUDGE:
                        void.append(str(error))
                    return None
            spend, votes = calls.spent, score.votes
            return JudgedAnswer(None, score.value, label.score, len(answer), spend, votes)

        try:
            found = await together(map(judged, labels))
        except JudgeUnavailableError as unavailable:
            raise unavailable.error from unavailable
    scored = tuple(one for one in found if one is not None)
    why = void[-1] if void else ""
    return JudgedLabels(scored, len(labels), len(void), why, parts.judge_priced)


@asynccontextmanager
async def _opened(
    parts: StudyParts, options: Options, ledger: Ledger, providers: Iterable[Provider]
) -> AsyncIterator[ReplyCache]:
    """Open a study's store and providers for calls that ``ledger`` pays."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(options.store_of(parts.study)))
        for provider in providers:
            await stack.enter_async_context(provider)
        yield ReplyCache(store, ledger, use_cache=options.use_cache)


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
