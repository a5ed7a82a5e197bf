"""What one pair reserves, all or nothing, what it keeps when put off, what its outcome says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Outcome
from bestarm_agent.engine.call import Call
from bestarm_agent.engine.evaluate import Evaluation, Evaluator
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.record import score_of
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.store.store import Store
from tests.support.runs import Actor, Answer, Scene, always, attempt_log, failing, scored
from tests.support.virtual_time import run_virtual

CALL = Spend(calls=1, tokens=10, usd_nanos=100)  # the most that the candidate's call costs
JUDGING = Spend(calls=1, tokens=7, usd_nanos=30)
FITS = {"calls": 2, "tokens": 17, "usd_nanos": 130, "answers": 1}  # a cap that is just enough


def pair_of(ledger: Ledger, *, spend: Spend | None = None) -> Evaluation:
    scene = Scene({"a": Actor("p", always(1.0))}, n_examples=1)
    (candidate,) = scene.candidates(scene.clients(ledger), Spend())
    return Evaluation(candidate, scene.examples[0], attempt_log(), spend=spend or Spend())


WHOLE = CALL + JUDGING + Spend(answers=1)


@pytest.mark.parametrize(
    ("budget", "paid_before", "reserved"),
    [
        *((Budget(**{name: most}), 0, WHOLE) for name, most in FITS.items()),
        *((Budget(**{name: most - 1}), 0, Spend()) for name, most in FITS.items()),
        (Budget(answers=0), 1, CALL + JUDGING),  # a pull is paid once
    ],
)
def test_a_pair_reserves_attempt_judging_and_pull_together_or_nothing(
    budget: Budget, paid_before: int, reserved: Spend
) -> None:
    ledger = Ledger(budget)
    pair = pair_of(ledger, spend=Spend(answers=paid_before))
    assert pair.reserve(CALL, JUDGING) == (reserved != Spend())
    assert ledger.outstanding == reserved


async def test_a_pair_that_is_not_sent_gives_back_all_that_it_holds() -> None:
    ledger = Ledger(Budget())
    pair = pair_of(ledger)
    pair.call.permit = pair.call.model.limits.take(pair.call.request, CALL)
    assert pair.call.permit is not None
    assert pair.reserve(CALL, JUDGING)
    pair.let_go()
    call = pair.call
    assert (call.permit, call.reservation) == (None, None)
    assert ledger.outstanding == ledger.spent == Spend()


@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_pair_that_was_put_off_begins_anew_and_keeps_its_history(is_begun: bool) -> None:
    pair = pair_of(Ledger(Budget()))
    first, log, spend = pair.call, pair.call.log, Spend(calls=1)
    assert log is not None
    if is_begun:
        await log.begin(first, CALL)
    first.spend, first.tries.n_failures = spend, 2
    pair.obstacle = Exception("bad key")
    pair.begin_again()
    assert [pair.call.resent, pair.spend, pair.obstacle] == [is_begun, spend, None]
    assert pair.call is not first
    assert (pair.call.tries.n_failures, pair.call.spend, pair.call.log) == (0, Spend(), log)


def evaluated(
    answer: Answer, *, resent: bool = False, store: Store | None = None
) -> tuple[Outcome | None, Call]:
    """Evaluate one pair of model ``a``, which reuses what the store holds."""
    scene = Scene({"a": Actor("p", answer)}, n_examples=1, store=store)
    ledger = Ledger(Budget())
    clients = scene.clients(ledger)
    replies = ReplyCache(scene.store, ledger)
    evaluator = Evaluator(replies, scene.judge_client(clients))
    (candidate,) = scene.candidates(clients, Spend())
    (example,) = scene.examples
    key = candidate.call(example).key
    pair = Evaluation(candidate, example, attempt_log(*[key] * resent))
    assert pair.reserve(pair.call.bound(), evaluator.judge_client.bound(example))
    outcome = run_virtual(evaluator.evaluate(pair))
    assert ledger.spent == pair.spend
    assert ledger.outstanding == Spend()
    return outcome, pair.call


@pytest.mark.parametrize("resent", [False, True])
def test_a_reply_that_the_run_bought_itself_is_not_called_cached(resent: bool) -> None:
    store = Store.in_memory()
    bought, _ = evaluated(always(0.5), resent=resent, store=store)
    assert bought is not None
    assert not bought.cached
    found, call = evaluated(always(0.5), resent=resent, store=store)
    assert found is not None
    assert call.found
    assert found.cached is not resent
    assert (found.spend, found.lost_spend) == (Spend(answers=1), Spend())


TIMED_OUT = failing(FailureKind.TIMEOUT)


def test_what_unanswered_attempts_cost_is_told_apart() -> None:
    late = replace(scored(0.5), seconds=0.12345678)
    scored_late, _ = evaluated(lambda _, before: late if before else TIMED_OUT)
    assert scored_late is not None
    assert scored_late.seconds == 0.123457
    assert scored_late.lost_spend == CALL, "a time-out may have been billed in full"
    assert scored_late.spend == CALL + Spend(answers=1, calls=1, tokens=5, usd_nanos=60)


def test_all_attempts_of_a_pair_that_fails_are_lost_and_its_pull_is_not() -> None:
    failed, _ = evaluated(lambda *_: TIMED_OUT)
    assert failed is not None
    assert failed.failure is not None
    assert (failed.failure.kind, failed.lost_spend) == (FailureKind.TIMEOUT, CALL + CALL + CALL)
    assert failed.spend == failed.lost_spend + Spend(answers=1)
    assert failed.judge_spend == Spend()


BAD = ProviderError("unknown field", kind=FailureKind.BAD_REQUEST, fatal=True, blame=Blame.HARNESS)


def asked_in_order(bad: Collection[str], error: ProviderError = BAD) -> tuple[Scene, list[str]]:
    """Run a candidate over ten examples, some bad; return the scene, and the order of asks."""
    actor = Actor("p", lambda request, _before: error if request.example in bad else scored(0.5))
    scene = Scene({"a": actor}, n_examples=10, selector="uniform", in_flight=1)
    scene.run()
    return scene, [request.example for _, request in actor.sent]


@pytest.mark.parametrize(
    ("bad", "n_failed", "problem"),
    [
        ((1, 2, 3, 4, 6, 7, 8, 9), 8, None),  # it answers: a bad request concerns its example
        ((0,), 0, "unknown field"),  # it never answered
        (range(2, 10), 4, "unknown field"),  # too many in a row
        ((1, 3, 4, 5, 6, 7, 8), 7, None),  # that many may come in a row, as some failed before
    ],
)
def test_bad_requests_give_a_candidate_up_that_does_not_answer(
    bad: Sequence[int], n_failed: int, problem: str | None
) -> None:
    _, order = asked_in_order(())
    scene, _ = asked_in_order({order[number] for number in bad})
    failed = [one for one in scene.outcomes() if one.failure]
    assert [one.failure and one.failure.kind for one in failed] == (
        [FailureKind.BAD_REQUEST] * n_failed
    )
    assert all(score_of(one, 0.0) is None for one in failed)
    assert scene.loop.pool.candidates[0].broken == problem


MISTAKE = ProviderError("KeyError: 'name'", kind=FailureKind.INTERNAL, blame=Blame.HARNESS)


@pytest.mark.parametrize(
    ("bad", "n_failed", "problem"),
    [
        (range(10), 4, "KeyError: 'name'"),  # also one that never answered
        (range(2, 10), 4, "KeyError: 'name'"),
        ((0, 1, 2, 4, 6, 7, 8, 9), 8, None),
    ],
)
def test_a_program_that_always_fails_is_given_up(
    bad: Sequence[int], n_failed: int, problem: str | None
) -> None:
    _, order = asked_in_order(())
    scene, _ = asked_in_order({order[number] for number in bad}, MISTAKE)
    failed = [one.failure.kind for one in scene.outcomes() if one.failure]
    assert failed == [FailureKind.INTERNAL] * n_failed
    assert scene.loop.pool.candidates[0].broken == problem
