"""The search: slow start, cuts and the curve, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.engine.limits.rates import SearchedRate
from bestarm_agent.engine.limits.refusals import Hold


def searching() -> SearchedRate:
    return SearchedRate(0.0)


def unbounded() -> SearchedRate:
    """One whose slow start has gone far: no curve reaches what it allows."""
    search = searching()
    search._ceiling = math.inf
    return search


def sent(search: SearchedRate, at: float) -> Hold:
    """A call that leaves."""
    hold = search.reserve(1.0)
    search.send(hold, at)
    return hold


def steady(search: SearchedRate, per_second: float, begin: float, end: float) -> list[Hold]:
    """Calls that leave evenly, all of them let in."""
    n = round((end - begin) * per_second)
    return [sent(search, begin + i / per_second) for i in range(n)]


def answered(search: SearchedRate, per_second: float, begin: float, end: float) -> None:
    """Answers that come evenly, the last at ``end``."""
    n = round((end - begin) * per_second)
    for i in range(n):
        search.accepted(Hold(1.0, 1.0), begin + (i + 1) / per_second)


def refused(search: SearchedRate, at: float, *, pause: float = 0.0) -> None:
    """One more call leaves, and is turned away at once."""
    search.refused(sent(search, at), at, sure=True)
    search.held(at + pause)


def cut_at_20() -> SearchedRate:
    """Cut to 90 % of what was let in in the half second before: 12 a second."""
    search = unbounded()
    steady(search, 10, 19.5, 20.0)
    refused(search, 20.0)
    return search


def cut_to_nine() -> SearchedRate:
    """10 a second were let in from the cut at 20 s to that at 40 s."""
    search = cut_at_20()
    steady(search, 10, 20.0, 39.9)
    refused(search, 40.0)
    return search


def closed_at_12() -> SearchedRate:
    search = unbounded()
    steady(search, 100, 0.0, 12.0)
    refused(search, 12.0, pause=48.0)
    return search


def test_calls_leave_evenly_after_the_first_few() -> None:
    """50 a second; those of the first 0.05 s may leave at once."""
    search, left, now = searching(), list[float](), 0.0
    while len(left) < 9:
        now += search.wait(1.0, now)
        search.reserve(1.0)
        left.append(round(now, 3))
    assert left == [0.0] * 2 + [0.01, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13]


def test_who_is_late_makes_up_for_a_twentieth_of_a_second_at_most() -> None:
    search = searching()
    for _ in range(2):
        search.reserve(1.0)
    assert [search.room(1.0, at) for at in (0.0, 0.01, 0.02, 0.03, 7.0)] == [0, 1, 1, 2, 2]
    assert search.wait(1.0, 7.0) == 0.0


def test_a_call_that_does_not_leave_makes_room() -> None:
    search = searching()
    holds = [search.reserve(1.0) for _ in range(2)]
    search.refund(holds[0], 0.0)
    assert search.room(1.0, 0.0) == 1


def test_slow_start_is_twice_as_fast_as_the_fastest_answers() -> None:
    search, rates = searching(), [50.0]
    for second, answers in enumerate([40, 80, 60]):
        answered(search, answers, second, second + 1)
        rates.append(search.rate(second + 1))
    assert rates == [50.0, 80.0, 160.0, 160.0]


def test_after_a_cut_the_rate_follows_the_curve() -> None:
    """W_max = (199 + 1) / 20 s = 10 a second; K = 20 s, since 100 calls take 10 s."""
    search = cut_to_nine()
    curve = {40.0: 9.0, 50.0: 10 - 1 / 8, 60.0: 10.0, 70.0: 10 + 1 / 8, 80.0: 11.0, 100.0: 18.0}
    assert {at: search.rate(at) for at in curve} == pytest.approx(curve)


def test_the_curve_never_passes_twice_the_fastest_answers() -> None:
    search = searching()
    answered(search, 50, 0.0, 1.0)
    refused(search, 1.0)
    assert search.rate(1000.0) == 100.0


@pytest.mark.parametrize(
    ("search", "sent", "at", "rates"),
    [
        # what was let in since the cut is the plateau: on the way back to it, and in the K = 20 s
        # before once the rate has left it
        (cut_to_nine, [(9.4, 40, 50)], 50, [0.9 * (94 + 1) / 10]),
        (cut_to_nine, [(9.7, 40, 70)], 70, [0.9 * 9.75, None, 9.75]),
        # far from the plateau the last 20 seconds count
        (cut_to_nine, [(10, 40, 80), (14, 80, 99.9)], 100, [0.9 * (279 + 1) / 20]),
        # nothing cuts upwards: no more than 10.125 a second were to leave
        (cut_to_nine, [(50, 40, 70)], 70, [0.9 * 10.125]),
        # two a second: 100 calls take 50 s, so the curve is longer
        (cut_at_20, [(2, 20, 59.5)], 60, [1.8, *[None] * 4, 2.0, *[None] * 4, 2.2]),
        # a cut keeps 15 % of the plateau, here of 12 a second: 1 / 60 s were let in
        (cut_at_20, [], 80, [0.9 * 0.15 * 12]),
        # 1,200 in the first 12 s, then the door is closed: 1,200 / 60 s, not 1 / 48 s
        (closed_at_12, [], 60, [0.9 * 1200 / 60]),
    ],
)
def test_a_cut_keeps_nine_tenths_of_what_was_let_in(
    search: Callable[[], SearchedRate],
    sent: list[tuple[float, float, float]],
    at: float,
    rates: list[float | None],
) -> None:
    """The rates after a refusal, at once and every ten seconds from then on."""
    searched = search()
    for calls in sent:
        steady(searched, *calls)
    refused(searched, at)
    for number, rate in enumerate(rates):
        if rate is not None:
            assert searched.rate(at + 10.0 * number) == pytest.approx(rate)


def test_once_the_rate_is_found_a_refusal_cuts_a_tenth_at_most() -> None:
    search = cut_to_nine()
    for i in range(8):
        refused(search, 40.1 + 0.1 * i)
    found = search.rate(41.0)
    refused(search, 41.0)
    assert search.rate(41.0) == pytest.approx(0.9 * found, rel=0.02)
    refused(search, 500.0)
    assert search.rate(500.0) == pytest.approx(0.81 * found, rel=0.02)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.floats(0.0, 30.0), st.sampled_from(["let in", "refused", "old or probe"])),
        max_size=60,
    )
)
def test_whatever_happens_there_is_a_rate_and_nobody_waits_forever(
    steps: list[tuple[float, str]],
) -> None:
    search, now = searching(), 0.0
    for seconds, fate in steps:
        now += seconds + search.wait(1.0, now)
        assert search.room(1.0, now) >= 1
        call = sent(search, now)
        now += 0.1
        if fate == "let in":
            search.accepted(call, now)
        else:
            search.refused(call, now, sure=fate == "refused")
            search.held(now + 0.5)
        assert 1 / 60 * 0.9 <= search.rate(now) < math.inf
        assert search.wait(1.0, now) <= 60 / 0.9
