"""A pair that was put off: what it gives back, and what it keeps."""

from __future__ import annotations

import pytest

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.call import AttemptLog
from bestarm_agent.engine.evaluate import Evaluation
from bestarm_agent.engine.ledger import Ledger
from tests.support.runs import Actor, Scene, logged_nowhere, scored

BOUND = Spend(calls=1, tokens=10, usd_nanos=100)


def unsent(ledger: Ledger, *, resent: bool = False) -> Evaluation:
    scene = Scene({"a": Actor("p", lambda *_: scored(1.0))}, n_examples=1)
    (candidate,) = scene.candidates(scene.clients(ledger), Spend())
    return Evaluation(candidate, scene.examples[0], AttemptLog(logged_nowhere, resent=resent))


async def test_a_pair_that_is_not_sent_gives_back_all_that_it_holds() -> None:
    ledger = Ledger(Budget())

    pair = unsent(ledger)
    pair.call.permit = pair.call.model.limits.take(pair.call.request, BOUND)
    assert pair.call.permit is not None
    assert pair.reserve(BOUND, BOUND)
    assert ledger.outstanding == BOUND + BOUND + Spend(pulls=1)
    pair.let_go()
    call = pair.call
    assert (call.permit, call.reservation) == (None, None)
    assert ledger.outstanding == ledger.spent == Spend()


@pytest.mark.parametrize(
    ("before", "spend", "obstacle", "resent"),
    [
        (False, Spend(), None, False),
        (False, Spend(calls=1), None, True),
        (False, Spend(), Exception("bad key"), True),
        (True, Spend(), None, True),
    ],
)
def test_a_pair_that_was_put_off_begins_anew_and_keeps_its_history(
    before: bool, spend: Spend, obstacle: Exception | None, resent: bool
) -> None:
    pair = unsent(Ledger(Budget()), resent=before)
    first = pair.call
    first.spend, first.tries.n_failures, pair.obstacle = spend, 2, obstacle
    first.is_logged = True
    pair.begin_again()
    assert (pair.call.resent, pair.spend, pair.obstacle) == (resent, spend, None)
    assert pair.call is not first
    assert (pair.call.tries.n_failures, pair.call.spend) == (0, Spend())
    assert not pair.call.is_logged, "the ask stood for the first call alone"
