"""Runs that are begun, or gone on with, over their store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.live_run import LiveRun
from bestarm_agent.engine.mode import Mode
from bestarm_agent.engine.results.objectives import track_objective
from bestarm_agent.engine.run.replay import RunReplay
from bestarm_agent.engine.setup.history import learn_from_history, recorded_history
from bestarm_agent.engine.setup.open_run import (
    Options,
    first_events,
    relative,
    store_of,
)
from bestarm_agent.engine.setup.parts import CandidateFactory, StudyParts, check_prices, prepare
from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store, closing, open_store


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run whose log this process writes, with its providers started."""

    parts: StudyParts
    store: Store
    live: LiveRun
    options: Options
    notices: tuple[str, ...]  # sentences for the user, besides those of ``parts``


@asynccontextmanager
async def new_run(parts: StudyParts, options: Options) -> AsyncIterator[OpenedRun]:
    """Begin a run; nothing is written if a part of it cannot be built."""
    prepared = await _prepared(parts, parts.candidates, Ledger(parts.budget), options)
    where = store_of(parts.study, options)
    history, said = await learn_from_history(parts, where)
    model, name = (None, None) if history is None else (history.model, history.name)
    base = relative(parts.study.base_dir, where)
    events = first_events(parts, prepared.ready, base, options.clock, name)
    replay = replay_of(parts.mode, parts.study.record(), model)
    replay.feed(events)
    notices = (*parts.mode.notices(replay.pairs, replay.size), *said)
    async with open_store(where) as store, closing(await store.create(parts.config.name)) as log:
        for event in events:
            log.append(event)
        await log.flush()
        live = LiveRun(parts, prepared, replay, store, log, options, model)
        async with live.held_open():
            yield OpenedRun(parts, store, live, options, notices)


@asynccontextmanager
async def resumed_run(
    run: str, options: Options, parts_of: Callable[[RunState], StudyParts]
) -> AsyncIterator[OpenedRun]:
    """Go on with a run of the store that ``options`` names.

    Args:
        run: id, unique prefix of an id, name, or "latest".
        options: says where the store is.
        parts_of: rebuilds the run's parts; refuses one that cannot be gone on with, by raising
            ConfigError.
    """
    where = options.store
    if where is None:
        raise ValueError("options.store must say where the run is stored")
    async with (
        open_store(where, create=False) as store,
        closing(await store.open(run)) as log,
    ):
        known = fold(await store.outline_of(log.run_id))
        parts = parts_of(known)
        history = recorded_history(known, where)
        replay = replay_of(parts.mode, parts.study.record(), history)
        await replay.take_all(store.texts_of(log.run_id))
        state = replay.state
        ledger = Ledger(state.budget, state.spend + state.pending_spend)
        prepared = await _prepared(parts, state.candidates, ledger, options)
        live = LiveRun(parts, prepared, replay, store, log, options, history)
        async with live.held_open():
            yield OpenedRun(parts, store, live, options, ())


def replay_of(
    mode: Mode, config: Json, history: HistoryModel | None, *, follows: bool = True
) -> RunReplay:
    """Return what the log of a run with a recorded configuration is to be fed to."""
    track = partial(track_objective, config)
    return RunReplay(partial(mode.pairs, history=history), track, follows=follows)


async def _prepared(
    parts: StudyParts, candidates: Sequence[Candidate], ledger: Ledger, options: Options
) -> CandidateFactory:
    """Prepare candidates in a thread: digests of large weights take a while."""
    prepared = await asyncio.to_thread(prepare, parts, candidates, ledger, options.clock)
    check_prices(parts.config, prepared.ready)
    return prepared
