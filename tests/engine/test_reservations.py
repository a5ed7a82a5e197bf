"""The budget is a hard cap whatever is in flight, and amounts add up to the last nano-dollar."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.standing import cost_breakdown
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.runs import Actor, Scene

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
        dearest: largest bound, in nano-dollars.
        billed: what it has really billed, failed calls included.
        n_calls: calls so far.
    """

    seed: int = 0
    failing: float = 0.0
    dearest: int = 100
    billed: int = 0
    n_calls: int = 0

    def bound(self, request: Request) -> Spend:
        return Spend(calls=1, tokens=10, usd_nanos=self._bound_of(request))

    def _bound_of(self, request: Request) -> int:
        key = sum(map(ord, f"{request.model}/{request.example}"))
        return int(KeyedRandom(self.seed, self.name).at(key).integers(1, self.dearest + 1))

    async def generate(self, request: Request) -> Reply:
        self.n_calls += 1
        rng = KeyedRandom(self.seed, f"{self.name} calls").at(self.n_calls)
        cost = int(rng.integers(0, self._bound_of(request) + 1))
        await asyncio.sleep(float(rng.exponential(1.0)))
        if rng.random() < self.failing:
            kinds = MAYBE_BILLED if rng.random() < 0.5 else FREE
            self.billed += cost if kinds is MAYBE_BILLED else 0
            kind = kinds[int(rng.integers(len(kinds)))]
            raise ProviderError("scripted", kind=kind, transient=True)
        self.billed += cost
        return Reply("0.5", usage=Usage(input=3, output=2), usd_nanos=cost, score=0.5)


def vendor(name: str, seed: int, failing: float, dearest: int) -> Vendor:
    bound = Spend(calls=1, tokens=10, usd_nanos=dearest)
    return Vendor(
        name,
        lambda *_: Reply(""),
        bound_spend=bound,
        seed=seed,
        failing=failing,
        dearest=dearest,
    )


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    budget=st.integers(0, 3_000),
    in_flight=st.sampled_from([1, 2, 7, 32, 64]),
    failing=st.sampled_from([0.0, 0.2, 0.6]),
    dearest=st.tuples(st.integers(1, 400), st.integers(1, 40)),
    judged=st.booleans(),
)
@example(seed=9999, budget=100, in_flight=2, failing=0.2, dearest=(16, 24), judged=True)
def test_the_cap_holds_and_the_amounts_add_up(
    seed: int,
    budget: int,
    in_flight: int,
    failing: float,
    dearest: tuple[int, int],
    judged: bool,
) -> None:
    one, two = vendor("one", seed, failing, dearest[0]), vendor("two", seed, failing, dearest[1])
    judge = vendor("judge", seed, failing, 30) if judged else None
    scene = Scene(
        {"a": one, "b": two, "c": two},
        n_examples=12,
        in_flight=in_flight,
        budget=Budget(usd_nanos=budget),
        judge=judge,
    )
    end = scene.run()
    ledger, state = scene.loop.ledger, scene.loop.record.state
    billed = one.billed + two.billed + (judge.billed if judge else 0)
    assert billed <= ledger.spent.usd_nanos <= budget
    assert exact(ledger.outstanding) == Spend()
    assert exact(state.spend + state.pending_spend) == exact(ledger.spent)
    # the lines of the accounts add up
    lines = cost_breakdown(state, ledger.spent)
    total = sum((line.spend for line in lines), Spend())
    assert exact(total) == exact(ledger.spent)
    assert end in (End.BUDGET, End.EXHAUSTED)
    if not judged:
        assert not any(line.what == "judging" for line in lines)


def exact(spend: Spend) -> Spend:
    """The amounts that are counted exactly."""
    return replace(spend, gpu_seconds=0.0)


def test_the_lines_by_hand() -> None:
    """One candidate that fails once before each answer, and a judge."""
    candidate = Actor("p", lambda request, before: flaky(before))
    judge = Actor("j", lambda *_: Reply("1.0", usage=Usage(5, 0, 0, 1), usd_nanos=40))
    scene = Scene({"a": candidate}, n_examples=3, in_flight=1, judge=judge)
    scene.run()
    state, spent = scene.loop.record.state, scene.loop.ledger.spent
    lines = {line.what: line.spend for line in cost_breakdown(state, spent)}
    # a time-out may have been billed, so it counts with its bound of 100
    assert lines == {
        "p: answered calls of candidates": Spend(pulls=3, calls=3, tokens=15, usd_nanos=180),
        "p: attempts that brought no answer": Spend(calls=3, tokens=30, usd_nanos=300),
        "judging": Spend(calls=3, tokens=18, usd_nanos=120),
    }
    assert state.told["price"].tolist() == [60] * 3


def flaky(before: int) -> Reply | ProviderError:
    if before == 0:
        return ProviderError("scripted", kind=FailureKind.TIMEOUT, transient=True)
    return Reply("yes", usage=Usage(3, 0, 0, 2), usd_nanos=60)
