"""Vectors of prompts from a provider's model, through the reply cache and a budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.catalog import Catalog
from bestarm_agent.config.loading import study_from
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget
from bestarm_agent.errors import ConfigError
from bestarm_agent.opening import Options
from bestarm_agent.replies import Errand, Replies
from bestarm_agent.roster import Entry
from bestarm_agent.routing.entries import text_of
from bestarm_agent.routing.records import Record
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.store.base import RunStore
from bestarm_agent.workshop import workshop_of

_PROMPT = PromptTemplate("asis", text="{{ text }}")
_FIELD = "text"


class Embedder:
    """Turns prompts into vectors; a prompt met before costs nothing.

    Args:
        entry: the model, ready to be called, its prompt ``{{ text }}``.
        replies: the reply cache, and the way to the provider.
        ledger: what a call costs is booked here.
    """

    def __init__(self, entry: Entry, replies: Replies, ledger: Ledger) -> None:
        self._entry = entry
        self._replies = replies
        self._ledger = ledger

    async def vector(self, text: str) -> tuple[float, ...]:
        """The vector of a prompt.

        Raises:
            BudgetEndedError: it does not fit into the budget.
            ProviderError: the call failed for good, or too often.
            ConfigError: what the model answers is no vector.
        """
        entry = self._entry
        request = entry.request(Example("prompt", {_FIELD: text}))
        attempts = Attempts(self._ledger.reserve(entry.line.provider.bound(request)))
        slot = Slot.outside(*entry.line.gates(entry.candidate.model))
        errand = Errand(
            entry.line, entry.fingerprint, request, slot, attempts, inherited=False, own=False
        )
        await slot.reenter()
        try:
            obtained = await self._replies.obtain(errand)
        finally:
            slot.leave()
            if attempts.reservation is not None:
                self._ledger.release(attempts.reservation)
        return _parsed(obtained.reply.text, entry.model)

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
    model: str, parts: Parts, replies: Replies, ledger: Ledger, options: Options
) -> Embedder:
    """Make a study's embedder ready; its provider joins the study's.

    Raises:
        ConfigError: there is no such provider, it lacks a key, or dollars are capped and its price
            is not known.
    """
    provider, _, name = model.partition("/")
    longest = max((text_of(example) for example in parts.examples), key=len)
    examples = [Example("longest", {_FIELD: longest})]
    workshop = workshop_of(parts, ledger, clock=options.clock, examples=examples)
    entry = workshop.entry(Candidate(provider, name, _PROMPT, label=model))
    return Embedder(entry, replies, ledger)


@asynccontextmanager
async def open_embedder(model: str, store: RunStore, options: Options) -> AsyncIterator[Embedder]:
    """Open an embedder that no study knows of, without a cap on what it spends.

    Args:
        model: "provider/model"; keys and addresses come from the environment and the catalogue.
        store: holds the reply cache.
        options: where the catalogue is.

    Raises:
        ConfigError: there is no such provider, or it lacks a key.
    """
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
    replies = Replies(store, ledger, use_cache=options.use_cache)
    embedder = embedder_of(model, parts, replies, ledger, options)
    async with AsyncExitStack() as stack:
        for provider in parts.fleet.providers:
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
