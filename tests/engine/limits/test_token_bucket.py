"""A bucket: hand-computed waits, and that no minute ever holds more than the allowance."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.engine.limits.rates import BURST, MINUTE, SLACK, TokenBucket
from bestarm_agent.engine.limits.refusals import Hold

# 6,060 a minute: 100 come back in a second, and the bucket holds 60.6.
HUNDRED_A_SECOND = 6060.0


def test_a_bucket_refills_evenly() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    assert bucket.wait(60.0, 0.0) == 0.0
    bucket.send(bucket.reserve(60.0), 0.0)
    assert bucket.level(0.0) == pytest.approx(0.6)
    assert bucket.wait(10.0, 0.0) == pytest.approx(0.094)
    assert bucket.wait(10.0, 0.05) == pytest.approx(0.044)
    assert bucket.level(10.0) == pytest.approx(60.6), "no more than it holds"


def test_a_need_above_the_bucket_waits_for_a_full_one_and_leaves_a_debt() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    assert bucket.wait(110.0, 0.0) == 0.0
    bucket.send(bucket.reserve(110.0), 0.0)
    assert bucket.level(0.0) == pytest.approx(-49.4)
    assert bucket.wait(110.0, 0.0) == pytest.approx(1.1), "the pace is kept on average"


def test_a_need_above_the_allowance_counts_as_the_allowance() -> None:
    bucket = TokenBucket(100.0, now=0.0)
    first = bucket.reserve(1000.0)
    bucket.send(first, 0.0)
    assert first.amount == 100.0
    assert bucket.wait(1000.0, 60.0) == pytest.approx(SLACK), "an empty window is enough"
    assert bucket.wait(1000.0, 60.6) == 0.0


def test_unused_amounts_go_back_and_missing_ones_are_owed() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    small, large = bucket.reserve(40.0), bucket.reserve(20.0)
    bucket.send(small, 0.0)
    bucket.send(large, 0.0)
    bucket.settle(small, 10.0, 0.0)
    assert bucket.level(0.0) == pytest.approx(30.6)
    bucket.settle(large, 70.0, 0.0)
    assert bucket.level(0.0) == pytest.approx(-19.4)
    assert bucket.used(0.0) == 80.0
    assert bucket.reserved == 80.0


def test_what_was_not_sent_leaves_no_trace() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    hold = bucket.reserve(50.0)
    bucket.refund(hold, 0.0)
    assert [bucket.level(0.0), bucket.used(0.0), bucket.reserved] == pytest.approx([60.6, 0.0, 0.0])


def test_the_window_binds_after_a_lull() -> None:
    """Burst plus a minute's refill would be 1 % too much: the window holds the last of it back."""
    bucket = TokenBucket(600.0, now=0.0)
    sent, now = 0, 0.0
    while now < 60.5:
        wait = bucket.wait(1.0, now)
        if wait > 0:
            now += wait
            continue
        bucket.send(bucket.reserve(1.0), now)
        sent += 1
    assert sent == 600


def test_a_settlement_after_the_minute_changes_the_bucket_alone() -> None:
    bucket = TokenBucket(600.0, now=0.0)
    hold = bucket.reserve(5.0)
    bucket.send(hold, 0.0)
    assert bucket.used(61.0) == 0.0
    bucket.settle(hold, 9.0, 61.0)
    assert bucket.used(61.0) == 0.0
    assert bucket.level(61.0) == pytest.approx(2.0)


def test_room_is_how_many_fit() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    assert bucket.room(10.0, 0.0) == 6
    assert bucket.room(100.0, 0.0) == 1
    bucket.send(bucket.reserve(60.0), 0.0)
    assert bucket.room(10.0, 0.0) == 0
    tight = TokenBucket(10.0, now=0.0)
    assert tight.room(0.25, 0.0) == 4, "the bucket holds one at least"


def test_it_is_full_once_time_adds_no_room_neither_in_the_bucket_nor_in_the_window() -> None:
    bucket = TokenBucket(600.0, now=0.0)
    bucket.send(bucket.reserve(595.0), 0.0)
    seen = [(bucket.is_full(1.0, at), bucket.room(1.0, at)) for at in (30.0, 60.2, 60.7, 300.0)]
    assert seen == [(False, 0), (False, 5), (True, 6), (True, 6)]


