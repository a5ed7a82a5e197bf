"""A call that was put off: what it gives back, and what it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bestarm_agent.domain.request_reply import Request
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.retrying import Call, Origin
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.testing.virtual_time import run_virtual
from tests.support.runs import Actor, Scene, scored

BOUND = Spend(calls=1, tokens=10, usd_nanos=100)


def unsent(ledger: Ledger) -> Call:
    client = Scene({}).client(Actor("p", lambda *_: scored(1.0)), ledger)
    return Call(client, "", Request("m", text="?"))


def test_a_call_that_is_not_sent_gives_back_all_that_it_holds() -> None:
    ledger = Ledger(Budget())

    async def play() -> Call:
        call = unsent(ledger)
        call.permit = call.limiter.take(call.request, BOUND)
        assert call.permit is not None
        call.reservation = ledger.reserve(BOUND)
        call.judging = SharedReserve(ledger, ledger.reserve(BOUND))
        assert ledger.balance().outstanding == BOUND + BOUND
        call.let_go()
        return call

    call = run_virtual(play())
    assert (call.permit, call.reservation) == (None, None)
    assert ledger.balance().outstanding == ledger.spent == Spend()


@pytest.mark.parametrize(
    ("origin", "spend", "obstacle", "renewed"),
    [
        (Origin.FRESH, Spend(), None, Origin.FRESH),
        (Origin.FRESH, Spend(calls=1), None, Origin.RESENT),
        (Origin.FRESH, Spend(), Exception("bad key"), Origin.RESENT),
        (Origin.INHERITED, Spend(calls=1), None, Origin.INHERITED),
    ],
)
def test_a_pair_that_was_put_off_begins_anew_and_keeps_its_history(
    origin: Origin, spend: Spend, obstacle: Exception | None, renewed: Origin
) -> None:
    call = replace(
        unsent(Ledger(Budget())),
        origin=origin,
        spend=spend,
        obstacle=obstacle,
        n_failures=2,
        began=7.0,
        is_logged=True,
    )
    call.renew()
    assert (call.origin, call.spend, call.obstacle) == (renewed, spend, None)
    assert (call.n_failures, call.began, call.is_logged) == (0, None, False)
