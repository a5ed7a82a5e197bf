"""Runs whose pairs are drawn several times: calls, reservations, caps, crashes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from bestarm_agent.config.study.repeats import RepeatsSpec
from bestarm_agent.domain.events import Attempted
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.draws import Draws
from bestarm_agent.engine.results.cost_breakdown import cost_breakdown
from bestarm_agent.engine.results.failures import failures_of
from bestarm_agent.engine.run.stopping import End
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.testing.virtual_time import run_virtual
from tests.engine.model_turns.test_candidate_mask import play_judged
from tests.engine.test_crashes import Exit, SlowStore, finished, interrupted
from tests.engine.test_reservations import exact
from tests.support.runs import Actor, Scene, scored

THREE = Draws(RepeatsSpec(draws=3))


def by_draw(request: Request, _before: int) -> Reply:
    """Right on the second draw alone."""
    return scored(float(request.draw == 1))


def test_a_pair_is_told_once_with_the_mean_of_its_draws() -> None:
    actor = Actor("p", by_draw)
    scene = Scene({"a": actor}, n_examples=6, in_flight=4, draws=THREE)
    assert scene.run() is End.EXHAUSTED
    state = scene.loop.state
    assert Counter(request.example for _, request in actor.sent) == {f"e{j}": 3 for j in range(6)}
    assert state.spend == Spend(pulls=6, calls=18, tokens=90, usd_nanos=1080)
    for told in state.told.values():
        assert isinstance(told.outcome, Scored)
        assert told.score == told.outcome.value == pytest.approx(1 / 3)
        assert [draw.value for draw in told.outcome.draws] == [0.0, 1.0, 0.0]
        assert len({draw.reply_key for draw in told.outcome.draws}) == 3
    assert actor.most == 4, "the draws of a pair take its place one after the other"


def test_failures_of_single_draws_are_counted() -> None:
    refusal = ProviderError("no", kind=FailureKind.REFUSED, blame=Blame.CANDIDATE)
    actor = Actor("p", lambda request, _: refusal if request.draw else scored(0.9))
    scene = Scene({"a": actor}, n_examples=4, draws=THREE)
    assert scene.run() is End.EXHAUSTED
    assert [told.score for told in scene.loop.state.told.values()] == [pytest.approx(0.3)] * 4
    (line,) = failures_of(scene.loop.state)
    assert (line.label, line.kind, line.blame, line.count) == ("a", "refused", "candidate", 8)


def test_every_draw_after_the_first_is_logged_before_it_is_sent() -> None:
    scene = Scene({"a": Actor("p", by_draw)}, n_examples=2, in_flight=1, draws=THREE)
    assert scene.run() is End.EXHAUSTED
    events = run_virtual(scene.events())
    logged = Counter(one.seq for one in events if isinstance(one, Attempted))
    assert logged == {0: 2, 1: 2}, "asking stands for the first draw"


@pytest.mark.parametrize("reduce", ["pass@k", "majority", "worst"])
def test_a_pair_that_is_decided_gives_back_what_its_draws_reserved(reduce: str) -> None:
    actor = Actor("p", lambda *_: scored(0.0 if reduce == "worst" else 1.0))
    draws = Draws(RepeatsSpec.model_validate({"draws": 5, "reduce": reduce}))
    scene = Scene({"a": actor}, n_examples=4, in_flight=2, budget=Budget(calls=30), draws=draws)
    assert scene.run() is End.EXHAUSTED
    assert len(actor.sent) == 4 * (3 if reduce == "majority" else 1)
    assert scene.loop.ledger.balance().outstanding == Spend()


@pytest.mark.parametrize("judged", [False, True])
def test_a_cap_on_calls_leaves_no_pair_half_drawn(judged: bool) -> None:
    actor = Actor("p", lambda request, _: Reply(f"draw {request.draw}", score=0.5))
    judge = Actor("judge", lambda *_: Reply("0.5")) if judged else None
    budget = Budget(calls=20)
    scene = Scene({"a": actor}, n_examples=9, in_flight=8, budget=budget, judge=judge, draws=THREE)
    assert scene.run() is End.BUDGET
    state = scene.loop.state
    assert len(state.told) == (3 if judged else 6)
    assert not state.pending
    assert state.spend.calls <= 18


def test_the_draws_of_a_pair_with_a_model_as_judge_enter_all_gates_again() -> None:
    actor = Actor("p", lambda request, _: Reply(f"0.{request.draw}"))
    judge = Actor("judge", lambda request, _: Reply((request.text or "").split()[-1]))
    scene = Scene(
        {"a": actor}, n_examples=12, in_flight=6, provider_in_flight=2, judge=judge, draws=THREE
    )
    assert scene.run() is End.EXHAUSTED
    assert actor.most == 2
    scores = [told.score for told in scene.loop.state.told.values()]
    assert scores == [pytest.approx(0.1)] * 12
    assert scene.loop.pool.gate.inside == 0


def test_draws_wait_for_a_judge_that_has_no_room_beside_their_model() -> None:
    scene, box, end = play_judged(turns=True, budget=Budget(pulls=30), draws=THREE)
    assert end is End.BUDGET
    assert not scene.loop.state.pending
    drawn = Counter((r.model, r.example) for _, r in box.sent if r.model != "judge-model")
    assert set(drawn.values()) == {3}
    assert len(box.loads) < 40, "not one for every draw and judgement"


def unreliable(seed: int) -> Actor:
    """A model whose calls fail now and then, and whose draws differ."""
    random = KeyedRandom(seed, "unreliable")
    calls = Counter[str]()

    def answer(request: Request, _before: int) -> Reply | Exception:
        calls["all"] += 1
        rng = random.at(calls["all"])
        if rng.random() < 0.2:
            return ProviderError("scripted", kind=FailureKind.TIMEOUT, transient=True)
        return scored(float(rng.random() < 0.5))

    return Actor("p", answer)


@pytest.mark.parametrize("reduce", ["mean", "majority"])
@pytest.mark.parametrize("seed", range(6))
def test_kills_lose_no_draw_buy_none_twice_and_keep_to_the_cap(seed: int, reduce: str) -> None:
    actor, store = unreliable(seed), SlowStore()
    draws = Draws(RepeatsSpec.model_validate({"draws": 3, "reduce": reduce}))
    stored: list[set[str]] = []

    def scene(calls: int) -> Scene:
        return Scene(
            {"a": actor},
            n_examples=16,
            in_flight=4,
            budget=Budget(calls=calls),
            store=store,
            draws=draws,
        )

    rng = KeyedRandom(seed, "kills").at(0)
    for _ in range(4):
        way = list(Exit)[int(rng.integers(3))]
        store = run_virtual(interrupted(scene(90), way, float(rng.uniform(0.5, 8.0))))
        stored.append(set(store._replies))
    last = scene(90)
    run_virtual(finished(last))
    ledger, state = last.loop.ledger, last.loop.state
    assert len(actor.sent) <= ledger.spent.calls <= 90, "every request is booked, within the cap"
    answered = Counter((request.example, request.draw) for _, request in actor.sent)
    assert len(store._replies) <= len(answered)
    assert exact(ledger.balance().reservations.difference) == Spend()
    lines = cost_breakdown(state, ledger.spent)
    assert exact(sum((line.spend for line in lines), Spend())) == exact(ledger.spent)


def test_a_pair_killed_between_draws_buys_only_what_is_missing() -> None:
    actor, store = Actor("p", by_draw), SlowStore()

    def scene() -> Scene:
        return Scene({"a": actor}, n_examples=1, store=store, draws=THREE)

    store = run_virtual(interrupted(scene(), Exit.KILL, 2.0))  # draw 0 is stored, 1 in flight
    assert [request.draw for _, request in actor.sent] == [0, 1]
    last = scene()
    assert run_virtual(finished(last)) is End.EXHAUSTED
    assert [request.draw for _, request in actor.sent] == [0, 1, 1, 2]
    (told,) = last.loop.state.told.values()
    assert told.score == pytest.approx(1 / 3)
    lost = Spend(calls=1, tokens=10, usd_nanos=100)
    assert told.outcome.lost_spend == lost, "the attempt in flight counts with its bound"
    assert told.outcome.spend == Spend(pulls=1, calls=3, tokens=15, usd_nanos=180) + lost
    assert last.loop.ledger.spent == told.outcome.spend


def test_a_second_run_finds_every_draw_in_the_cache() -> None:
    actor = Actor("p", by_draw)
    first = Scene({"a": actor}, n_examples=3, draws=THREE)
    assert first.run() is End.EXHAUSTED
    key_of = {(r.example, r.draw) for _, r in actor.sent}
    again = Scene({"a": actor}, n_examples=3, draws=THREE)
    again.store._replies = first.store._replies
    assert again.run() is End.EXHAUSTED
    assert len(actor.sent) == len(key_of) == 9
    assert again.loop.state.spend == Spend(pulls=3)
    assert all(
        isinstance(told.outcome, Scored) and told.outcome.cached
        for told in again.loop.state.told.values()
    )


async def _cancelled(scene: Scene, seconds: float) -> None:
    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.wait([running], timeout=seconds)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert loop.ledger.balance().outstanding == Spend()
    assert loop.pool.gate.inside == 0
    assert await loop.run() is End.EXHAUSTED


def test_a_cancelled_run_goes_on_from_the_first_draw_that_is_missing() -> None:
    actor = Actor("p", by_draw)
    scene = Scene({"a": actor}, n_examples=1, draws=THREE, use_cache=False)
    run_virtual(_cancelled(scene, 1.5))
    assert [request.draw for _, request in actor.sent] == [0, 1, 1, 2]
    assert scene.loop.ledger.spent == scene.loop.state.spend