def test_a_servers_word_lowers_the_level_and_never_raises_it() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    hold = bucket.reserve(10.0)
    bucket.send(hold, 0.0)
    bucket.lower(1000.0, hold, 0.0)
    assert bucket.level(0.0) == pytest.approx(50.6)
    bucket.lower(20.0, hold, 0.0)
    assert bucket.level(0.0) == 20.0


def test_a_servers_word_is_corrected_by_what_was_reserved_since() -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    asked = bucket.reserve(10.0)
    bucket.send(asked, 0.0)
    bucket.reserve(45.0)  # after the call that the word answers: the server has not counted it
    bucket.lower(30.0, asked, 0.2)  # 20 have come back since
    assert bucket.level(0.2) == pytest.approx(30.0 - (45.0 - 20.0))


class Schedule:
    """Calls as they leave under a bucket, with what a server counts of them."""

    def __init__(self, per_minute: float) -> None:
        self.bucket = TokenBucket(per_minute, now=0.0)
        self.now = 0.0
        self.open: list[Hold] = []
        self.all: list[Hold] = []

    def step(self, need: float, lull: float, use: float) -> None:
        """Wait a while, send one call as soon as it may leave, and settle the oldest open one."""
        self.now += lull
        while (wait := self.bucket.wait(need, self.now)) > 0:
            assert wait < math.inf
            self.now += wait
        hold = self.bucket.reserve(need)
        self.bucket.send(hold, self.now)
        self.open.append(hold)
        self.all.append(hold)
        if len(self.open) > 3:
            oldest = self.open.pop(0)
            self.bucket.settle(oldest, use * oldest.amount, self.now)


@pytest.mark.slow
@given(
    per_minute=st.integers(1, 400),
    steps=st.lists(
        st.tuples(
            st.floats(0.5, 500.0),
            st.floats(0.0, 1.0) | st.floats(0.0, 100.0),
            st.floats(0.0, 1.0),
        ),
        max_size=60,
    ),
)
def test_no_minute_holds_more_than_the_allowance(
    per_minute: int, steps: list[tuple[float, float, float]]
) -> None:
    schedule = Schedule(per_minute)
    for need, lull, use in steps:
        schedule.step(need, lull, use)
    for first in schedule.all:
        within = [
            h.amount for h in schedule.all if 0 <= h.sent_at - first.sent_at < MINUTE + SLACK - 1e-5
        ]
        assert sum(within) <= per_minute + 1e-6


@given(needs=st.lists(st.floats(0.5, 50.0), min_size=2, max_size=60))
def test_the_pace_is_even(needs: list[float]) -> None:
    """In any stretch at most the burst, one call and the refill: no herd at a window's start."""
    per_minute = 600.0
    schedule = Schedule(per_minute)
    for need in needs:
        schedule.step(need, 0.0, 1.0)
    rate, burst = per_minute / (MINUTE + SLACK), BURST * per_minute
    for i, first in enumerate(schedule.all):
        total = 0.0
        for later in schedule.all[i:]:
            total += later.amount
            assert total <= max(burst, later.amount) + rate * (later.sent_at - first.sent_at) + 1e-3


@given(
    calls=st.lists(
        st.tuples(st.floats(0.0, 90.0), st.sampled_from(["settle", "refund", "open"])), max_size=40
    )
)
def test_what_was_reserved_is_settled_refunded_or_open(calls: list[tuple[float, str]]) -> None:
    bucket = TokenBucket(HUNDRED_A_SECOND, now=0.0)
    kept = 0.0
    for amount, fate in calls:
        hold = bucket.reserve(amount)
        if fate == "refund":
            bucket.refund(hold, 0.0)
            continue
        bucket.send(hold, 0.0)
        if fate == "settle":
            bucket.settle(hold, amount / 2, 0.0)
        kept += hold.amount
    assert bucket.reserved == pytest.approx(kept)
    assert bucket.used(0.0) == pytest.approx(kept)
