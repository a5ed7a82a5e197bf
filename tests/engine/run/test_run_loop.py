"""The run loop in virtual time: caps, gates, outages, deadlines, interruption."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest

from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.spend import Budget, Resource, Spend
from bestarm_agent.domain.values import Outcome, Reply, Request, Score
from bestarm_agent.engine.call import RetryPolicy, reply_key
from bestarm_agent.engine.evaluate import Evaluator
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.engine.loop import End, Rules, RunLoop
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.selectors.types import State
from tests.support.runs import Actor, Scene, always, failing, scored
from tests.support.virtual_time import LoopClock, run_virtual

BUSY = failing(FailureKind.OVERLOADED)


def states(scene: Scene, candidate: int) -> list[int]:
    table = scene.loop.record.pairs.table
    return [int(table.count(state)[candidate]) for state in (State.DONE, State.FAILED, State.VOID)]


def asks_of(scene: Scene) -> list[int]:
    return [event.candidate for event in run_virtual(scene.events()) if isinstance(event, Asked)]


# places


def test_calls_run_side_by_side_without_a_barrier() -> None:
    slow_first = Actor("p", always(0.5), latency=lambda r: 100.0 if r.example == "e3" else 1.0)
    assert Scene({"a": slow_first}, in_flight=5).run() is End.EXHAUSTED
    assert max(at for at, _ in slow_first.sent) <= 6.0, "nineteen do not wait for the slow one"
    assert slow_first.most == 5


@pytest.mark.parametrize(("places", "at_a_provider", "most"), [(10, 3, (3, 3)), (4, 64, (4, 4))])
def test_no_gate_is_overfilled(places: int, at_a_provider: int, most: tuple[int, int]) -> None:
    one, other = Actor("p", always(0.5)), Actor("q", always(0.5))
    Scene({"a": one, "b": one}, in_flight=places, provider_in_flight=at_a_provider).run()
    Scene({"c": other}, in_flight=places, provider_in_flight=at_a_provider).run()
    assert (one.most, other.most) == most


def test_a_throttled_provider_leaves_its_places_to_others() -> None:
    slow, quick = Actor("p", always(0.9), latency=lambda _: 50.0), Actor("q", always(0.1))
    Scene({"slow": slow, "quick": quick}, in_flight=8, provider_in_flight=2).run()
    assert max(at for at, _ in quick.sent) < 50.0, "it was not held up by the slow one"


def test_what_happens_while_the_log_is_flushed_is_seen_at_once() -> None:
    """A cap is raised during the flush of the first ask, whose call takes a hundred seconds."""
    actor = Actor("p", always(0.5), latency=lambda _: 100.0)
    scene = Scene({"a": actor}, in_flight=2, budget=Budget(answers=1))

    async def play() -> None:
        loop = await scene.open()
        flush = loop.record.flush

        async def raising() -> None:
            loop.record.flush = flush  # type: ignore[method-assign]
            await flush()
            loop.set_budget(Budget(answers=2))

        loop.record.flush = raising  # type: ignore[method-assign]
        await loop.run()

    run_virtual(play())
    first, second = (at for at, _ in actor.sent)
    assert second - first < 1.0


def most_in_flight(scene: Scene) -> float:
    """Return how many pairs were in flight at most, over how many might be."""
    scene.run()
    in_flight, told, most = 0, 0, 0.0
    for event in run_virtual(scene.events()):
        if isinstance(event, Asked):
            in_flight += 1
            most = max(most, in_flight / max(16, told / 2))
        elif isinstance(event, Told):
            in_flight, told = in_flight - 1, told + 1
    return most


def test_a_short_budget_is_not_spent_before_anything_is_known() -> None:
    actors = {"a": Actor("p", always(0.6)), "b": Actor("q", always(0.5))}
    short, whole, hasty = (
        most_in_flight(Scene(actors, in_flight=64, n_examples=200, budget=budget))
        for budget in (Budget(answers=300), Budget(), Budget(answers=300, seconds=3600.0))
    )
    assert 0.9 < short <= 1.0
    assert whole == hasty == 4.0


# caps


@pytest.mark.parametrize("in_flight", [1, 3, 32])
def test_no_cap_is_ever_passed(in_flight: int) -> None:
    actor, budget = Actor("p", always(0.5)), Budget(usd_nanos=1000)
    scene = Scene({"a": actor, "b": actor}, in_flight=in_flight, budget=budget)
    assert scene.run() is End.BUDGET
    assert 900 < scene.loop.ledger.spent.usd_nanos <= 1000
    assert scene.loop.ledger.outstanding == Spend()


def cheap_and_dear(bound: int, cap: int, **options: object) -> Scene:
    """Two candidates that cost the same, one of which might cost ``bound``."""
    cheap, dear = Actor("p", always(0.5)), Actor("q", always(0.4))
    dear.bound_spend = Spend(calls=1, tokens=10, usd_nanos=bound)
    budget = Budget(usd_nanos=cap)
    scene = Scene({"cheap": cheap, "dear": dear}, budget=budget, **options)  # type: ignore[arg-type]
    assert scene.run() is End.BUDGET
    return scene


def test_what_is_asked_at_once_is_paid_for_together() -> None:
    """A dear candidate no longer fits, so the rule chooses among cheap ones: as many as fit."""
    scene = cheap_and_dear(600, 1000, in_flight=32)
    assert not scene.loop.record.state.pending, "a pair was asked that could not be paid"
    assert scene.loop.ledger.spent.usd_nanos > 900, "what was given back is spent"


def test_money_that_is_only_reserved_gives_no_turn_to_cheaper_candidates() -> None:
    """Two calls of the dear one take all that can be reserved, and cost as little as others."""
    scene = cheap_and_dear(2900, 6000, n_examples=99, selector="uniform")
    assert 24 <= asks_of(scene)[:50].count(1) <= 26, "while it is affordable"
    assert scene.loop.ledger.spent.usd_nanos > 5900


def test_nothing_is_waited_for_once_the_budget_is_spent() -> None:
    limits = {"slow": RateLimits(per_minute={Resource.REQUESTS: 1.0})}
    slow, budget = Actor("p", always(0.5)), Budget(answers=8)
    models = {"slow": slow, "quick": Actor("q", always(0.4))}
    scene = Scene(models, budget=budget, selector="uniform", limiters=limits)
    assert scene.run() is End.BUDGET
    assert len(slow.sent) == 4
    assert scene.loop.seconds == pytest.approx(slow.sent[-1][0] + 1.0, abs=0.01)


def test_no_retry_is_waited_for_once_the_best_is_established() -> None:
    """Two zeros settle it: the other is right on all examples. All further calls of b fail."""
    late = failing(FailureKind.SERVER)
    policy = RetryPolicy(max_attempts=9, first_wait_seconds=500.0, max_wait_seconds=500.0)
    bad = Actor("q", lambda r, _: scored(0.0) if r in [one for _, one in bad.sent[:2]] else late)
    actors = {"a": Actor("p", always(1.0)), "b": bad}
    scene = Scene(actors, n_examples=12, policy=policy, selector="racing", stops=True)
    assert scene.run() is End.SEPARATED
    assert scene.loop.seconds < 100.0
    assert {asked.candidate for asked in scene.loop.record.state.pending_asks()} == {1}


def test_a_retry_that_found_no_money_is_sent_once_others_gave_theirs_back() -> None:
    """A time-out counts with its bound; sent again beside two others, it would pass the cap."""
    late = failing(FailureKind.TIMEOUT)
    actor = Actor(
        "p",
        lambda r, before: late if r.example == "e0" and before == 0 else scored(0.5),
        latency=lambda r: 1.0 if r.example == "e0" else 10.0,
    )
    scene = Scene({"a": actor}, n_examples=3, in_flight=3, budget=Budget(usd_nanos=330))
    assert scene.run() is End.EXHAUSTED
    assert scene.loop.record.state.n_told == 3
    assert scene.loop.ledger.spent.usd_nanos == 100 + 3 * 60


async def test_a_retry_that_the_budget_cannot_pay_waits_for_more_budget() -> None:
    actor = Actor("p", lambda _, before: BUSY if before == 0 else scored(1.0))
    scene = Scene({"a": actor}, n_examples=3, in_flight=1, budget=Budget(calls=1))
    loop = await scene.open()
    first = await loop.run()
    assert loop.record.state.pending
    loop.set_budget(Budget(calls=100))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert (loop.ledger.spent.calls, loop.ledger.spent.answers) == (len(actor.sent), 3) == (6, 3)
    assert loop.record.state.spend == loop.ledger.spent


def test_what_caps_for_one_call_leave_is_spent_by_the_next() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, budget=Budget(calls=10))

    async def play() -> list[tuple[End, int]]:
        loop = await scene.open()
        found = []
        for caps in (Budget(calls=10, answers=4), loop.own_budget, loop.own_budget):
            loop.set_budget(caps, loop.own_budget)
            found.append((await loop.run(), loop.ledger.spent.calls))
        loop.raise_budget(Budget(calls=3))
        loop.set_budget(loop.own_budget, loop.own_budget)
        return [*found, (await loop.run(), loop.ledger.spent.calls)]

    assert run_virtual(play()) == [(End.BUDGET, calls) for calls in (4, 10, 10, 13)]


async def test_what_is_under_way_counts_where_a_cap_is_set_during_a_run() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=4, budget=Budget(calls=5))
    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    while loop.in_flight < 4:  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0)
    loop.raise_budget(Budget(calls=3))
    await running
    assert (loop.ledger.spent.calls, loop.ledger.budget.calls) == (7, 7)


async def test_more_budget_never_makes_a_run_stricter() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, budget=Budget(calls=1000, seconds=60.0))
    loop = await scene.open()
    loop.raise_budget(Budget(calls=5, usd=1, tokens=10, seconds=1.0))
    assert loop.own_budget == loop.ledger.budget == Budget(calls=1000, seconds=60.0)
    loop.raise_budget(Budget(calls=1001))
    assert loop.own_budget == loop.ledger.budget == Budget(calls=1001, seconds=60.0)


async def test_no_cap_of_a_stage_falls_below_what_is_spent_and_held() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, budget=Budget(calls=10))
    loop = await scene.open()
    own = loop.own_budget
    loop.set_budget(Budget(calls=6), own)
    await loop.run()
    held = loop.ledger.reserve(Spend(calls=0, tokens=5))
    assert held is not None
    loop.set_budget(Budget(calls=4, tokens=3), own)
    recorded = loop.record.state
    assert recorded.budget == Budget(calls=6, tokens=loop.ledger.spent.tokens + 5)
    assert recorded.configured == own == Budget(calls=10)


async def test_a_run_that_was_killed_in_a_call_goes_on_with_its_own_budget() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, budget=Budget(calls=10))
    loop = await scene.open()
    loop.set_budget(Budget(calls=10, answers=4), loop.own_budget)
    await loop.run()
    await scene.log.close()
    again = await scene.reopen()
    again.set_budget(again.own_budget, again.own_budget)
    await again.run()
    assert again.ledger.spent.calls == 10


# failures


def test_an_outage_is_not_a_wrong_answer() -> None:
    def answer(request: Request, before: int) -> Reply | Exception:
        return BUSY if before == 0 or request.example == "e7" else scored(1.0)

    scene = Scene({"a": Actor("p", answer)})
    scene.run()
    assert states(scene, 0) == [19, 0, 1]
    estimates = scene.loop.record.pairs.answer.estimates()
    assert estimates.mean[0] == 1.0
    assert (estimates.lower[0], estimates.upper[0]) == pytest.approx((0.95, 1.0))


@pytest.mark.parametrize(
    ("n_examples", "bad", "share", "end"),
    [
        (10, 4, 0.5, End.EXHAUSTED),
        (10, 6, 0.5, End.FAILURES),
        (3, 3, 0.5, End.FAILURES),  # without any score, though too few to be stopped on the way
        (3, 3, 1.0, End.FAILURES),
    ],
)
def test_a_short_run_fails_by_the_same_share_as_a_long_one(
    n_examples: int, bad: int, share: float, end: End
) -> None:
    actor = Actor("p", lambda r, _: BUSY if int(r.example[1:]) < bad else scored(1.0))
    rules = Rules(max_failed_share=share)
    scene = Scene({"a": actor}, n_examples=n_examples, rules=rules)
    assert scene.run() is end
    assert states(scene, 0)[2] <= bad


def test_too_many_failures_end_the_run() -> None:
    broken = ProviderError("scripted", kind=FailureKind.SERVER)
    scene = Scene({"a": Actor("p", lambda *_: broken)}, n_examples=500, rules=Rules())
    assert scene.run() is End.FAILURES
    assert scene.loop.record.state.n_told < 40


def test_the_candidates_own_failure_counts_with_the_floor() -> None:
    refusal = ProviderError("no", kind=FailureKind.REFUSED, blame=Blame.CANDIDATE)
    actor = Actor("p", lambda r, _: refusal if r.example in ("e1", "e2") else scored(1.0))
    scene = Scene({"a": actor}, rules=Rules(failed_score=0.25, max_failed_share=1.0))
    scene.run()
    assert states(scene, 0) == [18, 2, 0]
    assert scene.loop.record.pairs.answer.estimates().mean[0] == pytest.approx((18 + 0.5) / 20)


def test_a_bad_key_stops_one_provider_and_leaves_the_others() -> None:
    locked = failing(FailureKind.AUTHENTICATION, fatal=True)
    bad, good = Actor("p", lambda *_: locked), Actor("q", always(0.4))
    scene = Scene({"bad": bad, "bad too": bad, "good": good}, in_flight=2)
    assert scene.run() is End.FAILURES
    assert states(scene, 2) == [20, 0, 0]
    assert len(bad.sent) <= 2, "only what was in flight when the first answer came"
    assert set(scene.loop.pool.broken()) == {"bad", "bad too"}
    assert scene.loop.record.state.pending, "what was asked can be resumed with a good key"


@pytest.mark.parametrize("shared", [False, True])
def test_a_missing_model_leaves_its_provider_alone(shared: bool) -> None:
    gone = failing(FailureKind.MODEL_NOT_FOUND, fatal=True)
    actor = Actor("p", lambda r, _: gone if r.model == "gone" else scored(0.5))
    scene = Scene({"gone": actor, "there": actor}, shared=shared)
    scene.run()
    assert (states(scene, 0), states(scene, 1)) == ([0, 0, 0], [20, 0, 0])
    assert set(scene.loop.pool.broken()) == {"gone"}


def test_an_unexpected_error_of_ours_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise AssertionError

    scene = Scene({"a": Actor("p", always(1.0))})
    monkeypatch.setattr(Evaluator, "_sign", broken)
    with pytest.raises(AssertionError):
        scene.run()
    assert scene.loop.record.state.end == "error"


class Careless(Actor):
    """Awaits a task that it cancelled itself, as buggy programs do."""

    async def generate(self, request: Request) -> Reply:
        if request.example == "e1":
            task = asyncio.create_task(asyncio.sleep(5.0))
            task.cancel()
            await task
        return scored(1.0)


async def test_a_cancellation_from_within_a_provider_voids_the_pair_and_the_run_goes_on() -> None:
    scene = Scene({"a": Careless("p", always(1.0))}, n_examples=4, selector="uniform")
    async with asyncio.timeout(1e4):
        assert await (await scene.open()).run() is End.EXHAUSTED
    told = [event.outcome for event in await scene.events() if isinstance(event, Told)]
    (failed,) = [outcome.failure for outcome in told if outcome.failure]
    assert (failed.kind, failed.blame) == (FailureKind.INTERNAL, Blame.HARNESS)


# minutes


def test_the_minutes_end_the_run() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=1, budget=Budget(seconds=5.5))
    assert scene.run() is End.BUDGET
    assert scene.loop.record.state.n_told == 5
    assert scene.loop.seconds == 5.5
    spent = scene.loop.ledger.spent.usd_nanos
    assert spent == 5 * 60 + 100, "the call in flight is cut off and charged at its bound"
    assert list(scene.loop.record.state.pending) == [5]


def test_no_call_is_begun_that_would_usually_not_end_in_time() -> None:
    actor = Actor("p", lambda *_: replace(scored(0.5), seconds=1.0))
    scene = Scene({"a": actor}, in_flight=1, budget=Budget(seconds=5.5))
    assert scene.run() is End.BUDGET
    assert (scene.loop.record.state.n_told, scene.loop.seconds) == (5, 5.0)
    assert scene.loop.ledger.spent.usd_nanos == 5 * 60
    assert not scene.loop.record.state.pending


async def test_minutes_that_end_before_the_first_score_are_no_success_and_stay_spent() -> None:
    actor = Actor("p", always(0.5), latency=lambda _: 60.0)
    loop = await Scene({"a": actor}, in_flight=2, budget=Budget(seconds=10.0)).open()
    for _ in range(2):
        assert (await loop.run()) is End.FAILURES
        assert (loop.seconds, loop.record.state.n_told, len(actor.sent)) == (10.0, 0, 2)


async def test_the_minutes_of_a_killed_sitting_count() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=1, budget=Budget(seconds=5.5))
    loop = await scene.open()
    outcome = Outcome(Score(0.5), seconds=1.0)
    lost: list[Event] = [Asked(0, 0, 0, "ucb"), Told(0, outcome, 0.5, elapsed=3.0)]
    for event in lost:
        loop.record.record(event, is_known=False)
    assert loop.seconds == 3.0
    assert (await loop.run()) is End.BUDGET
    state = loop.record.state
    assert state.n_told == 1 + 2, "three seconds were gone"
    assert [session.stopped is None for session in state.sessions] == [True, False]
    assert state.seconds == 5.5


@pytest.mark.parametrize("kind", [FailureKind.OVERLOADED, FailureKind.RATE_LIMITED])
def test_the_minutes_bind_retries_and_pauses(kind: FailureKind) -> None:
    error, policy = failing(kind, retry_after=50.0), RetryPolicy(max_attempts=100)
    actor, budget = Actor("p", lambda *_: error), Budget(seconds=120.0)
    scene = Scene({"a": actor}, n_examples=8, budget=budget, policy=policy)
    assert scene.run() is not End.EXHAUSTED
    assert scene.loop.seconds == 120.0
    assert scene.loop.ledger.outstanding == Spend()


def test_calls_to_be_repeated_are_awaited_before_candidates_count_as_level() -> None:
    """A third of the first calls of the best one fail, and what is left shows no difference."""
    busy = failing(FailureKind.OVERLOADED, retry_after=3.0)

    def right(request: Request, before: int) -> Reply | ProviderError:
        return scored(1.0) if before or int(request.example[1:]) % 3 != 1 else busy

    def mostly(request: Request, _: int) -> Reply:
        return scored(float(int(request.example[1:]) % 10 > 0))

    actors = {"a": Actor("p", right), "b": Actor("q", mostly)}
    scene = Scene(actors, n_examples=100, selector="auto", stops=True)
    assert scene.run() is End.SEPARATED
    assert not scene.loop.record.state.pending


# interruption


async def test_stopping_books_what_is_in_flight() -> None:
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=4)
    assert (await scene.stopped(1.5)) is End.INTERRUPTED
    assert scene.loop.record.state.n_told == 8
    assert not scene.loop.record.state.pending


async def test_aborting_leaves_pairs_pending_and_a_second_sitting_sends_them_again() -> None:
    loop = await Scene({"a": Actor("p", always(0.5))}, in_flight=4).cut_off(1.5)
    state = loop.record.state
    assert sorted(state.pending) == [4, 5, 6, 7]
    assert (await loop.run()) is End.EXHAUSTED
    assert sorted(state.order.tolist()) == list(range(20))
    reasons = [session.stopped.reason for session in state.sessions if session.stopped]
    assert reasons == ["interrupted", "exhausted"]


def asked_before(loop: RunLoop, count: int) -> None:
    """As if an earlier process had asked for pairs, sent them, and been killed."""
    for ask in loop.record.pairs.ask(count):
        loop.record.record(Asked(ask.seq, *ask.pair, ask.reason))


@pytest.mark.parametrize(
    ("n_examples", "before", "budget", "sent", "spent"),
    [
        (10, 4, Budget(calls=6), 2, (6, 520)),
        (3, 3, Budget(usd_nanos=330), 0, (3, 300)),  # they wait for more budget
    ],
)
async def test_calls_that_a_crash_cut_off_do_not_take_a_run_beyond_its_cap(
    n_examples: int, before: int, budget: Budget, sent: int, spent: tuple[int, int]
) -> None:
    actor = Actor("p", always(1.0))
    loop = await Scene({"a": actor}, n_examples=n_examples, in_flight=4, budget=budget).open()
    asked_before(loop, before)
    assert (await loop.run()) is End.BUDGET
    assert len(actor.sent) == sent, "all of them may have been sent before"
    assert (loop.ledger.spent.calls, loop.ledger.spent.usd_nanos) == spent
    assert loop.ledger.outstanding == Spend()
    assert len(loop.record.state.pending) == before - sent


async def test_a_reply_that_an_earlier_process_bought_waits_for_a_budget() -> None:
    """Also without the cache: it is this run's own."""
    actor = Actor("p", always(1.0))
    scene = Scene({"a": actor}, n_examples=1, budget=Budget(calls=0), use_cache=False)
    loop = await scene.open()
    candidate, example = loop.pool.candidates[0], scene.examples[0]
    others = reply_key(actor, candidate.model.fingerprint, candidate.request(example))
    await scene.store.put_reply(others, scored(0.0))
    await scene.store.put_reply(candidate.call(example).key, scored(1.0))
    asked_before(loop, 1)
    first = await loop.run()
    loop.set_budget(Budget(calls=5))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert actor.sent == []
    (told,) = [event.outcome for event in await scene.events() if isinstance(event, Told)]
    assert told.score == Score(1.0)
    assert loop.ledger.spent == Spend(answers=1, calls=1, tokens=5, usd_nanos=60)
    assert loop.record.state.spend == loop.ledger.spent


