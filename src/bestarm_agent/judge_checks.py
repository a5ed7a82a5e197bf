"""Judge checks: of a stored run, or of labelled answers that are judged now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bestarm_agent.certification.mode import open_mode
from bestarm_agent.config.datasets.gold_labels import Label
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.engine.calls.judge_calls import JudgeCalls, JudgeClient, JudgeUnavailableError
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import BudgetEndedError
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.engine.results.judge_agreement import (
    Compared,
    Comparison,
    compare_run,
    run_labels,
)
from bestarm_agent.engine.setup.candidates import prepare
from bestarm_agent.engine.setup.open_run import Options, catalog_of, store_of
from bestarm_agent.engine.setup.study_parts import StudyParts, assemble
from bestarm_agent.errors import Blame, ConfigError, JudgeError, nearest
from bestarm_agent.store.run_state import folded
from bestarm_agent.store.store import open_store


async def compare_stored(
    where: str | Path, run: str, labels: Sequence[Label] | None = None
) -> Comparison:
    """Put the scores of a stored run with gold scores; None: those that the run has.

    Raises:
        ConfigError: the run has none.
    """
    async with open_store(where, create=False) as store:
        run_id = (await store.find(run)).id
        state = await folded(store, run_id)
        gold = labels
        if gold is None:
            gold = () if state.started is None else run_labels(state.started, where, run_id)
        if not gold:
            raise ConfigError(
                f"run {run_id} has no labels; give some in `bestarm-agent view`, or name a file"
            )
        return await compare_run(store, state, gold)


async def compare_answers(
    study: LoadedStudy, options: Options, labels: Sequence[Label]
) -> Comparison:
    """Let a study's judge score labelled answers, within its budget and from its reply cache.

    Raises:
        ConfigError: a label lacks the answer's text, or its example is not in the dataset.
        ProviderError: the judge's model cannot be called.
    """
    parts = assemble(study, catalog_of(study, options), open_mode)
    examples = _examples(parts, labels)
    limits = parts.config.limits
    ledger = Ledger(parts.budget)
    judge_client = prepare(parts, (), ledger, options.clock).factory.judge_client
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(store_of(study, options)))
        for provider in judge_client.providers:
            await stack.enter_async_context(provider)
        replies = ReplyCache(store, ledger, use_cache=options.use_cache)
        asking = _Asking(judge_client, replies, ledger)
        found = await asking.compare(examples, labels, limits.in_flight)
        return replace(found, priced=parts.judge_priced)


def _examples(parts: StudyParts, labels: Sequence[Label]) -> dict[str, Example]:
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
    return examples


@dataclass(frozen=True, slots=True)
class _Unscored:
    """An answer that got no score: by the judge's doing, or the answer's own."""

    why: str
    by_judge: bool


@dataclass(frozen=True, slots=True)
class _Asking:
    """Labelled answers before a judge."""

    judge_client: JudgeClient
    replies: ReplyCache
    ledger: Ledger

    async def compare(
        self, examples: Mapping[str, Example], labels: Sequence[Label], in_flight: int
    ) -> Comparison:
        gate = asyncio.Semaphore(in_flight)
        try:
            pairs = await together(self._judge(examples[one.example], one, gate) for one in labels)
        except JudgeUnavailableError as unavailable:
            raise unavailable.error from unavailable
        done = tuple(pair for pair in pairs if isinstance(pair, Compared))
        void = [pair.why for pair in pairs if isinstance(pair, _Unscored) and pair.by_judge]
        return Comparison(done, len(labels), len(void), void[-1] if void else "")

    async def _judge(
        self, example: Example, label: Label, gate: asyncio.Semaphore
    ) -> Compared | _Unscored:
        reserve = SharedReserve(self.ledger)
        judge_calls = JudgeCalls(
            self.judge_client, self.replies, reserve, label.candidate or "labelled"
        )
        answer = label.answer or ""
        async with gate:
            try:
                score = await judge_calls.score(example, Reply(answer))
            except JudgeError as error:
                return _Unscored(str(error), by_judge=error.blame is Blame.JUDGE)
            except BudgetEndedError:
                return _Unscored("the study's budget ended", by_judge=True)
        return Compared(None, score.value, label.score, len(answer), reserve.spent, score.votes)
