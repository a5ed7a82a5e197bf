"""The budget is a hard cap whatever is in flight and however often processes end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.from_log import cost_breakdown
from bestarm_agent.errors import FailureKind
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.store.codec import Line
from bestarm_agent.store.store import RunLog, Store
from tests.support.runs import Actor, Scene, always, failing
from tests.support.virtual_time import run_virtual

MAYBE_BILLED = (FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.MALFORMED_REPLY)
FREE = (
    FailureKind.OVERLOADED,
    FailureKind.SERVER,
    FailureKind.RATE_LIMITED,
    FailureKind.UNREACHABLE,
)


@dataclass
class Vendor(Actor):
    """Bills at random up to a bound that differs from request to request, and fails at random.

    Attributes:
        seed: of all that is random.
        failing: share of calls that fail.
        billed: nano-dollars that it has really billed, failed calls included.
        n_calls: calls so far.
    """

    seed: int = 0
    failing: float = 0.0
    billed: int = 0
    n_calls: int = 0

    def bound(self, request: Request) -> Spend:
        return replace(self.bound_spend, usd_nanos=self._bound_of(request))

    def _bound_of(self, request: Request) -> int:
        # a judge's longest call about an example is bounded by the same amount as each
        example = request.example.rpartition("/")[2]
        key = sum(map(ord, f"{request.model}/{example}"))
        rng = KeyedRandom(self.seed, self.name).at(key)
        return int(rng.integers(1, self.bound_spend.usd_nanos + 1))

    async def generate(self, request: Request) -> Reply:
        self.n_calls += 1
        rng = KeyedRandom(self.seed, f"{self.name} calls").at(self.n_calls)
        cost = int(rng.integers(0, self._bound_of(request) + 1))
        await asyncio.sleep(float(rng.exponential(1.0)))
        if rng.random() < self.failing:
            kinds = MAYBE_BILLED if rng.random() < 0.5 else FREE
            self.billed += cost if kinds is MAYBE_BILLED else 0
            raise failing(kinds[int(rng.integers(len(kinds)))])
        self.billed += cost
        return Reply("0.5", usage=Usage(input=3, output=2), usd_nanos=cost, score=0.5)


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

    async def put_reply(self, key: str, reply: Reply, payload: str | None = None) -> None:
        await asyncio.sleep(0.2)
        await super().put_reply(key, reply, payload)

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
        loop.stop.set()
        await running
    killed = store.survived()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return killed if way is Exit.KILL else store.survived()


async def finished(scene: Scene) -> End:
    """Run a scene to its end."""
    return await (await opened(scene)).loop.run()


def exact(spend: Spend) -> Spend:
    """The amounts that are counted exactly."""
    return replace(spend, gpu_seconds=0.0)


def test_a_pair_that_is_killed_n_times_has_n_lost_attempts() -> None:
    actor = Actor("p", always(1.0), latency=lambda _: 6.0)
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
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    exits=st.lists(st.tuples(st.sampled_from(Exit), st.floats(0.0, 6.0)), max_size=5),
    cap=st.builds(Budget, usd_nanos=st.integers(0, 3_000))
    | st.builds(Budget, calls=st.integers(0, 120), usd_nanos=st.just(20_000)),
    in_flight=st.sampled_from([1, 2, 7, 16, 64]),
    failing=st.sampled_from([0.0, 0.3, 0.7]),
    dearest=st.tuples(st.integers(1, 400), st.integers(1, 40)),
    judged=st.booleans(),
    use_cache=st.booleans(),
)
@example(
    *(9999, [], Budget(usd_nanos=100), 2, 0.2, (16, 24), True, True)
)  # a retry that was paid twice
def test_the_caps_hold_and_the_amounts_add_up_however_processes_end(
    seed: int,
    exits: list[tuple[Exit, float]],
    cap: Budget,
    in_flight: int,
    failing: float,
    dearest: tuple[int, int],
    judged: bool,
    use_cache: bool,
) -> None:
    one, two, judge = (
        Vendor(name, lambda *_: Reply(""), bound_spend=bound, seed=seed, failing=failing)
        for name, most in (("one", dearest[0]), ("two", dearest[1]), ("judge", 30))
        for bound in [Spend(calls=1, tokens=10, usd_nanos=most)]
    )
    store = SlowStore.in_memory()

    def scene() -> Scene:
        return Scene(
            {"a": one, "b": two, "c": two},
            n_examples=12,
            in_flight=in_flight,
            budget=cap,
            store=store,
            judge=judge if judged else None,
            use_cache=use_cache,
        )

    for way, seconds in exits:
        store = run_virtual(interrupted(scene(), way, seconds))
    last = scene()
    end = run_virtual(finished(last))
    servers = (one, two, judge)
    ledger, state = last.loop.ledger, last.loop.record.state
    spent = ledger.spent
    assert sum(server.n_calls for server in servers) <= spent.calls
    billed = sum(server.billed for server in servers)
    assert cap.calls is None or spent.calls <= cap.calls
    assert cap.usd_nanos is not None
    # after a kill a reply counts with its bound until it is found again, so more may be booked
    is_killed = Exit.KILL in dict(exits)
    assert billed <= spent.usd_nanos <= (inf if is_killed else cap.usd_nanos)
    assert billed <= cap.usd_nanos
    assert exact(state.spend + state.pending_spend) == exact(spent)
    assert exact(ledger.outstanding) == Spend()
    lines = cost_breakdown(state, spent)
    assert exact(sum((line.spend for line in lines), Spend())) == exact(spent)
    assert judged or not any(line.what == "judging" for line in lines)
    assert end in (End.BUDGET, End.EXHAUSTED)


def test_the_lines_of_the_accounts_by_hand() -> None:
    """One candidate that fails once before each answer, and a judge."""

    def flaky(_request: Request, before: int) -> Reply | Exception:
        yes = Reply("yes", usage=Usage(3, 0, 0, 2), usd_nanos=60)
        return yes if before else failing(FailureKind.TIMEOUT)

    judge = Actor("j", lambda *_: Reply("1.0", usage=Usage(5, 0, 0, 1), usd_nanos=40))
    scene = Scene({"a": Actor("p", flaky)}, n_examples=3, in_flight=1, judge=judge)
    scene.run()
    state, spent = scene.loop.record.state, scene.loop.ledger.spent
    lines = {line.what: line.spend for line in cost_breakdown(state, spent)}
    # a time-out may have been billed, so it counts with its bound of 100
    assert lines == {
        "p: answered calls of candidates": Spend(answers=3, calls=3, tokens=15, usd_nanos=180),
        "p: attempts that brought no answer": Spend(calls=3, tokens=30, usd_nanos=300),
        "judging": Spend(calls=3, tokens=18, usd_nanos=120),
    }
    assert state.told["price"].tolist() == [60] * 3
