"""The pairs of a run, chosen by conditions, with their texts: prompt, reply, verdicts, costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bestarm_agent.config.attachments import MOST_BYTES, brief
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.config.load import environment
from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.events import Told
from bestarm_agent.domain.spend import usd
from bestarm_agent.domain.values import RIGHT, Example, PromptTemplate, Reply
from bestarm_agent.errors import BestarmError, ConfigError, nearest
from bestarm_agent.selectors.types import State
from bestarm_agent.store.export import PairOutcome, labels, pairs_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Conditions that pairs must all meet."""

    candidate: str | None = None  # label or id
    example: str | None = None  # id
    wrong: bool = False  # scored below one half
    failed: bool = False  # without an answer that could be scored
    slice: str | None = None  # of the examples, such as "language=de"

    def chosen(self, state: RunState) -> list[int]:
        """Return the numbers of the asks of a run that meet the conditions.

        Raises:
            ConfigError: there is no such candidate, example or slice.
        """
        is_chosen = np.full(state.n_asked, True)
        if self.candidate is not None:
            is_chosen &= state.asks["candidate"] == row_of(state, self.candidate)
        if self.example is not None:
            column = _place("example", self.example, state.example_ids)
            is_chosen &= state.asks["example"] == column
        if self.slice is not None:
            part = state.slices[_place("slice", self.slice, [part.name for part in state.slices])]
            is_chosen &= np.isin(state.asks["example"], part.examples)
        if self.wrong:
            is_chosen &= state.told["score"] < RIGHT
        if self.failed:
            is_chosen &= state.told["failure"] >= 0
        return [*np.flatnonzero(is_chosen).tolist()]


def row_of(state: RunState, name: str) -> int:
    """Return the row of a candidate, by its label or id; raise ConfigError if there is none."""
    rows = {candidate.id: row for row, candidate in enumerate(state.candidates)}
    return rows[name] if name in rows else _place("candidate", name, labels(state))


