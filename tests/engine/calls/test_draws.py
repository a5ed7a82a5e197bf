"""Draws of a pair: reducers by hand, stops that change nothing, requests that differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from bestarm_agent.config.study.repeats import RepeatsSpec
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.calls.draws import Draws, request_of_draw
from bestarm_agent.engine.calls.reply_cache import reply_key
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.providers.base import Capabilities
from tests.support.runs import Actor, scored

REFUSED, VOID = "refused", "void"


def outcome(said: float | tuple[float, str] | str, number: int) -> Outcome:
    """A draw with this score, or score and answer, or failure; it is the pair's n-th call."""
    spend = Spend(pulls=1, calls=number + 1)
    if isinstance(said, str):
        blame = Blame.CANDIDATE if said == REFUSED else Blame.JUDGE
        return Failed(FailureKind.REFUSED, blame, said, spend)
    value, answer = said if isinstance(said, tuple) else (said, None)
    usage, key = Usage(output=10 + number), f"key {number}"
    return Scored(value, answer, usage, spend, 1.0 + number, key, usd_nanos=100 + number)


def drawn(draws: Draws, all_said: Sequence[float | tuple[float, str] | str]) -> list[Outcome]:
    """The draws that a pair takes of those that it would get."""
    made: list[Outcome] = []
    while not draws.is_over(made):
        made.append(outcome(all_said[len(made)], len(made)))
    return made


def reduced(reduce: str, *all_said: float | tuple[float, str] | str) -> tuple[float, int]:
    """Score of a pair, and the number of calls that it took."""
    spec = RepeatsSpec.model_validate({"draws": len(all_said), "reduce": reduce})
    draws = Draws(spec, failed_score=0.0)
    made = drawn(draws, all_said)
    result = draws.outcome(made)
    assert isinstance(result, Scored)
    assert len(result.draws) == result.spend.calls == len(made)
    return result.value, len(made)


@pytest.mark.parametrize(
    ("reduce", "said", "value", "calls"),
    [
        ("mean", (1.0, 0.0, 0.5), 0.5, 3),
        ("mean", (1.0, REFUSED, REFUSED, 1.0), 0.5, 4),
        ("pass@k", (0.0, 0.4, 0.5), 1.0, 3),
        ("pass@k", (0.0, 1.0, 0.0), 1.0, 2),
        ("pass@k", (0.4, 0.0, REFUSED), 0.0, 3),
        ("worst", (1.0, 0.3, 0.6), 0.3, 3),
        ("worst", (1.0, 0.0, 1.0), 0.0, 2),
        ("worst", (1.0, REFUSED, 1.0), 0.0, 2),
        ("majority", ((0.0, "7"), (1.0, "8"), (1.0, "8")), 1.0, 3),
        ("majority", ((0.0, "7"), (0.0, "7"), (1.0, "8")), 0.0, 2),
        ("majority", ((0.0, "7"), (1.0, "8"), (0.0, "9")), 0.0, 3),  # of equals, the first
        ("majority", ((0.0, "7"), REFUSED, REFUSED, (1.0, "8"), (1.0, "8")), 1.0, 5),
        ("majority", (0.9, 0.6, 0.1), 1.0, 2),  # no answers are read: most are right
        ("majority", (0.4, 0.6, 0.1), 0.0, 3),
        ("majority", (0.5, 0.6, 0.1), 1.0, 2),
    ],
)
def test_reducers_by_hand(
    reduce: str, said: tuple[float | tuple[float, str] | str, ...], value: float, calls: int
) -> None:
    assert reduced(reduce, *said) == (value, calls)


POSSIBLE = {
    "pass@k": (0.0, 0.6, REFUSED),
    "worst": (0.0, 0.6, 1.0, REFUSED),
    "majority": ((1.0, "7"), (0.0, "8"), (0.0, "9"), REFUSED, 0.2),
}


@pytest.mark.parametrize("reduce", POSSIBLE)
def test_an_early_stop_changes_no_score_and_comes_as_early_as_it_can(reduce: str) -> None:
    spec = RepeatsSpec.model_validate({"draws": 4, "reduce": reduce})
    early, whole = Draws(spec, 0.0), Draws(spec, 0.0, stops_early=False)
    shown: dict[tuple[object, ...], set[object]] = {}  # what may come of the first draws

    def shown_by(result: Outcome) -> object:
        if isinstance(result, Failed):
            return 0.0
        return (result.value, result.answer) if reduce == "majority" else result.value

    stopped_after = {}
    for said in product(POSSIBLE[reduce], repeat=4):
        made = drawn(early, said)
        full = shown_by(whole.outcome(drawn(whole, said)))
        assert shown_by(early.outcome(made)) == full
        stopped_after[said] = len(made)
        for n in range(1, 5):
            shown.setdefault(said[:n], set()).add(full)
    for said, n in stopped_after.items():
        assert all(len(shown[said[:m]]) > 1 for m in range(1, n))


