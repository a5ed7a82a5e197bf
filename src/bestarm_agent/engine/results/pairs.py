"""The pairs of a run, chosen by conditions, with their texts: prompt, reply, verdicts, costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.load import environment
from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.config.study import DatasetSpec
from bestarm_agent.domain.candidate import PromptTemplate
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import RIGHT, Scored, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import usd
from bestarm_agent.errors import BestarmError, ConfigError, nearest
from bestarm_agent.selectors.types import State
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState, state_of
from bestarm_agent.store.store import Store


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Conditions that pairs must all meet."""

    candidate: str | None = None  # label or id
    example: str | None = None  # id
    wrong: bool = False  # scored below one half
    failed: bool = False  # without an answer that could be scored

    def chosen(self, state: RunState) -> list[int]:
        """Return the numbers of the asks of a run that meet the conditions.

        Raises:
            ConfigError: there is no such candidate or example.
        """
        is_chosen = np.full(len(state.asks), True)
        if self.candidate is not None:
            is_chosen &= state.asks.candidate == row_of(state, self.candidate)
        if self.example is not None:
            if self.example not in state.example_ids:
                known = nearest(self.example, state.example_ids)
                raise ConfigError(f"the run has no example {self.example!r}; {known}")
            is_chosen &= state.asks.example == state.example_ids.index(self.example)
        found: list[int] = np.flatnonzero(is_chosen).tolist()
        told = state.told
        if self.wrong:
            found = [s for s in found if (score := told.score_at(s)) is not None and score < RIGHT]
        if self.failed:
            found = [s for s in found if told.state_at(s) in (State.FAILED, State.VOID)]
        return found


def row_of(state: RunState, name: str) -> int:
    """Return the row of a candidate, by its label or id.

    Raises:
        ConfigError: there is none.
    """
    for known in (labels(state), [candidate.id for candidate in state.candidates]):
        if name in known:
            return known.index(name)
    raise ConfigError(f"the run has no candidate {name!r}; {nearest(name, labels(state))}")


def scores_of(state: RunState, row: int) -> dict[int, tuple[int, float]]:
    """Return ask number and score of every scored example of a candidate, by column."""
    found = {}
    for seq in np.flatnonzero(state.asks.candidate == row).tolist():
        score = state.told.score_at(seq)
        if score is not None:
            found[state.asks.pair(seq)[1]] = (seq, score)
    return found


PAGE = 100  # replies read at a time


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """One asked pair, with everything that was sent, received and judged."""

    seq: int  # the ask's number
    candidate: str  # its label, made unique
    example: str  # its id
    state: str  # "done", "failed" (by the candidate), "void" or "pending"
    score: float | None  # in [0, 1]; None while pending or if void
    inputs: Mapping[str, Json]  # fields of the example; empty if the dataset is gone
    prompt: str | None  # as rendered; chat messages follow each other under "[role]" lines
    target: str | None  # the acceptable answers, one per line
    reply: str | None = None  # raw text of the reply; None without one
    finish: str | None = None  # why the model stopped: "stop", "length", ...
    answer: str | None = None  # read out of the reply by the judge
    votes: tuple[Vote, ...] = ()  # verdicts of a judge with their reasoning; empty for a rule
    attempts: int | None = None  # requests sent for the candidate's call; 0 from the cache
    tokens: int | None = None  # prompt plus generated, retries and judging included
    usd: float | None = None  # dollars, retries and judging included; None if no price is known
    judge_usd: float | None = None  # the part of ``usd`` for judging
    seconds: float | None = None  # wall-clock, of the answered call
    cached: bool | None = None  # whether the reply came from the cache; None without a score
    failure: str | None = None  # kind of the failure
    message: str | None = None  # of the failure

    def flat(self) -> dict[str, Json]:
        """Return the fields with texts in place of lists and mappings, for tables."""
        values = asdict(self)
        values["inputs"] = json.dumps(self.inputs, ensure_ascii=False) if self.inputs else None
        del values["votes"]
        return {**values, "verdicts": verdicts(self.votes)}


def verdicts(votes: Sequence[Vote]) -> str | None:
    """Write verdicts with their reasoning, one per line; None without any."""
    lines = [
        f"{vote.by}: {vote.said or vote.value} ({vote.value:g}){': ' if vote.why else ''}{vote.why}"
        for vote in votes
    ]
    return "\n".join(lines) or None