def _place(what: str, name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise ConfigError(f"the run has no {what} {name!r}; {nearest(name, names)}")
    return names.index(name)


def unit_of(state: RunState) -> str:
    """Return what a run's examples are counted in for new ones: "example", or "cluster"."""
    dataset = state.started.config.get("dataset")
    clustered = isinstance(dataset, Mapping) and dataset.get("cluster") is not None
    return "cluster" if clustered else "example"


def scores_of(state: RunState, row: int) -> dict[int, tuple[int, float]]:
    """Return ask number and score of every told pair of a candidate, by column; NaN where void."""
    is_told = state.told["state"] != State.PENDING
    seqs = np.flatnonzero((state.asks["candidate"] == row) & is_told)
    values = seqs.tolist(), state.told["score"][seqs].tolist()
    columns = state.asks["example"][seqs].tolist()
    return dict(zip(columns, zip(*values, strict=True), strict=True))


PAGE = 100  # replies read at a time


@dataclass(frozen=True)
class RunTexts:
    """A run's pairs with their texts, read page by page.

    Attributes:
        store: holds the log and the replies.
        run_id: the run's id.
        state: the run.
        examples: the dataset, as far as it is still there.
        folder: the dataset's, where images and files are.
        problem: why the dataset cannot be read, or "".
    """

    store: Store
    run_id: str
    state: RunState
    examples: Sequence[Example]
    folder: Path = Path()
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
            ConfigError: there is no such candidate, example or slice.
        """
        async for page in self.pages((only or PairFilter()).chosen(self.state)):
            for outcome in page:
                yield outcome

    async def pages(self, seqs: Sequence[int]) -> AsyncIterator[list[PairOutcome]]:
        """Iterate over the pairs of some asks; the replies of one page are in memory at a time."""
        for start in range(0, len(seqs), PAGE):
            page = list(seqs[start : start + PAGE])
            told = await self.told(page)
            # lookups of one moment share a query
            replies = await together(self._reply(told.get(seq)) for seq in page)
            texts = [
                self._texts(seq, told.get(seq), reply)
                for seq, reply in zip(page, replies, strict=True)
            ]
            yield list(pairs_of(self.state, page, texts))

    async def told(self, seqs: Sequence[int]) -> dict[int, Told]:
        """Read the outcomes of some asks back, by number; pending ones have none."""
        events = self.state.told["event"][list(seqs)]
        ended = [(seq, n) for seq, n in zip(seqs, events.tolist(), strict=True) if n >= 0]
        outcomes = await self.store.told(self.run_id, [n for _, n in ended])
        return {told.seq: told for told in outcomes}

    async def _reply(self, told: Told | None) -> Reply | None:
        if told is None or told.outcome.reply_key is None:
            return None
        return await self.store.get_reply(told.outcome.reply_key)

    def _texts(self, seq: int, told: Told | None, reply: Reply | None) -> dict[str, Any]:
        """Return what is no number of a pair, and its costs in parts."""
        row, column, *_ = self.state.asks[seq].tolist()
        example = self._by_digest.get(self.state.example_digests[column])
        texts: dict[str, Any] = {
            "inputs": {k: brief(v) for k, v in example.inputs.items()} if example else {},
            "prompt": self._prompt(row, example),
            "target": None if example is None else example.target,
        }
        if reply is not None:
            texts |= {"reply": reply.said, "finish": reply.finish.value}
            texts["reasoning"] = reply.reasoning or None
        if told is not None:
            outcome, judging = told.outcome, told.outcome.judge_spend
            texts |= {
                "attempts": outcome.spend.calls - judging.calls,
                "judge_usd": usd(judging.usd_nanos),
            }
            if outcome.score is not None:
                score, usage = outcome.score, outcome.usage
                texts |= {"answer": score.answer, "votes": score.votes}
                texts |= {"input_tokens": usage.input, "output_tokens": usage.output}
        return texts

    def pictures(self, seq: int, most: int = MOST_BYTES) -> list[str]:
        """Return the images in the prompt of an ask, of ``most`` bytes each, as data URLs."""
        row, column, *_ = self.state.asks[seq].tolist()
        example = self._by_digest.get(self.state.example_digests[column])
        try:
            files = self._compiled(row).attachments(example.inputs) if example else []
            images = [file for file in files if file.is_image and 0 < (file.size or 0) <= most]
            return [file.read() for file in images]
        except ConfigError:  # changed, or gone: the prompt says so
            return []

    def _compiled(self, row: int) -> CompiledPrompt:
        template = self.state.candidates[row].prompt
        if template not in self._prompts:
            dataset = self.state.started.config.get("dataset")
            links = isinstance(dataset, Mapping) and dataset.get("links") is True
            self._prompts[template] = CompiledPrompt(template, folder=self.folder, links=links)
        return self._prompts[template]

    def _prompt(self, row: int, example: Example | None) -> str | None:
        """Render the prompt again; None if that is no longer possible."""
        if example is None:
            return None
        try:
            rendered = self._compiled(row).render(example.inputs, read=False)
        except ConfigError:
            return None
        if isinstance(rendered, str):
            return rendered
        return "\n\n".join(f"[{message.role}]\n{message.text}" for message in rendered)

    @cached_property
    def _by_digest(self) -> dict[str, Example]:
        return {example.digest: example for example in self.examples}


async def texts_of(store: Store, run_id: str, state: RunState, folder: Path) -> RunTexts:
    """Return the texts of a run whose store is in ``folder``; its dataset is read in a thread."""
    return RunTexts(store, run_id, state, *await asyncio.to_thread(_read_dataset, state, folder))


def _read_dataset(state: RunState, folder: Path) -> tuple[Sequence[Example], Path, str]:
    """Read the dataset of a stored run; return why it cannot be read where that is so."""
    try:
        # Examples are found again by digests of their content: whatever was edited since does not
        # match, and is left out rather than shown with answers to another text.
        section = state.started.config.get("dataset")
        spec = DatasetSpec.model_validate(section, context={"environ": environment()})
        base = folder / state.started.base
        return read_examples(spec, base), spec.folder(base), ""
    except (BestarmError, ValueError) as error:  # also pydantic's, of a variable that is not set
        return (), folder, str(error).splitlines()[0]
