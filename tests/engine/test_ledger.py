"""The budget is a hard cap, and every reserved amount is accounted for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.ledger import Ledger, Reservation


def test_a_reservation_counts_against_the_cap_until_it_is_settled() -> None:
    ledger = Ledger(Budget(usd_nanos=100))
    first = ledger.reserve(Spend(usd_nanos=60))
    assert first is not None
    assert ledger.reserve(Spend(usd_nanos=60)) is None
    ledger.settle(first, Spend(usd_nanos=10))
    assert ledger.reserve(Spend(usd_nanos=90)) is not None


def test_earlier_sittings_count() -> None:
    ledger = Ledger(Budget(calls=3), spent=Spend(calls=2))
    assert ledger.reserve(Spend(calls=1)) is not None
    assert ledger.reserve(Spend(calls=1)) is None


def test_a_reservation_is_settled_once() -> None:
    ledger = Ledger(Budget())
    reservation = ledger.reserve(Spend(calls=1))
    assert reservation is not None
    ledger.release(reservation)
    with pytest.raises(ValueError, match="settled or released before"):
        ledger.settle(reservation, Spend(calls=1))


def test_more_budget_counts_from_what_was_spent() -> None:
    budget = Budget(calls=1, seconds=10.0)
    spent = Spend(calls=3, tokens=7)
    more = budget.with_room(spent, 25.0, Budget(calls=2, tokens=5))
    assert more == Budget(calls=5, tokens=12, seconds=10.0)


def test_room_is_how_often_an_amount_fits() -> None:
    ledger = Ledger(Budget(pulls=10, tokens=100), spent=Spend(pulls=4, tokens=50))
    assert ledger.room_for(Spend(pulls=1, tokens=20), 64) == 2
    assert ledger.room_for(Spend(pulls=1), 64) == 6
    assert ledger.room_for(Spend(calls=1), 64) == 64


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
    reservation = ledger.reserve(Spend(tokens=5))
    assert reservation is not None
    ledger.settle(reservation, Spend(tokens=8))
    assert (ledger.spent.tokens, ledger.outstanding.tokens) == (8, 0)


def test_a_shared_reserve_pays_several_calls_and_gives_the_rest_back() -> None:
    ledger = Ledger(Budget(usd_nanos=100))
    reserved = ledger.reserve(Spend(usd_nanos=50))
    assert reserved is not None
    first, second = (ledger.draw(reserved, Spend(usd_nanos=usd)) for usd in (30, 60))
    assert first is not None
    assert second is not None, "20 of the reserve and 40 of the budget"
    assert ledger.outstanding == Spend(usd_nanos=90)
    assert ledger.draw(reserved, Spend(usd_nanos=11)) is None
    ledger.settle(first, Spend(usd_nanos=5))
    ledger.release(second)
    ledger.release(reserved)
    assert ledger.outstanding == Spend()
    assert ledger.spent == Spend(usd_nanos=5)


def test_nothing_is_drawn_from_a_reservation_that_was_given_back() -> None:
    ledger = Ledger(Budget())
    reserve = ledger.reserve(Spend(calls=2))
    assert reserve is not None
    ledger.release(reserve)
    with pytest.raises(ValueError, match="settled or released before"):
        ledger.draw(reserve, Spend(calls=1))


def test_a_charge_adds_to_the_spend_and_counts_against_the_caps() -> None:
    ledger = Ledger(Budget(calls=3))
    ledger.charge(Spend(calls=1, tokens=5))
    ledger.charge(Spend(calls=1))
    assert ledger.spent == Spend(calls=2, tokens=5)
    assert ledger.room_for(Spend(calls=1), 9) == 1
    ledger.charge(Spend(calls=-1))
    assert ledger.room_for(Spend(calls=1), 9) == 2


def test_drawing_more_than_the_reserve_takes_the_rest_from_the_budget_or_changes_nothing() -> None:
    ledger = Ledger(Budget(tokens=10))
    reserve = ledger.reserve(Spend(tokens=4))
    assert reserve is not None
    assert ledger.draw(reserve, Spend(tokens=11)) is None
    assert ledger.outstanding == Spend(tokens=4)
    drawn = ledger.draw(reserve, Spend(tokens=10))
    assert drawn is not None
    assert (drawn.amount, reserve.amount) == (Spend(tokens=10), Spend())
    assert ledger.outstanding == Spend(tokens=10)


def test_an_empty_reserve_pays_from_the_budget() -> None:
    ledger, reserve = Ledger(Budget(calls=1)), Reservation(Spend())
    drawn = ledger.draw(reserve, Spend(calls=1))
    assert drawn is not None
    assert drawn.amount == ledger.outstanding == Spend(calls=1)
    assert ledger.draw(reserve, Spend(calls=1)) is None
    ledger.release(reserve)
    assert ledger.outstanding == Spend(calls=1)


def test_releasing_a_reserve_gives_back_what_was_not_drawn() -> None:
    ledger = Ledger(Budget())
    reserve = ledger.reserve(Spend(calls=2))
    assert reserve is not None
    assert ledger.draw(reserve, Spend(calls=1)) is not None
    ledger.release(reserve)
    assert ledger.outstanding == Spend(calls=1)


def test_no_cap_no_limit_and_what_costs_nothing_always_fits() -> None:
    full = Ledger(Budget(calls=1), spent=Spend(calls=1))
    assert full.affords(Spend(tokens=10**9))
    assert full.room_for(Spend(tokens=1), 7) == 7
    assert full.room_for(Spend(calls=1), 7) == 0
    over = Ledger(Budget(calls=1), spent=Spend(calls=5))
    assert over.room_for(Spend(calls=1), 7) == 0
