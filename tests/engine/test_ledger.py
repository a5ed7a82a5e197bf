"""The budget is a hard cap, and every reserved amount is accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.ledger import Ledger, Reservation


def reserved(ledger: Ledger, amount: Spend) -> Reservation:
    found = ledger.reserve(amount)
    assert found is not None
    return found


def test_a_reservation_counts_against_the_cap_until_it_is_settled() -> None:
    ledger = Ledger(Budget(usd_nanos=100))
    first = reserved(ledger, Spend(usd_nanos=60))
    assert ledger.reserve(Spend(usd_nanos=60)) is None
    ledger.settle(first, Spend(usd_nanos=10))
    reserved(ledger, Spend(usd_nanos=90))


def test_a_reservation_is_settled_once_and_nothing_is_drawn_from_it_then() -> None:
    ledger = Ledger(Budget())
    reservation = reserved(ledger, Spend(calls=1))
    ledger.release(reservation)
    for again in (ledger.settle, ledger.draw):
        with pytest.raises(ValueError, match="settled or released before"):
            again(reservation, Spend(calls=1))


def test_more_budget_counts_from_what_was_spent() -> None:
    budget = Budget(calls=1, seconds=10.0)
    spent = Spend(calls=3, tokens=7)
    more = budget.with_room(spent, 25.0, Budget(calls=2, tokens=5))
    assert more == Budget(calls=5, tokens=12, seconds=10.0)


@pytest.mark.parametrize(
    ("budget", "spent", "amount", "room"),
    [
        (Budget(calls=3), Spend(calls=2), Spend(calls=1), 1),  # earlier sittings count
        (
            Budget(answers=10, tokens=100),
            Spend(answers=4, tokens=50),
            Spend(answers=1, tokens=20),
            2,
        ),
        (Budget(answers=10, tokens=100), Spend(answers=4, tokens=50), Spend(answers=1), 6),
        (Budget(answers=10, tokens=100), Spend(answers=4, tokens=50), Spend(calls=1), 64),  # no cap
        (Budget(calls=1), Spend(calls=1), Spend(tokens=10**9), 64),  # what costs nothing fits
        (Budget(calls=1), Spend(calls=1), Spend(calls=1), 0),
        (Budget(calls=1), Spend(calls=5), Spend(calls=1), 0),
        (Budget(gpu_seconds=0.3), Spend(), Spend(gpu_seconds=0.1), 3),  # .1 + .1 + .1 > .3
        (Budget(gpu_seconds=0.6), Spend(gpu_seconds=0.3), Spend(gpu_seconds=0.1), 3),
    ],
)
def test_room_is_how_often_an_amount_fits(
    budget: Budget, spent: Spend, amount: Spend, room: int
) -> None:
    ledger = Ledger(budget, spent=spent)
    assert ledger.room_for(amount, 64) == room
    assert ledger.affords(amount) == (room > 0)
    for _ in range(room):
        reserved(ledger, amount)
    assert room == 64 or ledger.reserve(amount) is None


def test_what_is_reserved_leaves_less_room() -> None:
    ledger = Ledger(Budget(tokens=100), Spend(tokens=10))
    held = reserved(ledger, Spend(tokens=50))
    assert ledger.room_for(Spend(tokens=20), 64) == 2
    ledger.settle(held, Spend(tokens=5))
    assert ledger.room_for(Spend(tokens=20), 64) == 4


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60), st.booleans()), max_size=60))
def test_the_cap_holds_and_the_books_reconcile(steps: list[tuple[int, int, bool]]) -> None:
    cap = 200
    ledger = Ledger(Budget(tokens=cap))
    held: list[Reservation] = []
    for bound, actual, settle_oldest in steps:
        reservation = ledger.reserve(Spend(tokens=bound))
        if reservation is not None:
            held.append(reservation)
        if settle_oldest and held:
            oldest = held.pop(0)
            ledger.settle(oldest, Spend(tokens=min(actual, oldest.amount.tokens)))
        assert ledger.spent.tokens + ledger.outstanding.tokens <= cap
        assert ledger.outstanding == sum((one.amount for one in held), Spend())
    for reservation in held:
        ledger.release(reservation)
    assert ledger.outstanding == Spend()


def test_an_overrun_is_booked() -> None:
    ledger = Ledger(Budget(tokens=10))
    ledger.settle(reserved(ledger, Spend(tokens=5)), Spend(tokens=8))
    assert (ledger.spent.tokens, ledger.outstanding.tokens) == (8, 0)


def test_a_charge_adds_to_the_spend_and_counts_against_the_caps() -> None:
    ledger = Ledger(Budget(calls=3))
    ledger.charge(Spend(calls=1, tokens=5))
    ledger.charge(Spend(calls=1))
    assert ledger.spent == Spend(calls=2, tokens=5)
    assert ledger.room_for(Spend(calls=1), 9) == 1
    ledger.charge(Spend(calls=-1))
    assert ledger.room_for(Spend(calls=1), 9) == 2


def test_a_shared_reserve_pays_several_calls_and_gives_the_rest_back() -> None:
    ledger = Ledger(Budget(usd_nanos=100))
    reserve = reserved(ledger, Spend(usd_nanos=50))
    first, second = (ledger.draw(reserve, Spend(usd_nanos=usd)) for usd in (30, 60))
    assert first is not None
    assert second is not None, "20 of the reserve and 40 of the budget"
    assert ledger.outstanding == Spend(usd_nanos=90)
    assert ledger.draw(reserve, Spend(usd_nanos=11)) is None
    ledger.settle(first, Spend(usd_nanos=5))
    ledger.release(second)
    ledger.release(reserve)
    assert ledger.outstanding == Spend()
    assert ledger.spent == Spend(usd_nanos=5)


@pytest.mark.parametrize(
    ("cap", "reserve", "draws", "is_drawn", "left", "outstanding"),
    [
        (10, 4, 11, False, 4, 4),  # more than reserve and budget hold: nothing changes
        (10, 4, 10, True, 0, 10),
        (1, 0, 1, True, 0, 1),  # an empty reserve pays from the budget
        (None, 2, 1, True, 1, 2),
    ],
)
def test_a_draw_takes_what_the_reserve_lacks_from_the_budget(
    cap: int | None, reserve: int, draws: int, is_drawn: bool, left: int, outstanding: int
) -> None:
    ledger = Ledger(Budget(tokens=cap))
    held = reserved(ledger, Spend(tokens=reserve)) if reserve else Reservation(Spend())
    drawn = ledger.draw(held, Spend(tokens=draws))
    assert (drawn is not None) == is_drawn
    assert drawn is None or drawn.amount.tokens == draws
    assert (held.amount.tokens, ledger.outstanding.tokens) == (left, outstanding)
    ledger.release(held)
    assert ledger.outstanding.tokens == outstanding - left, "what was not drawn comes back"


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 4, st.floats(0, 3)), min_size=1),
    st.tuples(*[st.none() | st.integers(0, 6)] * 5),
    st.booleans(),
)
def test_many_spends_are_compared_as_one_is(
    amounts: list[tuple[int, int, int, int, float]],
    caps: tuple[int | None, ...],
    later: bool,
) -> None:
    answers, calls, tokens, nano, seconds = caps
    budget = Budget(
        answers=answers, calls=calls, tokens=tokens, usd_nanos=nano, gpu_seconds=seconds
    )
    ledger = Ledger(budget, Spend(1, 1, 1, 1, 0.1))
    ledger.outstanding = Spend(1, 0, 2, 1, 0.2)
    each = [ledger.affords(Spend(*some), later=later) for some in amounts]
    assert ledger.affords_each(np.array(amounts), later=later).tolist() == each