async def test_an_end_while_the_log_is_written_leaves_nothing_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actor = Actor("p", always(1.0))
    scene = Scene({"a": actor}, n_examples=8, in_flight=4, budget=Budget(calls=8))
    loop = await scene.open()
    with monkeypatch.context() as slow:
        slow.setattr(loop.record, "flush", lambda: asyncio.sleep(10.0))
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert loop.ledger.outstanding == Spend()
    assert loop.pool.gate.inside == 0
    assert len(loop.record.state.pending) == 4
    assert (await loop.run()) is End.EXHAUSTED
    assert len(actor.sent) == 8
    assert (loop.ledger.spent, loop.ledger.outstanding) == (loop.record.state.spend, Spend())


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
    limits = RateLimits({Resource.REQUESTS: 60})
    scene = Scene({"a": Actor("p", always(0.5))}, in_flight=2, limiters={"a": limits})
    assert scene.run() is End.EXHAUSTED


@pytest.mark.parametrize("threshold", [700, 10_001, 0])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_the_collector_is_as_it_was_after_a_run_and_seldom_works_during_it(
    threshold: int, is_frozen: bool
) -> None:
    before, seen = gc.get_threshold(), list[tuple[int, bool]]()

    def answer(_request: Request, _before: int) -> Reply:
        seen.append((gc.get_threshold()[0], gc.get_freeze_count() > 0))
        return scored(0.5)

    scene = Scene({"a": Actor("p", answer)}, n_examples=2)
    if not is_frozen:
        gc.unfreeze()
    gc.set_threshold(threshold)
    usual = gc.get_threshold(), gc.get_freeze_count() > 0
    try:
        scene.run()
        after = gc.get_threshold(), gc.get_freeze_count() > 0
    finally:
        gc.freeze()
        gc.set_threshold(*before)
    during = (10_000, True) if threshold == 700 else (threshold, is_frozen)
    assert set(seen) == {during}, "who wants it off, or more seldom, gets it so"
    assert after == usual
