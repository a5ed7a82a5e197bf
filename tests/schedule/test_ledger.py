"""The budget is a hard cap, and every reserved amount is accounted for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.ledger import Ledger, Reservation
from bestarm_agent.schedule.purse import Purse


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
        balance = ledger.balance()
        assert balance.spent.tokens + balance.outstanding.tokens <= cap
        assert balance.reserved_ever == balance.settled + balance.refunded + balance.outstanding
        assert balance.overrun == Spend()
    for reservation in held:
        ledger.release(reservation)
    assert ledger.balance().outstanding == Spend()


def test_an_overrun_is_booked_and_shown() -> None:
    ledger = Ledger(Budget(tokens=10))
    reservation = ledger.reserve(Spend(tokens=5))
    assert reservation is not None
    ledger.settle(reservation, Spend(tokens=8))
    balance = ledger.balance()
    assert (balance.spent.tokens, balance.overrun.tokens) == (8, 3)


def test_a_purse_pays_several_calls_and_gives_the_rest_back() -> None:
    ledger = Ledger(Budget(usd_nanos=100))
    reserved = ledger.reserve(Spend(usd_nanos=50))
    assert reserved is not None
    purse = Purse(ledger, reserved)
    first, second = purse.draw(Spend(usd_nanos=30)), purse.draw(Spend(usd_nanos=60))
    assert first is not None
    assert second is not None, "20 of the purse and 40 of the budget"
    assert ledger.balance().outstanding == Spend(usd_nanos=90)
    assert purse.draw(Spend(usd_nanos=11)) is None
    ledger.settle(first, Spend(usd_nanos=5))
    purse.note(Attempts(second, Spend(usd_nanos=7)))
    purse.close()
    purse.close()
    balance = ledger.balance()
    assert balance.outstanding == Spend()
    assert balance.reserved_ever == balance.settled + balance.refunded == Spend(usd_nanos=90)
    assert balance.spent == Spend(usd_nanos=5)
    assert purse.spent == Spend(usd_nanos=7)


def test_a_reservation_is_parted_once() -> None:
    ledger = Ledger(Budget())
    purse = ledger.reserve(Spend(calls=2))
    assert purse is not None
    assert ledger.draw(purse, Spend(calls=1)) is not None
    with pytest.raises(ValueError, match="settled or released before"):
        ledger.draw(purse, Spend(calls=1))