def test_a_draw_that_says_nothing_ends_its_pair_which_is_void() -> None:
    draws = Draws(RepeatsSpec(draws=3))
    made = drawn(draws, (1.0, VOID, 1.0))
    result = draws.outcome(made)
    assert isinstance(result, Failed)
    assert (result.blame, result.spend.calls) == (Blame.JUDGE, 2)
    assert [draw.value for draw in result.draws] == [1.0]


def test_a_candidate_that_fails_on_every_draw_failed() -> None:
    draws = Draws(RepeatsSpec(draws=2), failed_score=0.25)
    result = draws.outcome(drawn(draws, (REFUSED, REFUSED)))
    assert isinstance(result, Failed)
    assert (result.blame, result.spend.calls) == (Blame.CANDIDATE, 2)
    assert [draw.value for draw in result.draws] == [0.25, 0.25]


def test_a_pair_shows_the_draw_that_decided_and_the_price_of_its_first_call() -> None:
    draws = Draws(RepeatsSpec(draws=3, reduce="pass@k"))
    result = draws.outcome(drawn(draws, ((0.0, "7"), (0.5, "8"), (1.0, "8"))))
    assert isinstance(result, Scored)
    assert (result.answer, result.reply_key, result.usd_nanos) == ("8", "key 1", 100)
    assert (result.seconds, result.usage.output) == (1.0, 10)


def test_the_score_of_the_reply_that_is_shown_is_its_own() -> None:
    draws = Draws(RepeatsSpec(draws=3))
    result = draws.outcome(drawn(draws, (0.2, 0.4, 0.9)))
    assert isinstance(result, Scored)
    assert result.value == pytest.approx(0.5)
    assert result.shown_value == 0.2
    alone = outcome(0.7, 0)
    assert isinstance(alone, Scored)
    assert alone.shown_value == 0.7


def test_measures_are_the_means_of_all_draws() -> None:
    draws = Draws(RepeatsSpec(draws=2, reduce="pass@k"), stops_early=False)
    made = [
        Scored(1.0, None, Usage(), Spend(), 1.0, "k", cached=cached, measures=measures)
        for cached, measures in ((True, (0.2, 1.0)), (False, (0.4, None)))
    ]
    result = draws.outcome(made)
    assert isinstance(result, Scored)
    mean, unknown = result.measures
    assert mean == pytest.approx(0.3)
    assert unknown is None
    assert not result.cached, "one of its draws was bought"


def test_one_draw_is_the_pair_itself() -> None:
    alone = outcome(0.7, 0)
    assert Draws().outcome([alone]) is alone


PLAIN = Capabilities(params=frozenset({"temperature", "seed"}))
SEEDED = Capabilities(params=frozenset({"temperature", "seed"}), seed=True)


def test_draws_have_keys_of_their_own_and_the_first_that_of_a_pair_drawn_once() -> None:
    actor, first = Actor("p", lambda *_: scored(1.0)), Request("m", text="?", params={})
    keys = [reply_key(actor, "fingerprint", request_of_draw(first, n, PLAIN)) for n in range(3)]
    assert keys[0] == reply_key(actor, "fingerprint", first)
    assert len(set(keys)) == 3
    assert keys[0] == "24b26b8d08030236fa45bd726b9fb26c", "a reply bought before is found"


@pytest.mark.parametrize(
    ("able", "params", "seeds"),
    [
        (PLAIN, {}, [None, None, None]),  # it samples anew at every call
        (PLAIN, {"seed": 7}, [7, 1_000_007, 2_000_007]),
        (PLAIN, {"seed": None}, [None, 1_000_000, 2_000_000]),
        (SEEDED, {}, [None, 1_000_000, 2_000_000]),  # a call without a seed has a fixed one
    ],
)
def test_a_seed_differs_by_draw(
    able: Capabilities, params: dict[str, int | None], seeds: list[int | None]
) -> None:
    first = Request("m", text="?", params=params)
    requests = [request_of_draw(first, n, able) for n in range(3)]
    assert [request.params.get("seed") for request in requests] == seeds
