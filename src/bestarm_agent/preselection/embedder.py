"""Vectors of prompts from a provider's model, through the reply cache and a budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.load import study_from
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.engine.setup.candidates import prepare
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.engine.setup.study_parts import StudyParts, assemble
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.feedback import Record
from bestarm_agent.store.store import Store

_PROMPT = PromptTemplate("asis", text="{{ text }}")
_FIELD = "text"
_USUAL_FIELDS = ("prompt", "text", "question", "input")


class Embedder:
    """Turn prompts into vectors; a prompt met before costs nothing."""

    def __init__(self, entry: ReadyCandidate, replies: ReplyCache, ledger: Ledger) -> None:
        self._entry = entry
        self._replies = replies
        self._ledger = ledger

    async def vector(self, text: str) -> tuple[float, ...]:
        """Return the vector of a prompt.

        Raises:
            BudgetEndedError: it does not fit into the budget.
            ProviderError: the call failed for good, or too often.
            ConfigError: what the model answers is no vector.
        """
        entry = self._entry
        call = entry.call(Example("prompt", {_FIELD: text}))
        call.slot = Slot.outside(*entry.client.gates(entry.candidate.model))
        call.reservation = self._ledger.reserve(call.bound())
        try:
            await call.slot.reenter()
            reply = await self._replies.obtain(call)
        finally:
            call.let_go()
        return _parsed(reply.text, entry.model)

    async def described(self, records: Sequence[Record]) -> list[Record]:
        """Records with the vectors of their prompts as features; raises as ``vector`` does.

        Equal prompts are embedded once, also where they would be under way at the same time.
        """
        prompts = dict.fromkeys(record.prompt for record in records)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {prompt: group.create_task(self.vector(prompt)) for prompt in prompts}
        except ExceptionGroup as several:  # a task group wraps even a single error
            raise several.exceptions[0] from several
        return [replace(record, features=tasks[record.prompt].result()) for record in records]


def embedder_of(
    model: str, parts: StudyParts, replies: ReplyCache, ledger: Ledger, options: Options
) -> Embedder:
    """Make a study's embedder ready; its provider joins the study's.

    Raises:
        ConfigError: there is no such provider, it lacks a key, or dollars are capped and its price
            is not known.
    """
    provider, _, name = model.partition("/")
    longest = max((text_of(example) for example in parts.examples), key=len)
    examples = [Example("longest", {_FIELD: longest})]
    candidate = Candidate(provider, name, _PROMPT, label=model)
    [entry] = prepare(parts, [candidate], ledger, options.clock, examples=examples).entries
    return Embedder(entry, replies, ledger)


@asynccontextmanager
async def open_embedder(model: str, store: Store, options: Options) -> AsyncIterator[Embedder]:
    """Open an embedder that no study knows of, without a cap on what it spends."""
    study = study_from(
        {
            "name": "embeddings",
            "models": [model],
            "prompts": [{"asis": "{{ text }}"}],
            "dataset": "none",
            "scorer": "exact",
        },
        Path(),
    )
    example = Example("longest", {_FIELD: "a prompt"}, "none")
    parts = assemble(study, Catalog(Path(), options.catalog_dirs), examples=[example])
    ledger = Ledger(Budget())
    replies = ReplyCache(store, ledger, use_cache=options.use_cache)
    embedder = embedder_of(model, parts, replies, ledger, options)
    async with AsyncExitStack() as stack:
        for provider in parts.providers.in_use:
            await stack.enter_async_context(provider)
        yield embedder


def _parsed(text: str, model: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in json.loads(text))
    except (ValueError, TypeError):
        raise ConfigError(
            f"{model} answered {text[:40]!r}, which is no vector; choose a model that makes "
            f"embeddings, or say `api: embeddings` in its options"
        ) from None


def text_of(example: Example) -> str:
    """Return an example's only input, or the one that is usually the prompt.

    Raises:
        ConfigError: there are several inputs, none of them called ``prompt``, ``text``,
            ``question`` or ``input``.

    Example:
        >>> text_of(Example("1", {"id": 7, "question": "2+2?"}))
        '2+2?'
    """
    fields = example.inputs
    usual = [name for name in _USUAL_FIELDS if name in fields]
    if len(fields) == 1 or usual:
        return str(fields[usual[0]] if usual else next(iter(fields.values())))
    raise ConfigError(
        f"example {example.id!r} has the fields {', '.join(fields)}, and a router looks at one "
        f"text: call it {' or '.join(f'`{name}`' for name in _USUAL_FIELDS)}"
    )
