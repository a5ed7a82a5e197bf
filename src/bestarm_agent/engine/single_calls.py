"""Calls that belong to no run: the first ones of ``try``, and a judge's of labelled answers.

They go the way of all calls, within the budget, the limits and the reply cache, and no log has
them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass

from bestarm_agent.config.labels import Label
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Candidate, Example, Reply, Request, Score
from bestarm_agent.engine.call import BudgetEndedError
from bestarm_agent.engine.evaluate import Evaluation, Evaluator, ReadyCandidate
from bestarm_agent.engine.judging import JudgeCalls
from bestarm_agent.engine.limits.gates import Gate, Slot
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.engine.results.judge_check import JudgedAnswer, JudgedLabels
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError, nearest
from bestarm_agent.plugins import in_thread
from bestarm_agent.providers.base import Provider
from bestarm_agent.store.store import Store, open_store

_MOST_CALLS = 60  # first calls; where there are more models and prompts, each of them once


@dataclass(frozen=True, slots=True)
class FirstCall:
    """One call to a model, as far as it came."""

    candidate: Candidate
    example: Example
    request: Request  # with the rendered prompt
    reply: Reply | None  # None if there was none
    cached: bool  # whether the reply was bought before
    score: Score | None  # None if there is no reply, or it could not be scored
    failure: FailureKind | None  # why it could not
    problem: str  # why there is no score, or ""
    spend: Spend  # retries and judging included


async def make_first_calls(parts: StudyParts, options: Options) -> list[FirstCall]:
    """Ask each model the first example with each prompt, and let the judge score the replies.

    Where these are more than ``_MOST_CALLS``, only as many as cover each model and each prompt.

    Raises:
        ConfigError: a model cannot be used, or a price that is needed is not known.
        StoreError: the store cannot be used.
    """
    prepared = await in_thread(ReadyCandidates, parts, options.clock)
    local = asyncio.Lock()  # models that run on this machine take turns: they may share its memory
    gate = Gate(parts.config.limits.in_flight)
    async with _opened(parts, options, prepared, parts.providers.in_use) as (store, replies):
        evaluator = Evaluator(replies, prepared.judge_client)

        async def called(candidate: ReadyCandidate) -> FirstCall:
            pair, outcome = Evaluation(candidate, parts.examples[0]), None
            call = pair.call
            # As a first call: a model that lets its time-out pass is told of at once, without
            # retries.
            call.is_first, call.slot = True, Slot(candidate.model.client.gate, gate, inside=False)
            async with nullcontext() if candidate.model.able.rate_limited else local:
                if pair.reserve(call.bound(), evaluator.judge_client.bound(pair.example)):
                    outcome = await evaluator.evaluate(pair)
            # Shown even if it could not be scored: then the reply is what people need to see.
            is_answered = call.found or (call.tries.n and call.tries.failure is None)
            reply = await store.get_reply(call.key) if is_answered else None
            failure = None if outcome is None else outcome.failure
            problem = "" if failure is None else failure.message
            if outcome is None:
                unpaid = "the study's budget does not pay the call and its judging"
                problem = str(pair.obstacle or unpaid)
            return FirstCall(
                candidate.candidate,
                pair.example,
                call.request,
                reply,
                call.found,
                None if outcome is None else outcome.score,
                None if failure is None else failure.kind,
                problem,
                pair.spend,
            )

        return await together(map(called, _each_once(prepared.ready)))


def _each_once(ready: Sequence[ReadyCandidate]) -> list[ReadyCandidate]:
    """Return the first candidate of each model and prompt, or fewer that cover all of both."""
    # reversed twice: the first candidate of a model and prompt is the last to be put in
    first = {(each.model, each.candidate.prompt): each for each in reversed(ready)}
    chosen = list(reversed(first.values()))
    if len(chosen) <= _MOST_CALLS:
        return chosen
    covered: set[object] = set()
    fewer = []
    for candidate in chosen:
        if not covered >= {candidate.model, candidate.candidate.prompt}:
            fewer.append(candidate)
        covered |= {candidate.model, candidate.candidate.prompt}
    return fewer


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
    judge_client = prepared.judge_client
    gate = asyncio.Semaphore(parts.config.limits.in_flight)
    problems: list[str] = []  # why answers got no score, where the judge or the budget is to blame
    async with _opened(parts, options, prepared, judge_client.providers) as (_, replies):

        async def judged(label: Label) -> JudgedAnswer | None:
            calls = JudgeCalls(judge_client, replies, label.candidate or "labelled")
            answer = label.answer or ""
            async with gate:
                try:
                    score = await calls.score(examples[label.example], Reply(answer))
                except BudgetEndedError:
                    problems.append("the study's budget ended")
                    return None
                except JudgeError as error:
                    if error.blame is Blame.JUDGE:
                        problems.append(str(error))
                    return None
            return JudgedAnswer(score.value, label.score, len(answer), calls.spent)

        answers = await together(map(judged, labels))
    scored = tuple(answer for answer in answers if answer is not None)
    why = problems[-1] if problems else ""
    priced, by_models = parts.judge_priced, bool(judge_client.providers)
    counts = len(labels), len(problems), len(labels) - len(scored) - len(problems)
    return JudgedLabels(scored, *counts, why, priced, by_models)


@asynccontextmanager
async def _opened(
    parts: StudyParts, options: Options, candidates: ReadyCandidates, providers: Iterable[Provider]
) -> AsyncIterator[tuple[Store, ReplyCache]]:
    """Open a study's store and providers for calls that ``candidates`` make."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(options.store_of(parts.study)))
        for provider in providers:
            await stack.enter_async_context(provider)
        # a name that nobody else has: such calls neither find replies of others nor leave them any
        own = "" if options.use_cache else secrets.token_hex(16)
        replies = ReplyCache(store, candidates.ledger, own=own)
        await replies.recall(candidates.models)
        yield store, replies
