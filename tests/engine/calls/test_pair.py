"""What one pair reserves, all or nothing, and what its outcome says about its cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Outcome
from bestarm_agent.engine.call import AttemptLog, Call, ReplyCache
from bestarm_agent.engine.evaluate import Evaluation, Evaluator
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.record import score_of
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.store.store import Store
from tests.support.runs import Actor, Answer, Scene, logged_nowhere, scored
from tests.support.virtual_time import run_virtual

CALL = Spend(calls=1, tokens=10, usd_nanos=100)  # the most that the candidate's call costs
JUDGING = Spend(calls=1, tokens=7, usd_nanos=30)


def reserved(budget: Budget, *, paid_before: bool = False) -> Spend | None:
    """What a pair under a judge reserves in a ledger; None if it does not fit."""
    judge = Actor("judge", lambda *_: scored(0.5), bound_spend=JUDGING)
    scene = Scene({"a": Actor("p", lambda *_: scored(0.5))}, judge=judge)
    ledger = Ledger(budget)
    clients = scene.clients(ledger)
    (candidate,) = scene.candidates(clients, Spend())
    pair = Evaluation(candidate, scene.examples[0], spend=Spend(pulls=int(paid_before)))
    taken = pair.reserve(CALL, JUDGING)
    if not taken:
        assert ledger.outstanding == Spend()
        return None
    return ledger.outstanding


@pytest.mark.parametrize(
    "budget",
    [Budget(calls=2), Budget(tokens=17), Budget(usd_nanos=130), Budget(pulls=1)],
)
def test_a_pair_reserves_attempt_judging_and_pull_together(budget: Budget) -> None:
    assert reserved(budget) == CALL + JUDGING + Spend(pulls=1)


@pytest.mark.parametrize(
    "budget",
    [Budget(calls=1), Budget(tokens=16), Budget(usd_nanos=129), Budget(pulls=0)],
)
def test_a_pair_that_does_not_fit_whole_reserves_nothing(budget: Budget) -> None:
    assert reserved(budget) is None


def test_a_pull_is_paid_once() -> None:
    assert reserved(Budget(pulls=0), paid_before=True) == CALL + JUDGING


def evaluated(
    answer: Answer, *, resent: bool = False, store: Store | None = None
) -> tuple[Outcome | None, Call]:
    """Evaluate one pair of model ``a``, which reuses what the store holds."""
    scene = Scene({"a": Actor("p", answer)}, n_examples=1, store=store)
    ledger = Ledger(Budget())
    clients = scene.clients(ledger)
    replies = ReplyCache(scene.store, ledger, use_cache=True)
    evaluator = Evaluator(replies, scene.judge_client(clients))
    (candidate,) = scene.candidates(clients, Spend())
    (example,) = scene.examples
    pair = Evaluation(candidate, example, AttemptLog(logged_nowhere, resent=resent))
    assert pair.reserve(pair.call.bound(), evaluator.judge_client.bound(example))
    outcome = run_virtual(evaluator.evaluate(pair))
    assert ledger.spent == pair.spend
    assert ledger.outstanding == Spend()
    return outcome, pair.call


@pytest.mark.parametrize("resent", [False, True])
def test_a_reply_that_the_run_bought_itself_is_not_called_cached(resent: bool) -> None:
    store = Store.in_memory()
    bought, _ = evaluated(lambda *_: scored(0.5), resent=resent, store=store)
    assert bought is not None
    assert not bought.cached
    found, call = evaluated(lambda *_: scored(0.5), resent=resent, store=store)
    assert found is not None
    assert call.found
    assert found.cached is not resent
    assert (found.spend, found.lost_spend) == (Spend(pulls=1), Spend())


TIMED_OUT = ProviderError("too slow", kind=FailureKind.TIMEOUT, transient=True)


def test_what_unanswered_attempts_cost_is_told_apart() -> None:
    late = replace(scored(0.5), seconds=0.12345678)
    scored_late, _ = evaluated(lambda _, before: late if before else TIMED_OUT)
    assert scored_late is not None
    assert scored_late.seconds == 0.123457
    assert scored_late.lost_spend == CALL, "a time-out may have been billed in full"
    assert scored_late.spend == CALL + Spend(pulls=1, calls=1, tokens=5, usd_nanos=60)


def test_all_attempts_of_a_pair_that_fails_are_lost_and_its_pull_is_not() -> None:
    failed, _ = evaluated(lambda *_: TIMED_OUT)
    assert failed is not None
    assert failed.failure is not None
    assert (failed.failure.kind, failed.lost_spend) == (FailureKind.TIMEOUT, CALL + CALL + CALL)
    assert failed.spend == failed.lost_spend + Spend(pulls=1)
    assert failed.judge_spend == Spend()


BAD = ProviderError("unknown field", kind=FailureKind.BAD_REQUEST, fatal=True, blame=Blame.HARNESS)


def bad_on(bad: Collection[str]) -> tuple[list[str], str | None]:
    """Run a candidate over ten examples; return the kinds of failures, and why it was given up."""
    actor = Actor("p", lambda request, _before: BAD if request.example in bad else scored(0.5))
    scene = Scene({"a": actor}, n_examples=10, selector="uniform", in_flight=1)
    scene.run()
    told = scene.outcomes()
    assert all(score_of(one, 0.0) is None for one in told if one.failure)
    return [one.failure.kind for one in told if one.failure], scene.loop.pool.candidates[0].broken


def order_of_asks() -> list[str]:
    actor = Actor("p", lambda *_: scored(0.5))
    Scene({"a": actor}, n_examples=10, selector="uniform", in_flight=1).run()
    return [request.example for _, request in actor.sent]


def test_a_bad_request_of_a_candidate_that_answers_concerns_its_example_alone() -> None:
    asked = order_of_asks()
    apart = bad_on({asked[number] for number in (1, 2, 3, 4, 6, 7, 8, 9)})
    assert apart == ([FailureKind.BAD_REQUEST] * 8, None)


def test_a_candidate_that_never_answered_is_given_up_at_its_first_bad_request() -> None:
    assert bad_on({order_of_asks()[0]}) == ([], "unknown field")


def test_bad_requests_in_a_row_give_a_candidate_up() -> None:
    asked = order_of_asks()
    assert bad_on(set(asked[2:])) == ([FailureKind.BAD_REQUEST] * 4, "unknown field")
