"""The run loop in virtual time: caps, gates, outages, deadlines, interruption."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.spend import Budget, RateLimits, Resource, Spend
from bestarm_agent.domain.values import Outcome, Reply, Request, Score
from bestarm_agent.engine.call import RetryPolicy
from bestarm_agent.engine.limits.model_limits import LimiterRules
from bestarm_agent.engine.loop import End, Rules
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.selectors.types import State
from tests.support.runs import Actor, Answer, Scene, scored
from tests.support.virtual_time import LoopClock, run_virtual


def always(value: float) -> Answer:
    return lambda _request, _before: scored(value)


def failing(kind: FailureKind, *, transient: bool = False, fatal: bool = False) -> ProviderError:
    return ProviderError(f"scripted {kind}", kind=kind, transient=transient, fatal=fatal)


def states(scene: Scene, candidate: int) -> list[int]:
    table = scene.loop.record.pairs.table
    return [int(table.count(state)[candidate]) for state in (State.DONE, State.FAILED, State.VOID)]


def test_calls_run_side_by_side_without_a_barrier() -> None:
    slow_first = Actor("p", always(0.5), latency=lambda r: 100.0 if r.example == "e3" else 1.0)
    scene = Scene({"a": slow_first}, in_flight=5)
    assert scene.run() is End.EXHAUSTED
    times = [at for at, _ in slow_first.sent]
    assert max(times) <= 6.0, "nineteen quick calls do not wait for the slow one"
    assert slow_first.most == 5


def test_no_gate_is_overfilled() -> None:
    one, other = Actor("p", always(0.5)), Actor("q", always(0.5))
    scene = Scene({"a": one, "b": one, "c": other}, in_flight=10, provider_in_flight=3)
    scene.run()
    assert (one.most, other.most) == (3, 3)
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=4)
    scene.run()
    assert scene.models["a"].most == 4


def test_a_throttled_provider_leaves_its_places_to_others() -> None:
    slow, quick = Actor("p", always(0.9), latency=lambda _: 50.0), Actor("q", always(0.1))
    scene = Scene({"slow": slow, "quick": quick}, in_flight=8, provider_in_flight=2)
    scene.run()
    early = [at for at, _ in quick.sent]
    assert max(early) < 50.0, "the quick provider was not held up by the slow one"


def most_in_flight(scene: Scene) -> list[float]:
    """Return how many pairs were in flight at each ask, over how many might be."""
    scene.run()
    in_flight, told, found = 0, 0, []
    for event in run_virtual(scene.events()):
        if isinstance(event, Asked):
            in_flight += 1
            found.append(in_flight / max(16, told / 2))
        elif isinstance(event, Told):
            in_flight, told = in_flight - 1, told + 1
    return found


def test_a_short_budget_is_not_spent_before_anything_is_known() -> None:
    actors = {"a": Actor("p", always(0.6)), "b": Actor("q", always(0.5))}
    short, whole, hasty = (
        Scene(actors, in_flight=64, n_examples=200, budget=budget)
        for budget in (Budget(pulls=300), Budget(), Budget(pulls=300, seconds=3600.0))
    )
    assert 0.9 < max(most_in_flight(short)) <= 1.0
    assert max(most_in_flight(whole)) == max(most_in_flight(hasty)) == 4.0


@pytest.mark.parametrize("in_flight", [1, 3, 32])
def test_no_cap_is_ever_passed(in_flight: int) -> None:
    actor = Actor("p", always(0.5))
    budget = Budget(usd_nanos=1000)
    scene = Scene({"a": actor, "b": actor}, in_flight=in_flight, budget=budget)
    assert scene.run() is End.BUDGET
    spent = scene.loop.ledger.spent
    assert 900 < spent.usd_nanos <= 1000
    assert scene.loop.ledger.outstanding == Spend()


def test_what_is_asked_at_once_is_paid_for_together() -> None:
    """A dear candidate no longer fits, so the rule chooses among cheap ones: as many as fit."""
    cheap, dear = Actor("p", always(0.5)), Actor("q", always(0.4))
    dear.bound_spend = Spend(calls=1, tokens=10, usd_nanos=600)
    scene = Scene({"cheap": cheap, "dear": dear}, in_flight=32, budget=Budget(usd_nanos=1000))
    assert scene.run() is End.BUDGET
    assert not scene.loop.record.state.pending, "a pair was asked that could not be paid"
    assert scene.loop.ledger.spent.usd_nanos > 900, "what was given back is spent"


def test_money_that_is_only_reserved_gives_no_turn_to_cheaper_candidates() -> None:
    """Two calls of the dear one take all that can be reserved, and cost as little as others."""
    cheap, dear = Actor("p", always(0.5)), Actor("q", always(0.4))
    dear.bound_spend = Spend(calls=1, tokens=10, usd_nanos=2900)
    budget = Budget(usd_nanos=6000)
    scene = Scene({"cheap": cheap, "dear": dear}, n_examples=99, budget=budget, selector="uniform")
    assert scene.run() is End.BUDGET
    asked = [event.candidate for event in run_virtual(scene.events()) if isinstance(event, Asked)]
    while_affordable = asked[:50]
    assert 24 <= while_affordable.count(1) <= 26
    assert scene.loop.ledger.spent.usd_nanos > 5900


def test_nothing_is_waited_for_once_the_budget_is_spent() -> None:
    limited = LimiterRules(RateLimits(per_minute={Resource.REQUESTS: 1.0}))
    slow, quick = Actor("p", always(0.5)), Actor("q", always(0.4))
    scene = Scene(
        {"slow": slow, "quick": quick},
        budget=Budget(pulls=8),
        selector="uniform",
        limiters={"slow": limited},
    )
    assert scene.run() is End.BUDGET
    assert len(slow.sent) == 4
    assert scene.loop.seconds == pytest.approx(slow.sent[-1][0] + 1.0, abs=0.01)


def test_no_retry_is_waited_for_once_the_best_is_established() -> None:
    """Two zeros settle it: the other is right on all examples. All further calls of b fail."""
    late = failing(FailureKind.SERVER, transient=True)
    policy = RetryPolicy(max_attempts=9, first_wait_seconds=500.0, max_wait_seconds=500.0)
    bad = Actor("q", lambda r, _: scored(0.0) if r in [one for _, one in bad.sent[:2]] else late)
    actors = {"a": Actor("p", always(1.0)), "b": bad}
    scene = Scene(actors, n_examples=12, policy=policy, selector="racing", stops=True)
    assert scene.run() is End.SEPARATED
    assert scene.loop.seconds < 100.0
    assert {asked.candidate for asked in scene.loop.record.state.pending_asks()} == {1}


def test_a_retry_that_found_no_money_is_sent_once_others_gave_theirs_back() -> None:
    """A time-out counts with its bound; sent again beside two others, it would pass the cap."""
    late = failing(FailureKind.TIMEOUT, transient=True)
    actor = Actor(
        "p",
        lambda r, before: late if r.example == "e0" and before == 0 else scored(0.5),
        latency=lambda r: 1.0 if r.example == "e0" else 10.0,
    )
    scene = Scene({"a": actor}, n_examples=3, in_flight=3, budget=Budget(usd_nanos=330))
    assert scene.run() is End.EXHAUSTED
    assert scene.loop.record.state.n_told == 3
    assert scene.loop.ledger.spent.usd_nanos == 100 + 3 * 60


async def test_what_a_killed_process_had_sent_counts_and_is_sent_again_within_the_cap() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, n_examples=3, budget=Budget(usd_nanos=330))

    loop = await scene.open()
    sent: list[Event] = [Asked(j, 0, j, "ucb") for j in range(3)]
    loop.record.feed(sent)
    assert (await loop.run()) is End.BUDGET
    assert scene.loop.ledger.spent.usd_nanos == 300
    assert len(scene.loop.record.state.pending) == 3, "they are sent when there is more budget"


def test_an_outage_is_not_a_wrong_answer() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        busy = failing(FailureKind.OVERLOADED, transient=True)
        return busy if before == 0 or request.example == "e7" else scored(1.0)

    scene = Scene({"a": Actor("p", answer)})
    scene.run()
    assert states(scene, 0) == [19, 0, 1]
    estimates = scene.loop.record.pairs.estimates()
    assert estimates.mean[0] == 1.0
    assert (estimates.lower[0], estimates.upper[0]) == pytest.approx((0.95, 1.0))


@pytest.mark.parametrize("max_failed_share", [0.5, 1.0])
def test_a_run_without_any_score_did_not_succeed(max_failed_share: float) -> None:
    """Also where there are too few pairs to stop it on the way."""
    busy = failing(FailureKind.OVERLOADED, transient=True)
    rules = Rules(max_failed_share=max_failed_share)
    scene = Scene({"a": Actor("p", lambda r, _: busy)}, n_examples=3, rules=rules)
    assert scene.run() is End.FAILURES
    assert states(scene, 0) == [0, 0, 3]


@pytest.mark.parametrize(("bad", "end"), [(4, End.EXHAUSTED), (6, End.FAILURES)])
def test_a_short_run_fails_by_the_same_share_as_a_long_one(bad: int, end: End) -> None:
    busy = failing(FailureKind.OVERLOADED, transient=True)
    actor = Actor("p", lambda r, _: busy if int(r.example[1:]) < bad else scored(1.0))
    assert Scene({"a": actor}, n_examples=10, rules=Rules()).run() is end


def test_the_candidates_own_failure_counts_with_the_floor() -> None:
    refusal = ProviderError("no", kind=FailureKind.REFUSED, blame=Blame.CANDIDATE)
    scene = Scene(
        {"a": Actor("p", lambda r, _: refusal if r.example in ("e1", "e2") else scored(1.0))},
        rules=Rules(failed_score=0.25, max_failed_share=1.0),
    )
    scene.run()
    assert states(scene, 0) == [18, 2, 0]
    assert scene.loop.record.pairs.estimates().mean[0] == pytest.approx((18 + 0.5) / 20)


def test_a_bad_key_stops_one_provider_and_leaves_the_others() -> None:
    locked = failing(FailureKind.AUTHENTICATION, fatal=True)
    bad, good = Actor("p", lambda *_: locked), Actor("q", always(0.4))
    scene = Scene({"bad": bad, "bad too": bad, "good": good}, in_flight=2)
    assert scene.run() is End.FAILURES
    assert states(scene, 2) == [20, 0, 0]
    assert len(bad.sent) <= 2, "only what was in flight when the first answer came"
    assert set(scene.loop.pool.broken()) == {"bad", "bad too"}
    assert scene.loop.record.state.pending, "what was asked can be resumed with a good key"


def test_a_missing_model_leaves_its_provider_alone() -> None:
    gone = failing(FailureKind.MODEL_NOT_FOUND, fatal=True)
    actor = Actor("p", lambda r, _: gone if r.model == "gone" else scored(0.5))
    scene = Scene({"gone": actor, "there": actor})
    scene.run()
    assert states(scene, 1) == [20, 0, 0]
    assert set(scene.loop.pool.broken()) == {"gone"}


def test_too_many_failures_end_the_run() -> None:
    broken = failing(FailureKind.SERVER)
    scene = Scene({"a": Actor("p", lambda *_: broken)}, n_examples=500, rules=Rules())
    assert scene.run() is End.FAILURES
    assert scene.loop.record.state.n_told < 40


def test_the_minutes_end_the_run() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=1, budget=Budget(seconds=5.5))
    assert scene.run() is End.BUDGET
    assert scene.loop.record.state.n_told == 5
    assert scene.loop.seconds == 5.5
    spent = scene.loop.ledger.spent
    assert spent.usd_nanos == 5 * 60 + 100, "the call in flight is cut off and charged at its bound"
    assert list(scene.loop.record.state.pending) == [5]


def test_minutes_that_end_before_the_first_score_are_no_success() -> None:
    slow = Actor("p", always(0.5), lambda _request: 100.0)
    scene = Scene({"a": slow}, in_flight=2, budget=Budget(seconds=5.5))
    assert scene.run() is End.FAILURES
    assert not scene.loop.record.state.n_told


def test_no_call_is_begun_that_would_usually_not_end_in_time() -> None:
    actor = Actor("p", lambda *_: replace(scored(0.5), seconds=1.0))
    scene = Scene({"a": actor}, in_flight=1, budget=Budget(seconds=5.5))
    assert scene.run() is End.BUDGET
    assert scene.loop.record.state.n_told == 5
    assert scene.loop.seconds == 5.0
    assert scene.loop.ledger.spent.usd_nanos == 5 * 60
    assert not scene.loop.record.state.pending


async def test_the_minutes_of_a_killed_sitting_count() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=1, budget=Budget(seconds=5.5))

    loop = await scene.open()
    outcome = Outcome(Score(0.5), seconds=1.0)
    lost: list[Event] = [Asked(0, 0, 0, "ucb"), Told(0, outcome, 0.5, elapsed=3.0)]
    for event in lost:
        loop.record.record(event, is_known=False)
    assert loop.seconds == 3.0
    assert (await loop.run()) is End.BUDGET
    state = scene.loop.record.state
    assert state.n_told == 1 + 2, "three seconds were gone"
    assert [session.stopped is None for session in state.sessions] == [True, False]
    assert state.seconds == 5.5


def test_a_deadline_is_noticed_while_everything_waits() -> None:
    actor = Actor("p", always(0.5), latency=lambda _: 60.0)
    scene = Scene({"a": actor}, in_flight=2, budget=Budget(seconds=10.0))
    assert scene.run() is End.FAILURES
    assert len(actor.sent) == 2
    assert scene.loop.seconds == 10.0


@pytest.mark.parametrize("kind", [FailureKind.OVERLOADED, FailureKind.RATE_LIMITED])
def test_the_minutes_bind_retries_and_pauses(kind: FailureKind) -> None:
    error = ProviderError("scripted", kind=kind, transient=True, retry_after=50.0)
    scene = Scene(
        {"a": Actor("p", lambda *_: error)},
        n_examples=8,
        budget=Budget(seconds=120.0),
        policy=RetryPolicy(max_attempts=100),
    )
    assert scene.run() is not End.EXHAUSTED
    assert scene.loop.seconds == 120.0
    assert scene.loop.ledger.outstanding == Spend()


async def test_time_that_is_over_sends_nothing_again() -> None:
    actor = Actor("p", always(0.5), latency=lambda _: 60.0)
    scene = Scene({"a": actor}, in_flight=2, budget=Budget(seconds=10.0))

    loop = await scene.open()
    await loop.run()
    assert (await loop.run()) is End.FAILURES
    assert len(actor.sent) == 2


async def test_stopping_books_what_is_in_flight() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=4)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(1.5)
    loop.stop()
    assert (await running) is End.INTERRUPTED
    assert scene.loop.record.state.n_told == 8
    assert not scene.loop.record.state.pending


async def test_aborting_leaves_pairs_pending_and_a_second_sitting_sends_them_again() -> None:
    actor = Actor("p", always(0.5))
    scene = Scene({"a": actor}, in_flight=4)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(1.5)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(loop.record.state.pending) == [4, 5, 6, 7]
    assert (await loop.run()) is End.EXHAUSTED
    assert sorted(scene.loop.record.state.order.tolist()) == list(range(20))
    reasons = [s.stopped.reason for s in scene.loop.record.state.sessions if s.stopped]
    assert reasons == ["interrupted", "exhausted"]


async def test_a_retry_that_the_budget_cannot_pay_waits_for_more_budget() -> None:
    busy = failing(FailureKind.OVERLOADED, transient=True)
    actor = Actor("p", lambda _, before: busy if before == 0 else scored(1.0))
    scene = Scene({"a": actor}, n_examples=3, in_flight=1, budget=Budget(calls=1))

    loop = await scene.open()
    first = await loop.run()
    assert loop.record.state.pending
    loop.set_budget(Budget(calls=100))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert scene.loop.ledger.spent.calls == len(actor.sent) == 6
    assert scene.loop.ledger.spent.pulls == 3
    assert scene.loop.record.state.spend == scene.loop.ledger.spent


def test_an_unexpected_error_of_ours_is_not_swallowed() -> None:
    scene = Scene({"a": Actor("p", lambda *_: Reply("no score"))})
    with pytest.raises(AssertionError):
        scene.run()
    assert scene.loop.record.state.end == "error"


async def test_waits_say_why() -> None:
    limited = ProviderError(
        "slow down", kind=FailureKind.RATE_LIMITED, transient=True, retry_after=30.0
    )
    actor = Actor("p", lambda _, before: limited if before == 0 else scored(1.0))
    scene = Scene({"a": actor}, n_examples=3, policy=RetryPolicy(max_attempts=2))

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(10.0)
    waits = scene.board.summary(asyncio.get_running_loop().time())
    await running
    assert scene.board.summary(0.0) == ()
    ((provider, reason, count),) = [(wait.provider, wait.reason, wait.count) for wait in waits]
    assert (provider, reason, count) == ("p/a", "rate limited", 3)


def test_what_caps_for_one_call_leave_is_spent_by_the_next() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, budget=Budget(calls=10))

    async def play() -> list[tuple[End, int]]:
        loop = await scene.open()
        found = []
        for caps in (Budget(calls=10, pulls=4), loop.own_budget, loop.own_budget):
            loop.allow(caps)
            found.append((await loop.run(), loop.ledger.spent.calls))
        loop.raise_budget(Budget(calls=3))
        loop.allow(loop.own_budget)
        return [*found, (await loop.run(), loop.ledger.spent.calls)]

    ends = [(End.BUDGET, calls) for calls in (4, 10, 10, 13)]
    assert run_virtual(play()) == ends


async def test_what_is_under_way_counts_where_a_cap_is_set_during_a_run() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=4, budget=Budget(calls=20))

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    while loop.in_flight < 4:  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0)
    loop.raise_budget(Budget(calls=3))
    await running
    assert (loop.ledger.spent.calls, loop.ledger.budget.calls) == (7, 7)


async def test_a_run_that_was_killed_in_a_call_goes_on_with_its_own_budget() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, budget=Budget(calls=10))

    loop = await scene.open()
    loop.allow(Budget(calls=10, pulls=4))
    await loop.run()
    await scene.log.close()
    again = await scene.reopen()
    again.allow(again.own_budget)
    await again.run()
    assert again.ledger.spent.calls == 10


class ThinkingClock(LoopClock):
    """A clock on which a millisecond passes whenever somebody looks at it."""

    def __init__(self) -> None:
        self._thought = 0.0

    def now(self) -> float:
        self._thought += 1e-3
        return super().now() + self._thought


@pytest.mark.timeout(10)
def test_a_limit_that_opens_while_the_loop_looks_around_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.runs.LoopClock", ThinkingClock)
    limits = LimiterRules(RateLimits({Resource.REQUESTS: 60}))
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, limiters={"a": limits})
    assert scene.run() is End.EXHAUSTED
