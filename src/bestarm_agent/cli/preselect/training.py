"""Runs ``preselect train`` and ``preselect add``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm_agent.cli.options import StudyPlace
from bestarm_agent.config.yaml.documents import check_file
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.embedder import Embedder, open_embedder
from bestarm_agent.preselection.feedback import Record, parse_line
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.settings import (
    RoutedCandidate,
    RouterSettings,
    parse_candidates,
)
from bestarm_agent.store.store import Store, open_store

_SAVE_EVERY = 50  # records of a stream: the most that a crash can lose
_MOST_PROMPTS = 5000  # of a history, to make features from


@dataclass(frozen=True, slots=True)
class Training:
    """The order to train a router."""

    name: str  # of the router
    # what a new router chooses among; those of the history if there are none
    candidates: tuple[RoutedCandidate, ...]
    settings: RouterSettings | None  # how a new router learns, or None
    history: list[Record] | None  # records that are all there, or None for a stream on stdin


def train_router(job: Training, where: str | Path) -> dict[str, Any]:
    """Train a router and save it; return its name, version and counts of records."""
    return asyncio.run(_train(job, where))


async def _train(job: Training, where: str | Path) -> dict[str, Any]:
    async with open_store(where) as store:
        candidates = job.candidates
        if not candidates and job.history and not await Router.exists(job.name, store):
            names = dict.fromkeys(name for record in job.history for name in record.shown)
            candidates = tuple(RoutedCandidate(name) for name in names)
        async with (
            Router.open(job.name, store, candidates, job.settings) as router,
            embedder_of(router, store) as embedder,
        ):
            learnt, ignored = await _learn(router, embedder, job.history)
            return {
                "router": job.name,
                "version": await router.save(),
                "learnt": learnt - router.n_waiting,
                "uninformative": ignored,
                "waiting": router.n_waiting,
            }


async def _learn(
    router: Router, embedder: Embedder | None, history: list[Record] | None
) -> tuple[int, int]:
    count = {True: 0, False: 0}
    if history and embedder is not None:
        history = await embedder.described(history)
    if history and not router.ready:
        router.prepare([(r.prompt, r.features) for r in history[:_MOST_PROMPTS]])
    records = _stream() if history is None else iter(history)
    for number, record in enumerate(records, start=1):
        if history is None and embedder is not None:
            [record] = await embedder.described([record])
        count[router.learn(record)] += 1
        if history is None and number % _SAVE_EVERY == 0:
            await router.save()
    return count[True], count[False]


def add_candidates(
    name: str, where: str | Path, joining: tuple[RoutedCandidate, ...]
) -> tuple[int, int]:
    """Add candidates to a router; return its new version and the number of its candidates."""

    async def add() -> tuple[int, int]:
        async with Router.open(name, where) as router:
            router.add_candidates(joining)
            return await router.save(), len(router.candidates)

    return asyncio.run(add())


@asynccontextmanager
async def embedder_of(router: Router, store: Store) -> AsyncIterator[Embedder | None]:
    """Open the model that makes vectors of a router's prompts; None where it has none."""
    if not router.settings.embedder:
        yield None
        return
    options = StudyPlace().options()
    async with open_embedder(router.settings.embedder, store, options) as embedder:
        yield embedder


def read_candidates(path: Path) -> tuple[RoutedCandidate, ...]:
    """Read candidates from a JSON file; raises ConfigError if that fails."""
    check_file(path, "candidates file")
    try:
        return parse_candidates(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error


def _stream() -> Iterator[Record]:
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            yield parse_line(line, f"stdin, line {number}")
