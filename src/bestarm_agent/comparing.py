"""Judge checks: of a stored run, or of labelled answers that are judged now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.archive import Archive
from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.checking import Compared, Comparison
from bestarm_agent.config.loading import LoadedStudy
from bestarm_agent.datasets.labels import Label
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.errors import Blame, ConfigError, JudgeError, nearest
from bestarm_agent.gold import compare_run
from bestarm_agent.judging import Hearing, JudgeOutOfOrderError, Panel
from bestarm_agent.opening import Options, catalog_of, store_of
from bestarm_agent.replies import Replies
from bestarm_agent.schedule.caller import BudgetEndedError
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.schedule.purse import Purse
from bestarm_agent.store.sql import SqlStore
from bestarm_agent.workshop import workshop_of


async def compare_stored(where: str | Path, run: str, labels: Sequence[Label]) -> Comparison:
    """Put the scores of a stored run beside gold scores.

    Raises:
        RunNotFoundError: there is no such run.
    """
    state = await Archive(where).state(run)
    async with await SqlStore.connect(where, create=False) as store:
        return await compare_run(store, state, labels)


async def compare_answers(
    study: LoadedStudy, options: Options, labels: Sequence[Label]
) -> Comparison:
    """Let a study's judge score labelled answers, within its budget and from its reply cache.

    Args:
        study: names the judge, the dataset and the limits.
        options: how to open it.
        labels: gold scores with the answers' texts.

    Raises:
        ConfigError: a label lacks the answer's text, or its example is not in the dataset.
        ProviderError: the judge's model cannot be called.
    """
    parts = assemble(study, catalog_of(study, options))
    examples = _examples(parts, labels)
    limits = parts.config.limits
    ledger = Ledger(parts.budget)
    panel = workshop_of(parts, ledger, clock=options.clock).panel
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await SqlStore.connect(store_of(study, options)))
        for provider in panel.providers:
            await stack.enter_async_context(provider)
        replies = Replies(store, ledger, use_cache=options.use_cache)
        return await _Asking(panel, replies, ledger).compare(examples, labels, limits.in_flight)


def _examples(parts: Parts, labels: Sequence[Label]) -> dict[str, Example]:
    """The examples by id, after checking that every label can be judged."""
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

    panel: Panel
    replies: Replies
    ledger: Ledger

    async def compare(
        self, examples: Mapping[str, Example], labels: Sequence[Label], in_flight: int
    ) -> Comparison:
        gate = asyncio.Semaphore(in_flight)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._judge(examples[label.example], label, gate))
                    for label in labels
                ]
        except ExceptionGroup as several:  # a task group wraps even a single error
            error = several.exceptions[0]
            raise (error.error if isinstance(error, JudgeOutOfOrderError) else error) from several
        pairs = [task.result() for task in tasks]
        done = tuple(pair for pair in pairs if isinstance(pair, Compared))
        void = [pair.why for pair in pairs if isinstance(pair, _Unscored) and pair.by_judge]
        return Comparison(done, len(labels), len(void), void[-1] if void else "")

    async def _judge(
        self, example: Example, label: Label, gate: asyncio.Semaphore
    ) -> Compared | _Unscored:
        """Judge one answer; else say why there is no score."""
        purse = Purse(self.ledger, None)
        hearing = Hearing(self.panel, self.replies, purse, label.candidate or "labelled")
        answer = label.answer or ""
        async with gate:
            try:
                score = await hearing.score(example, Reply(answer))
            except JudgeError as error:
                return _Unscored(str(error), by_judge=error.blame is Blame.JUDGE)
            except BudgetEndedError:
                return _Unscored("the study's budget ended", by_judge=True)
        return Compared(None, score.value, label.score, len(answer), purse.spent, score.votes)
