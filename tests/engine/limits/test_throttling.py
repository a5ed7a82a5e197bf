"""Rate limits in a run: places go to others, pauses are shared, fatal errors stop one provider."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Allowance, Budget, RateLimits, Resource, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import RetryPolicy
from bestarm_agent.engine.limits.model_limits import LimiterRules
from bestarm_agent.engine.loop import End
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State
from tests.support.replay_check import unexplained_asks
from tests.support.runs import Actor, Answer, Scene, scored
from tests.support.virtual_time import run_virtual


def always(value: float) -> Answer:
    return lambda _request, _before: scored(value)


def refusal(seconds: float | None) -> ProviderError:
    return ProviderError(
        "slow down", kind=FailureKind.RATE_LIMITED, transient=True, retry_after=seconds
    )


def per_minute(requests: float) -> LimiterRules:
    return LimiterRules(RateLimits({Resource.REQUESTS: requests}))


def done(scene: Scene) -> list[int]:
    return [int(n) for n in scene.loop.record.pairs.table.count(State.DONE)]


def times(actor: Actor, model: str | None = None) -> list[float]:
    return [at for at, request in actor.sent if model in (None, request.model)]


def test_a_limited_model_leaves_its_places_to_others_and_is_never_idle() -> None:
    slow, quick = Actor("p", always(0.9)), Actor("q", always(0.1))
    scene = Scene(
        {"slow": slow, "quick": quick},
        in_flight=4,
        n_examples=40,
        limiters={"slow": per_minute(60)},
    )
    assert scene.run() is End.EXHAUSTED
    assert done(scene) == [40, 40]
    gaps = [b - a for a, b in zip(times(slow)[1:], times(slow)[2:], strict=False)]
    assert min(gaps) > 1.0 - 1e-9, "60.6 s for 60 calls, and those in between waited for a place"
    assert max(gaps[-20:]) < 1.03, "the loop is woken when the next one may go"
    assert max(times(quick)) < 20.0, "the others did not wait for it"
    assert slow.most <= 2, "no call of it waits in anybody's place"


def test_a_limit_of_one_model_leaves_the_providers_other_models_alone() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor, "b": actor}, in_flight=4, limiters={"a": per_minute(6)})
    scene.run()
    assert max(times(actor, "b")) < 10.0
    assert max(times(actor, "a")) > 180.0


def test_models_may_share_the_limits_of_their_account() -> None:
    actor = Actor("p", always(0.5))
    rules = {"a": per_minute(60), "b": per_minute(60)}
    scene = Scene({"a": actor, "b": actor}, n_examples=10, limiters=rules, shared=True)
    scene.run()
    both = times(actor)
    assert (both[-1] - both[0]) / (len(both) - 1) == pytest.approx(1.01, abs=0.02)


def test_a_missing_model_of_a_shared_account_leaves_the_others_alone() -> None:
    gone = ProviderError("no such model", kind=FailureKind.MODEL_NOT_FOUND, fatal=True)
    actor = Actor("p", lambda r, _: gone if r.model == "gone" else scored(0.5))
    scene = Scene({"gone": actor, "there": actor}, shared=True)
    scene.run()
    assert done(scene) == [0, 20]
    assert set(scene.loop.pool.broken()) == {"gone"}


def test_a_run_waits_for_the_only_model_there_is() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor}, n_examples=5, limiters={"a": per_minute(6)})
    assert scene.run() is End.EXHAUSTED
    assert times(actor) == pytest.approx([0.0, 10.1, 20.2, 30.3, 40.4], abs=0.03)


def test_a_refusal_of_one_call_pauses_all_of_the_model_and_none_of_the_others() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        return refusal(30.0) if request.example == "e2" and before == 0 else scored(0.5)

    limited, free = Actor("p", answer), Actor("q", always(0.5))
    scene = Scene(
        {"limited": limited, "free": free},
        in_flight=2,
        selector="uniform",
        limiters={"limited": LimiterRules(), "free": LimiterRules()},
    )
    assert scene.run() is End.EXHAUSTED
    refused = next(at for at, request in limited.sent if request.example == "e2") + 1.0
    inside = [at for at in times(limited) if refused < at < refused + 30.0]
    assert inside == []
    assert max(times(free)) < refused + 30.0, "it had all places meanwhile"
    assert done(scene) == [20, 20]


def test_asks_under_a_limit_can_be_derived_again() -> None:
    limited, free = Actor("p", always(0.6)), Actor("q", always(0.4))
    scene = Scene({"a": limited, "b": free, "c": free}, limiters={"a": per_minute(60)})
    scene.run()
    events = run_virtual(scene.events())
    excluded = {event.excluded for event in events if isinstance(event, Asked)}
    assert excluded >= {(), ((0, 0),)}
    assert (
        unexplained_asks(events, make_selector("ucb-e", Problem(3, 20, stop_when_separated=False)))
        == []
    )


def asks_of(budget: Budget, limiters: dict[str, LimiterRules]) -> list[Asked]:
    """What UCB-E asks, one call at a time, of two models of which one may be limited."""
    good, bad = Actor("p", always(0.9)), Actor("q", always(0.1))
    scene = Scene(
        {"good": good, "bad": bad}, in_flight=1, n_examples=40, limiters=limiters, budget=budget
    )
    scene.run()
    return [event for event in run_virtual(scene.events()) if isinstance(event, Asked)]


@pytest.mark.parametrize("rules", [per_minute(6), LimiterRules(searches=True)])
def test_a_short_budget_is_not_spent_on_those_that_are_fast(rules: LimiterRules) -> None:
    free, limited = (asks_of(Budget(pulls=50), each) for each in ({}, {"good": rules}))
    assert limited == free
    assert sum(ask.candidate == 0 for ask in limited) > 30


def test_where_time_is_short_others_take_the_turn_of_a_limited_model() -> None:
    limiters = {"good": per_minute(6)}
    asks = asks_of(Budget(pulls=50, seconds=100.0), limiters)
    assert sum(ask.candidate == 0 for ask in asks) <= 11


def test_an_outage_holds_nobody_up_where_the_budget_is_short() -> None:
    gone = ProviderError("gone", kind=FailureKind.CONNECTION, transient=True)
    down = Actor("p", lambda _request, _before: scored(0.9) if len(down.sent) <= 5 else gone)
    up = Actor("q", always(0.5))
    scene = Scene({"down": down, "up": up}, n_examples=40, budget=Budget(pulls=60))
    scene.run()
    assert 38 <= done(scene)[1] <= 40  # a pair or two of the other were sent as probes
    assert max(times(up)) < 60.0


async def test_the_display_says_how_long_a_pause_lasts() -> None:
    actor = Actor("p", lambda _, before: refusal(30.0) if before == 0 else scored(1.0))
    scene = Scene({"a": actor}, n_examples=3)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(11.0)
    waits = scene.board.summary(asyncio.get_running_loop().time())
    await running
    assert scene.board.summary(0.0) == ()
    (wait,) = waits
    assert (wait.provider, wait.reason, wait.count) == ("p/a", "rate limited", 3)
    assert wait.seconds == pytest.approx(20.0)


async def test_the_display_says_at_what_rate_calls_leave() -> None:
    rules = {"a": LimiterRules(searches=True)}
    scene = Scene({"a": Actor("p", always(1.0))}, n_examples=20, limiters=rules, in_flight=100)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(0.005)
    waits = scene.board.summary(asyncio.get_running_loop().time())
    await running
    (wait,) = waits
    assert wait.reason == "at 3,000 requests a minute, the rate found so far"


async def test_the_display_says_which_limit_holds_calls_back() -> None:
    scene = Scene({"a": Actor("p", always(1.0))}, n_examples=5, limiters={"a": per_minute(6)})

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(2.0)
    waits = scene.board.summary(asyncio.get_running_loop().time())
    await running
    (wait,) = waits
    assert wait.provider == "p/a"
    assert wait.reason == "at its limit of 6 requests a minute"
    assert wait.count == 0, "nothing is asked for that could only wait"
    assert wait.seconds == pytest.approx(8.1)


async def test_a_bad_key_stops_calls_that_wait_to_be_repeated_too() -> None:
    """One call backs off for up to a minute, others wait in line; then the key is turned down."""
    busy = ProviderError("busy", kind=FailureKind.OVERLOADED, transient=True, retry_after=50.0)
    locked = ProviderError("the key is wrong", kind=FailureKind.AUTHENTICATION, fatal=True)
    fates = [busy, refusal(40.0), locked]

    def number(request: Request) -> int:
        return [earlier for _, earlier in bad.sent].index(request)

    def answer(request: Request, before: int) -> Reply | Exception:
        return fates[number(request)] if number(request) < 3 else scored(0.5)

    bad = Actor("p", answer, latency=lambda r: min(number(r), 8) + 1.0)
    good = Actor("q", always(0.4))
    scene = Scene({"bad": bad, "good": good}, in_flight=8, n_examples=12)

    loop = await scene.open()
    end = await loop.run()
    end, at = (end, asyncio.get_running_loop().time())
    assert end is End.FAILURES
    assert at < 15.0, "nobody slept on"
    assert max(times(bad)) < 3.0, "nothing was sent after the key was turned down"
    assert done(scene)[1] == 12
    assert scene.loop.pool.broken() == {"bad": "the key is wrong"}
    first_three = {request.example for _, request in bad.sent[:3]}
    pending = {f"e{asked.example}" for asked in scene.loop.record.state.pending_asks()}
    assert first_three <= pending, "what was asked can be resumed with a good key"
    assert scene.loop.ledger.outstanding == Spend()


def test_a_pause_beyond_all_patience_gives_the_model_up_and_leaves_the_others() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        return refusal(86_400.0) if request.model == "daily" else scored(0.5)

    actor = Actor("p", answer)
    scene = Scene({"daily": actor, "other": actor}, in_flight=2)
    assert scene.run() is End.FAILURES
    assert done(scene) == [0, 20]
    assert "rate limited for another 86400 s" in scene.loop.pool.broken()["daily"]
    assert "resume" in scene.loop.pool.broken()["daily"]
    assert len(times(actor, "daily")) <= 2


def test_refusals_do_not_use_up_the_attempts_but_patience_ends() -> None:
    actor = Actor("p", lambda _, __: refusal(None))
    policy = RetryPolicy(max_attempts=2, max_elapsed_seconds=100.0)
    scene = Scene({"a": actor}, n_examples=1, policy=policy)
    scene.run()
    # Sent at 0 s; pauses of 0.5, 1, 2, 4, 8, 16, 16, ... s follow answers that take a second.
    assert times(actor) == pytest.approx(
        [0, 1.5, 3.5, 6.5, 11.5, 20.5, 37.5, 54.5, 71.5, 88.5, 105.5]
    )
    assert int(scene.loop.record.pairs.table.count(State.VOID)[0]) == 1
    assert scene.loop.ledger.spent.calls == 11


def test_headers_slow_a_model_down_before_it_is_refused() -> None:
    class Telling(Actor):
        def allowances(self, model: str) -> tuple[Allowance, ...]:
            return (Allowance(Resource.REQUESTS, limit=60.0, remaining=30.0),)

    actor = Telling("p", always(0.5))
    scene = Scene({"a": actor}, in_flight=4, n_examples=30)
    scene.run()
    late = times(actor)[8:]
    assert (late[-1] - late[0]) / (len(late) - 1) == pytest.approx(1.01, abs=0.02)


async def test_cached_replies_give_their_permits_back() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor}, n_examples=10)
    await (await scene.open()).run()
    bought = asyncio.get_running_loop().time()
    again = Scene({"a": actor}, n_examples=10, store=scene.store, limiters={"a": per_minute(6)})
    await (await again.open()).run()
    assert asyncio.get_running_loop().time() - bought < 1.0
    assert len(actor.sent) == 10


def test_a_deadline_ends_a_run_that_waits_for_a_limit() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor}, budget=Budget(seconds=15.0), limiters={"a": per_minute(6)})
    assert scene.run() is End.BUDGET
    assert times(actor) == pytest.approx([0.0, 10.1], abs=0.03)


async def test_stopping_does_not_wait_for_a_limit() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, limiters={"a": per_minute(1)})

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(3.0)
    loop.stop()
    assert (await running, asyncio.get_running_loop().time()) == (End.INTERRUPTED, 3.0)


@pytest.mark.slow
def test_calls_whose_rate_is_searched_start_slowly_and_leave_evenly() -> None:
    actor = Actor("p", always(0.5))
    rules = {"a": LimiterRules(searches=True)}
    scene = Scene(
        {"a": actor}, in_flight=100, provider_in_flight=100, n_examples=300, limiters=rules
    )
    scene.run()
    in_second = [sum(int(at) == second for at in times(actor)) for second in range(4)]
    assert in_second == [52, 50, 100, 98]
    assert max(times(actor).count(at) for at in times(actor)) <= 5, "no herds: 0.05 s of them"
