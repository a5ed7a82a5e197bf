"""Rate limits in a run: places go to others, pauses are shared, fatal errors stop one provider."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Allowance, Budget, Resource, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import RetryPolicy
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.engine.loop import End
from bestarm_agent.errors import FailureKind
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State
from tests.support.replay_check import unexplained_asks
from tests.support.runs import Actor, Scene, always, failing, scored
from tests.support.virtual_time import run_virtual

FOUND = RateLimits(searches=True)


def refusal(seconds: float | None) -> Exception:
    """One that says so of the account."""
    error = failing(FailureKind.RATE_LIMITED, retry_after=seconds)
    error.of_account = True
    return error


def per_minute(requests: float) -> RateLimits:
    return RateLimits({Resource.REQUESTS: requests})


def done(scene: Scene) -> list[int]:
    return [int(n) for n in scene.loop.record.pairs.table.count(State.DONE)]


def times(actor: Actor, model: str | None = None) -> list[float]:
    return [at for at, request in actor.sent if model in (None, request.model)]


def pace(sent: list[float]) -> float:
    """Seconds from call to call, on average."""
    return (sent[-1] - sent[0]) / (len(sent) - 1)


def test_a_limited_model_leaves_its_places_to_others_and_is_never_idle() -> None:
    slow, quick = Actor("p", always(0.9)), Actor("q", always(0.1))
    models, limiters = {"slow": slow, "quick": quick}, {"slow": per_minute(60)}
    scene = Scene(models, in_flight=4, n_examples=40, limiters=limiters)
    assert scene.run() is End.EXHAUSTED
    assert done(scene) == [40, 40]
    gaps = [b - a for a, b in zip(times(slow)[1:], times(slow)[2:], strict=False)]
    assert min(gaps) > 1.0 - 1e-9, "60.6 s for 60 calls, and those in between waited for a place"
    assert max(gaps[-20:]) < 1.03, "the loop is woken when the next one may go"
    assert max(times(quick)) < 20.0, "the others did not wait for it"
    assert slow.most <= 2, "no call of it waits in anybody's place"


def test_a_limit_of_one_model_leaves_the_providers_other_models_alone() -> None:
    actor = Actor("p", always(0.5))
    Scene({"a": actor, "b": actor}, in_flight=4, limiters={"a": per_minute(6)}).run()
    assert max(times(actor, "b")) < 10.0
    assert max(times(actor, "a")) > 180.0


def test_models_may_share_the_limits_of_their_account() -> None:
    actor = Actor("p", always(0.5))
    rules = {"a": per_minute(60), "b": per_minute(60)}
    Scene({"a": actor, "b": actor}, n_examples=10, limiters=rules, shared=True).run()
    assert pace(times(actor)) == pytest.approx(1.01, abs=0.02)


def test_headers_slow_a_model_down_before_it_is_refused() -> None:
    class Telling(Actor):
        def allowances(self, model: str) -> tuple[Allowance, ...]:
            return (Allowance(Resource.REQUESTS, limit=60.0, remaining=30.0),)

    actor = Telling("p", always(0.5))
    Scene({"a": actor}, in_flight=4, n_examples=30).run()
    assert pace(times(actor)[8:]) == pytest.approx(1.01, abs=0.02)


@pytest.mark.parametrize(
    ("n_examples", "budget", "end", "sent"),
    [
        (5, Budget(), End.EXHAUSTED, [0.0, 10.1, 20.2, 30.3, 40.4]),  # the only model there is
        (20, Budget(seconds=15.0), End.BUDGET, [0.0, 10.1]),
    ],
)
def test_a_run_waits_for_a_limit_until_its_deadline(
    n_examples: int, budget: Budget, end: End, sent: list[float]
) -> None:
    actor = Actor("p", always(0.5))
    limiters = {"a": per_minute(6)}
    scene = Scene({"a": actor}, n_examples=n_examples, budget=budget, limiters=limiters)
    assert scene.run() is end
    assert times(actor) == pytest.approx(sent, abs=0.03)


async def test_stopping_does_not_wait_for_a_limit() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, limiters={"a": per_minute(1)})
    end = await scene.stopped(3.0)
    assert (end, asyncio.get_running_loop().time()) == (End.INTERRUPTED, 3.0)


def test_a_refusal_of_one_call_pauses_all_of_the_model_and_none_of_the_others() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        return refusal(30.0) if request.example == "e2" and before == 0 else scored(0.5)

    limited, free = Actor("p", answer), Actor("q", always(0.5))
    limiters = {"limited": RateLimits(), "free": RateLimits()}
    models = {"limited": limited, "free": free}
    scene = Scene(models, in_flight=2, selector="uniform", limiters=limiters)
    assert scene.run() is End.EXHAUSTED
    refused = next(at for at, request in limited.sent if request.example == "e2") + 1.0
    assert [at for at in times(limited) if refused < at < refused + 30.0] == []
    assert max(times(free)) < refused + 30.0, "it had all places meanwhile"
    assert done(scene) == [20, 20]


# what is asked


def test_asks_under_a_limit_can_be_derived_again() -> None:
    limited, free = Actor("p", always(0.6)), Actor("q", always(0.4))
    scene = Scene({"a": limited, "b": free, "c": free}, limiters={"a": per_minute(60)})
    scene.run()
    events = run_virtual(scene.events())
    excluded = {event.excluded for event in events if isinstance(event, Asked)}
    assert excluded >= {(), ((0, 0),)}
    rule = make_selector("ucb-e", Problem(3, 20, stop_when_separated=False))
    assert unexplained_asks(events, rule) == []


def asks_of(budget: Budget, **limiters: RateLimits) -> list[int]:
    """What UCB-E asks, one call at a time, of two models of which one may be limited."""
    models = {"good": Actor("p", always(0.9)), "bad": Actor("q", always(0.1))}
    scene = Scene(models, in_flight=1, n_examples=40, limiters=limiters, budget=budget)
    scene.run()
    return [event.candidate for event in run_virtual(scene.events()) if isinstance(event, Asked)]


@pytest.mark.parametrize("rules", [per_minute(6), FOUND])
def test_a_short_budget_is_not_spent_on_those_that_are_fast(rules: RateLimits) -> None:
    limited = asks_of(Budget(answers=50), good=rules)
    assert limited == asks_of(Budget(answers=50))
    assert limited.count(0) > 30


def test_where_time_is_short_others_take_the_turn_of_a_limited_model() -> None:
    assert asks_of(Budget(answers=50, seconds=100.0), good=per_minute(6)).count(0) <= 11


def test_an_outage_holds_nobody_up_where_the_budget_is_short() -> None:
    gone = failing(FailureKind.CONNECTION)
    down = Actor("p", lambda _request, _before: scored(0.9) if len(down.sent) <= 5 else gone)
    up = Actor("q", always(0.5))
    scene = Scene({"down": down, "up": up}, n_examples=40, budget=Budget(answers=60))
    scene.run()
    assert 38 <= done(scene)[1] <= 40  # a pair or two of the other were sent as probes
    assert max(times(up)) < 60.0


# what is said


@pytest.mark.parametrize(
    ("first", "rules", "options", "looked_at", "reason", "count", "seconds"),
    [
        (30.0, None, {"n_examples": 3}, 11.0, "rate limited", 3, 20.0),
        # nothing is asked for that could only wait
        (None, per_minute(6), {}, 2.0, "at its limit of 6 requests a minute", 0, 8.1),
        (
            *(None, FOUND, {"in_flight": 100}, 0.005),
            *("at 3,000 requests a minute, the rate found so far", 0, 0.005),
        ),
    ],
    ids=["a pause", "a limit", "a search"],
)
async def test_the_display_says_what_calls_wait_for(
    first: float | None,
    rules: RateLimits | None,
    options: dict[str, int],
    looked_at: float,
    reason: str,
    count: int,
    seconds: float,
) -> None:
    def answer(_request: Request, before: int) -> Reply | Exception:
        return refusal(first) if first and before == 0 else scored(1.0)

    limiters = {"a": rules} if rules else {}
    scene = Scene({"a": Actor("p", answer)}, limiters=limiters, **options)  # type: ignore[arg-type]
    (wait,) = await scene.waits_after(looked_at)
    assert (wait.provider, wait.reason, wait.count) == ("p/a", reason, count)
    assert wait.seconds == pytest.approx(seconds, abs=0.01)
    assert rules or scene.board.summary(0.0) == ()


# what ends it


async def test_a_bad_key_stops_calls_that_wait_to_be_repeated_too() -> None:
    """One call backs off for up to a minute, others wait in line; then the key is turned down."""
    busy = failing(FailureKind.OVERLOADED, retry_after=50.0)
    fates = [busy, refusal(40.0), failing(FailureKind.AUTHENTICATION, fatal=True)]

    def number(request: Request) -> int:
        return [earlier for _, earlier in bad.sent].index(request)

    def answer(request: Request, _before: int) -> Reply | Exception:
        return fates[number(request)] if number(request) < 3 else scored(0.5)

    bad = Actor("p", answer, latency=lambda r: min(number(r), 8) + 1.0)
    good = Actor("q", always(0.4))
    scene = Scene({"bad": bad, "good": good}, in_flight=8, n_examples=12)
    assert await (await scene.open()).run() is End.FAILURES
    assert asyncio.get_running_loop().time() < 15.0, "nobody slept on"
    assert max(times(bad)) < 3.0, "nothing was sent after the key was turned down"
    assert done(scene)[1] == 12
    assert scene.loop.pool.broken() == {"bad": "scripted authentication"}
    first_three = {request.example for _, request in bad.sent[:3]}
    pending = {f"e{asked.example}" for asked in scene.loop.record.state.pending_asks()}
    assert first_three <= pending, "what was asked can be resumed with a good key"
    assert scene.loop.ledger.outstanding == Spend()


def test_a_pause_beyond_all_patience_gives_the_model_up_and_leaves_the_others() -> None:
    actor = Actor("p", lambda r, _: refusal(86_400.0) if r.model == "daily" else scored(0.5))
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
    sent = [0, 1.5, 3.5, 6.5, 11.5, 20.5, 37.5, 54.5, 71.5, 88.5, 105.5]
    assert times(actor) == pytest.approx(sent)
    assert int(scene.loop.record.pairs.table.count(State.VOID)[0]) == 1
    assert scene.loop.ledger.spent.calls == 11


async def test_cached_replies_give_their_permits_back() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor}, n_examples=10)
    await (await scene.open()).run()
    bought = asyncio.get_running_loop().time()
    again = Scene({"a": actor}, n_examples=10, store=scene.store, limiters={"a": per_minute(6)})
    await (await again.open()).run()
    assert asyncio.get_running_loop().time() - bought < 1.0
    assert len(actor.sent) == 10


@pytest.mark.slow
def test_calls_whose_rate_is_searched_start_slowly_and_leave_evenly() -> None:
    actor, places = Actor("p", always(0.5)), {"in_flight": 100, "provider_in_flight": 100}
    Scene({"a": actor}, n_examples=300, limiters={"a": FOUND}, **places).run()  # type: ignore[arg-type]
    in_second = [sum(int(at) == second for at in times(actor)) for second in range(4)]
    assert in_second == [52, 50, 100, 98]
    assert max(times(actor).count(at) for at in times(actor)) <= 5, "no herds: 0.05 s of them"


def test_a_refusal_that_does_not_speak_of_the_account_holds_back_that_call_alone() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        bare = failing(FailureKind.RATE_LIMITED, retry_after=30.0)
        return bare if request.example == "e2" and before == 0 else scored(0.5)

    actor = Actor("p", answer)
    scene = Scene({"a": actor}, in_flight=2, n_examples=10)
    assert scene.run() is End.EXHAUSTED
    again = [at for at, request in actor.sent if request.example == "e2"]
    assert again[1] - again[0] >= 30.0
    assert sum(at < again[0] + 10.0 for at in times(actor)) == 10, "the others went on"