@dataclass(frozen=True)
class RunTexts:
    """A run's pairs with their texts, read page by page.

    Attributes:
        store: holds the replies.
        state: the run.
        examples: the dataset, as far as it is still there.
        problem: why the dataset cannot be read, or "".
    """

    store: Store
    state: RunState
    examples: Sequence[Example]
    problem: str = ""
    _prompts: dict[PromptTemplate, CompiledPrompt] = field(default_factory=dict)

    @cached_property
    def note(self) -> str:
        """A sentence about examples that are gone, whose prompts and targets are missing."""
        gone = sum(digest not in self._by_digest for digest in self.state.example_digests)
        if not gone:
            return ""
        why = f": {self.problem}" if self.problem else ", or have changed"
        return (
            f"{gone:,} of {len(self.state.example_digests):,} examples are no longer in the "
            f"dataset{why}; their prompts and targets are left out"
        )

    async def outcomes(self, only: PairFilter | None = None) -> AsyncIterator[PairOutcome]:
        """Iterate over the pairs that meet the conditions, in the order of asking.

        Raises:
            ConfigError: there is no such candidate or example.
        """
        async for page in self.pages((only or PairFilter()).chosen(self.state)):
            for outcome in page:
                yield outcome

    async def pages(self, seqs: Sequence[int]) -> AsyncIterator[list[PairOutcome]]:
        """Iterate over the pairs of some asks; the replies of one page are in memory at a time."""
        for start in range(0, len(seqs), PAGE):
            told = [self.state.told.get(seq) for seq in seqs[start : start + PAGE]]
            # lookups of one moment share a query
            replies = await together(map(self._reply, told))
            asks = (self.state.asks[seq] for seq in seqs[start : start + PAGE])
            yield list(map(self._outcome, asks, told, replies))

    async def differing(self, a: str, b: str) -> AsyncIterator[tuple[PairOutcome, PairOutcome]]:
        """Iterate over the examples that two candidates were both scored on, and not alike.

        Raises:
            ConfigError: there is no such candidate.
        """
        one, two = (scores_of(self.state, row_of(self.state, name)) for name in (a, b))
        seqs = [
            seq
            for example, (first, score) in one.items()
            if example in two and two[example][1] != score
            for seq in (first, two[example][0])
        ]
        async for page in self.pages(seqs):  # a page holds whole pairs: its size is even
            for pair in zip(page[::2], page[1::2], strict=True):
                yield pair

    async def _reply(self, told: Told | None) -> Reply | None:
        if told is None or told.outcome.reply_key is None:
            return None
        return await self.store.get_reply(told.outcome.reply_key)

    def _outcome(self, ask: Asked, told: Told | None, reply: Reply | None) -> PairOutcome:
        example = self._by_digest.get(self.state.example_digests[ask.example])
        return PairOutcome(
            seq=ask.seq,
            candidate=self._labels[ask.candidate],
            example=self.state.example_ids[ask.example],
            state=state_of(told).name.lower(),
            score=told.score if told else None,
            inputs=example.inputs if example else {},
            prompt=self._prompt(ask, example),
            target=None if example is None else example.target,
            reply=reply.text if reply else None,
            finish=reply.finish.value if reply else None,
            **(self._costs(ask, told) if told else {}),
        )

    def _costs(self, ask: Asked, told: Told) -> dict[str, Any]:
        outcome = told.outcome
        spend, judging = outcome.spend, outcome.judge_spend
        priced = self.state.costs[ask.candidate] is not None or spend.usd_nanos > 0
        found = {
            "attempts": spend.calls - judging.calls,
            "tokens": spend.tokens,
            "usd": usd(spend.usd_nanos) if priced else None,
            "judge_usd": usd(judging.usd_nanos),
            "seconds": outcome.seconds,
        }
        if isinstance(outcome, Scored):
            votes = {"answer": outcome.answer, "votes": outcome.votes}
            return {**found, **votes, "cached": outcome.cached}
        return {**found, "failure": outcome.kind.value, "message": outcome.message}

    def _prompt(self, ask: Asked, example: Example | None) -> str | None:
        """Render the prompt again; None if that is no longer possible."""
        if example is None:
            return None
        template = self.state.candidates[ask.candidate].prompt
        try:
            if template not in self._prompts:
                self._prompts[template] = CompiledPrompt(template)
            rendered = self._prompts[template].render(example.inputs)
        except ConfigError:
            return None
        if isinstance(rendered, str):
            return rendered
        return "\n\n".join(f"[{message.role}]\n{message.content}" for message in rendered)

    @cached_property
    def _by_digest(self) -> dict[str, Example]:
        return {example.digest: example for example in self.examples}

    @cached_property
    def _labels(self) -> list[str]:
        return labels(self.state)


async def texts_of(store: Store, state: RunState, folder: Path) -> RunTexts:
    """Return the texts of a run whose store is in ``folder``; its dataset is read in a thread."""
    return RunTexts(store, state, *await asyncio.to_thread(_read_dataset, state, folder))


def _read_dataset(state: RunState, folder: Path) -> tuple[Sequence[Example], str]:
    """Read the dataset of a stored run; return why it cannot be read where that is so."""
    if state.started is None or not isinstance(state.started.config, Mapping):
        return (), "the log holds no configuration"
    section = state.started.config.get("dataset")
    try:
        spec = DatasetSpec.model_validate(section, context={"environ": environment()})
        return read_examples(spec, folder / state.started.base), ""
    except (BestarmError, ValueError) as error:  # also pydantic's, of a variable that is not set
        return (), str(error).splitlines()[0]
