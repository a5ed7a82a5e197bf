"""Repeated crashes: every request that reached a server is recorded, and the caps hold."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Reply
from bestarm_agent.engine.loop import End
from bestarm_agent.store.codec import Line
from bestarm_agent.store.store import RunLog, Store
from tests.engine.test_reservations import Vendor, exact, vendor
from tests.support.runs import Actor, Scene, scored
from tests.support.virtual_time import run_virtual


class Exit(Enum):
    """How a process ends."""

    KILL = "kill"
    ABORT = "abort"
    STOP = "stop"


class SlowLog(RunLog):
    """A log whose commits take 0.2 s, whoever waits for them."""

    def __init__(self, log: RunLog) -> None:
        vars(self).update(vars(log))
        self._queued: list[Event] = []
        self._commits: list[asyncio.Task[None]] = []

    def append(self, event: Event, line: Line | None = None) -> None:
        self._queued.append(event)

    async def flush(self) -> None:
        if self._queued:
            committed, self._queued = self._queued, []
            self._commits.append(asyncio.create_task(self._commit(committed)))
        if self._commits:
            await asyncio.shield(self._commits[-1])

    async def _commit(self, events: list[Event]) -> None:
        await asyncio.sleep(0.2)
        for event in events:
            super().append(event)
        await super().flush()

    async def close(self) -> None:
        await self.flush()
        await super().close()


class SlowStore(Store):
    """A store whose commits take 0.2 s."""

    async def create(self, name: str) -> RunLog:
        return SlowLog(await super().create(name))

    async def open(self, run: str) -> RunLog:
        return SlowLog(await super().open(run))

    async def put_reply(self, key: str, reply: Reply) -> None:
        await asyncio.sleep(0.2)
        await super().put_reply(key, reply)

    def survived(self) -> SlowStore:
        """Copy what is committed."""
        copy = SlowStore.in_memory()
        contents = (one._database.engine.raw_connection() for one in (self, copy))
        here, there = (one.driver_connection for one in contents)
        assert here is not None
        assert there is not None
        here.backup(there)
        there.execute("DELETE FROM locks")  # of a process that is gone
        there.commit()
        return copy


async def opened(scene: Scene) -> Scene:
    """Begin the scene's run, or go on with it."""
    await (scene.reopen() if await scene.store.runs() else scene.open())
    return scene


async def interrupted(scene: Scene, way: Exit, seconds: float) -> SlowStore:
    """Run a scene for a while; return what the store holds after its process ended."""
    store = scene.store
    assert isinstance(store, SlowStore)
    loop = (await opened(scene)).loop
    running = asyncio.create_task(loop.run())
    await asyncio.wait([running], timeout=seconds)
    if way is Exit.STOP:
        loop.stop()
        await running
    killed = store.survived()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return killed if way is Exit.KILL else store.survived()


async def finished(scene: Scene) -> End:
    """Run a scene to its end."""
    return await (await opened(scene)).loop.run()


def test_a_pair_that_is_killed_n_times_has_n_lost_attempts() -> None:
    actor = Actor("p", lambda *_: scored(1.0), latency=lambda _: 6.0)
    store = SlowStore.in_memory()

    def scene() -> Scene:
        budget = Budget(calls=40)
        return Scene({"a": actor}, n_examples=60, in_flight=16, budget=budget, store=store)

    for _ in range(10):
        store = run_virtual(interrupted(scene(), Exit.KILL, 3.0))
    last = scene()
    assert run_virtual(finished(last)) is End.BUDGET
    assert len(actor.sent) == last.loop.ledger.spent.calls == 40


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    exits=st.lists(st.tuples(st.sampled_from(Exit), st.floats(0.0, 6.0)), max_size=8),
    calls=st.integers(0, 120),
    in_flight=st.sampled_from([1, 4, 16]),
    failing=st.sampled_from([0.0, 0.3, 0.7]),
    judged=st.booleans(),
    use_cache=st.booleans(),
)
def test_requests_are_recorded_and_capped_however_processes_end(
    seed: int,
    exits: list[tuple[Exit, float]],
    calls: int,
    in_flight: int,
    failing: float,
    judged: bool,
    use_cache: bool,
) -> None:
    one, two = vendor("one", seed, failing, 300), vendor("two", seed, failing, 40)
    judge = vendor("judge", seed, failing, 30) if judged else None
    store = SlowStore.in_memory()

    def scene() -> Scene:
        return Scene(
            {"a": one, "b": two},
            n_examples=20,
            in_flight=in_flight,
            budget=Budget(calls=calls, usd_nanos=20_000),
            store=store,
            judge=judge,
            use_cache=use_cache,
        )

    for way, seconds in exits:
        store = run_virtual(interrupted(scene(), way, seconds))
    last = scene()
    run_virtual(finished(last))
    servers: list[Vendor] = [one, two, *([judge] if judge else [])]
    spent, state = last.loop.ledger.spent, last.loop.record.state
    assert sum(server.n_calls for server in servers) <= spent.calls <= calls
    assert sum(server.billed for server in servers) <= spent.usd_nanos <= 20_000
    assert exact(state.spend + state.pending_spend) == exact(spent)
    assert exact(last.loop.ledger.outstanding) == Spend()
