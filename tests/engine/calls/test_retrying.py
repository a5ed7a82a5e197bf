"""Retries: what is repeated, how long it waits, and what every attempt costs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import (
    AttemptLog,
    BudgetEndedError,
    Call,
    Model,
)
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.model_limits import LimiterRules
from bestarm_agent.engine.limits.waiting import Slot
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.failures import BilledError
from tests.support import runs
from tests.support.runs import Actor
from tests.support.virtual_time import run_virtual

BOUND = Spend(calls=1, tokens=100, usd_nanos=1000)
ANSWER = Reply("42", usage=Usage(input=7, output=3), usd_nanos=50)


def failure(kind: FailureKind, **options: object) -> ProviderError:
    return ProviderError("it failed", kind=kind, **options)  # type: ignore[arg-type]


BUSY = failure(FailureKind.OVERLOADED, transient=True)


def scripted(script: Sequence[Reply | Exception | float]) -> Actor:
    """A provider that follows a script of replies, errors, and seconds before the answer."""
    sent = list[tuple[float, Request]]()

    def answer(_request: Request, _before: int) -> Reply | Exception:
        step = script[len(sent) - 1]
        return ANSWER if isinstance(step, float) else step

    def latency(_request: Request) -> float:
        step = script[len(sent) - 1]
        return step if isinstance(step, float) else 0.0

    return Actor("scripted", answer, latency, BOUND, sent)


class Scene:
    """One caller with everything around it, and one request to send."""

    def __init__(
        self,
        script: Sequence[Reply | Exception | float],
        budget: Budget | None = None,
        *,
        trial: bool = False,
    ) -> None:
        self.provider = scripted(script)
        self.ledger = Ledger(budget or Budget())
        run = runs.Scene({}, provider_in_flight=4, limiters={"m": LimiterRules(trial=trial)})
        self.client = run.client(self.provider, self.ledger)
        self.board, self.gate = self.client.board, self.client.gate
        reservation = self.ledger.reserve(BOUND + Spend(pulls=1))
        request = Request("m", text="?")
        self.sent = Call(Model(self.client, request.model), request, reservation=reservation)
        self.gate_while_waiting: list[int] = []

    async def call(self) -> Reply:
        self.sent.slot = Slot(self.gate)
        watcher = asyncio.create_task(self._watch())
        try:
            return await self.client.send(self.sent)
        finally:
            watcher.cancel()
            self.sent.slot.leave()

    async def _watch(self) -> None:
        while True:
            if self.board.summary(0.0):
                self.gate_while_waiting.append(self.gate.inside)
            await asyncio.sleep(0.1)


def sent_at(scene: Scene) -> list[float]:
    return [at for at, _ in scene.provider.sent]


def test_an_answer_is_booked_at_what_it_cost() -> None:
    scene = Scene([ANSWER])
    assert run_virtual(scene.call()) is ANSWER
    assert scene.sent.spend == Spend(pulls=1, calls=1, tokens=10, usd_nanos=50)
    assert scene.ledger.spent == scene.sent.spend
    assert scene.ledger.outstanding == Spend()


def test_a_transient_failure_is_repeated_after_a_growing_wait_outside_the_gate() -> None:
    scene = Scene([BUSY, BUSY, ANSWER])
    run_virtual(scene.call())
    first, second, third = sent_at(scene)
    assert 0.5 <= second - first <= 1.0
    assert 1.0 <= third - second <= 1.5
    assert scene.sent.spend == Spend(pulls=1, calls=3, tokens=10, usd_nanos=50)
    assert scene.gate_while_waiting
    assert set(scene.gate_while_waiting) == {0}


@pytest.mark.parametrize("seconds", [30.0, 60.0])
def test_a_wait_that_the_provider_asks_for_is_kept(seconds: float) -> None:
    limited = failure(FailureKind.RATE_LIMITED, transient=True, retry_after=seconds)
    scene = Scene([limited, ANSWER])
    run_virtual(scene.call())
    assert sent_at(scene)[1] - sent_at(scene)[0] >= seconds


def test_a_failure_other_than_a_rate_limit_may_ask_for_a_wait_too() -> None:
    later = failure(FailureKind.OVERLOADED, transient=True, retry_after=30.0)
    scene = Scene([later, ANSWER])
    run_virtual(scene.call())
    assert 30.0 <= sent_at(scene)[1] - sent_at(scene)[0] <= 31.0


def test_a_failure_that_asks_for_too_long_a_wait_is_not_repeated() -> None:
    busy = failure(FailureKind.OVERLOADED, transient=True, retry_after=60.5)
    scene = Scene([busy, ANSWER])
    with pytest.raises(ProviderError) as caught:
        run_virtual(scene.call())
    assert caught.value is busy
    assert len(scene.provider.sent) == 1


def test_the_longest_wait_that_is_allowed_is_waited_for() -> None:
    scene = Scene([failure(FailureKind.OVERLOADED, transient=True, retry_after=60.0), ANSWER])
    run_virtual(scene.call())
    assert len(scene.provider.sent) == 2


def test_an_answer_beyond_its_bound_is_charged_in_full() -> None:
    """A server that ignores ``max_tokens`` bills what it wrote."""
    scene = Scene([Reply("42", usage=Usage(input=7, output=5000), usd_nanos=2500, gpu_seconds=2.0)])
    run_virtual(scene.call())
    assert scene.ledger.spent == Spend(1, 1, 5007, 2500, 2.0)
    assert scene.ledger.outstanding == Spend()


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_model_is_on_trial_until_an_answer_keeps_its_bound(excess: int) -> None:
    scene = Scene([replace(ANSWER, usd_nanos=BOUND.usd_nanos + excess)], trial=True)
    await scene.call()
    assert scene.sent.model.limits.room == (4 if excess else math.inf)


async def test_the_call_that_shows_a_model_to_be_dead_fails_as_all_after_it() -> None:
    scene = Scene([BUSY] * 15)
    client = scene.client.unrecorded()

    errors = []
    for _ in range(16):
        with pytest.raises(ProviderError) as caught:
            await client.send(Call(Model(client, "m"), Request("m", text="?")))
        errors.append(caught.value)
    *busy, last, after = errors
    assert busy == [BUSY] * 14
    assert last.fatal
    assert last is after


def test_a_wait_beyond_all_patience_fails_at_once() -> None:
    limited = failure(FailureKind.RATE_LIMITED, transient=True, retry_after=3600.0)
    scene = Scene([limited, ANSWER])
    with pytest.raises(ProviderError, match="is rate limited for another 3600 s") as caught:
        run_virtual(scene.call())
    assert caught.value.fatal
    assert len(scene.provider.sent) == 1


def test_attempts_end() -> None:
    scene = Scene([BUSY, BUSY, BUSY, ANSWER])
    with pytest.raises(ProviderError, match="it failed"):
        run_virtual(scene.call())
    assert scene.sent.spend.calls == 3


def test_what_cannot_succeed_is_not_repeated() -> None:
    scene = Scene([failure(FailureKind.AUTHENTICATION, fatal=True), ANSWER])
    with pytest.raises(ProviderError):
        run_virtual(scene.call())
    assert scene.sent.spend.calls == 1


def test_a_timeout_counts_as_billed_in_full() -> None:
    scene = Scene([500.0, ANSWER])
    run_virtual(scene.call())
    assert scene.sent.spend.usd_nanos == BOUND.usd_nanos + 50


def test_a_model_that_never_answered_has_one_time_out() -> None:
    scene = Scene([500.0, ANSWER])
    scene.sent.is_first = True
    with pytest.raises(ProviderError, match="did not answer within 120 s"):
        run_virtual(scene.client.send(scene.sent))
    assert len(scene.provider.sent) == 1


def test_a_failure_whose_cost_is_known_is_booked_at_that() -> None:
    known = BilledError(failure(FailureKind.TIMEOUT), Spend(calls=3, tokens=7, usd_nanos=20))
    scene = Scene([known])
    with pytest.raises(ProviderError):
        run_virtual(scene.call())
    assert scene.sent.spend == Spend(pulls=1, calls=3, tokens=7, usd_nanos=20)
    assert scene.ledger.spent == scene.sent.spend


def test_an_answer_made_of_several_calls_counts_them_all() -> None:
    scene = Scene([replace(ANSWER, calls=4, usd_nanos=None)])
    run_virtual(scene.call())
    assert scene.sent.spend == Spend(pulls=1, calls=4, tokens=10)


def test_a_retry_that_the_budget_cannot_pay_is_not_sent() -> None:
    scene = Scene([BUSY, ANSWER], Budget(calls=1))
    with pytest.raises(BudgetEndedError):
        run_virtual(scene.call())
    assert len(scene.provider.sent) == 1
    assert scene.sent.spend == Spend(pulls=1, calls=1)


def test_an_unexpected_exception_is_blamed_on_the_harness() -> None:
    scene = Scene([RuntimeError("bug")])
    with pytest.raises(ProviderError, match="RuntimeError: bug") as caught:
        run_virtual(scene.call())
    assert caught.value.blame is Blame.HARNESS


async def test_cancellation_is_not_swallowed_and_counts_as_billed() -> None:
    scene = Scene([1000.0])

    task = asyncio.create_task(scene.call())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(10)
    assert scene.sent.model.limits.waits() is None, "nothing waits for an answer"
    assert scene.ledger.spent == BOUND + Spend(pulls=1)
    assert scene.gate.inside == 0


async def test_a_key_that_is_refused_closes_models_not_called_yet_whoever_met_it() -> None:
    refused = failure(FailureKind.AUTHENTICATION, fatal=True)
    scene = Scene([refused])

    twin = scene.client.unrecorded()
    calls = [
        Call(Model(client, model), Request(model, text="?"), slot=Slot(scene.gate))
        for client, model in ((twin, "first"), (scene.client, "second"), (twin, "third"))
    ]
    calls[1].permit = calls[1].model.limits.take(calls[1].request, BOUND)
    for call in calls:
        with pytest.raises(ProviderError) as caught:
            await call.model.client.send(call)
        assert caught.value is refused
    assert [request.model for _, request in scene.provider.sent] == ["first"]


@pytest.mark.parametrize(
    ("is_logged", "is_judges", "n_sent_before"),
    [(False, False, [0, 1]), (True, False, [1]), (False, True, [0, 1])],
)
def test_every_attempt_is_in_the_log_before_it_is_sent(
    is_logged: bool, is_judges: bool, n_sent_before: list[int]
) -> None:
    scene = Scene([BUSY, ANSWER])
    attempts: list[tuple[int, str, Spend, bool]] = []

    async def record(key: str, cost: Spend, judges: bool) -> None:
        attempts.append((len(scene.provider.sent), key, cost, judges))

    call = scene.sent
    call.log, call.is_logged, call.is_judges = AttemptLog(record), is_logged, is_judges
    run_virtual(scene.call())
    logged = [(n, call.key, BOUND, is_judges) for n in n_sent_before]
    assert attempts == logged, "pulls are not logged"


async def test_patience_is_counted_from_the_first_attempt() -> None:
    scene = Scene([BUSY, ANSWER])

    await asyncio.sleep(2000.0)
    assert (await scene.call()) is ANSWER


def test_refusals_are_repeated_until_patience_ends() -> None:
    limited = failure(FailureKind.RATE_LIMITED, transient=True, retry_after=50.0)
    scene = Scene([limited] * 30)
    with pytest.raises(ProviderError):
        run_virtual(scene.call())
    assert 900.0 <= sent_at(scene)[-1] - sent_at(scene)[0] <= 950.0


def test_a_client_that_records_nothing_repeats_nothing_but_refusals() -> None:
    limited = failure(FailureKind.RATE_LIMITED, transient=True, retry_after=1.0)
    scene = Scene([limited, BUSY, ANSWER])
    call = Call(Model(scene.client.unrecorded(), "m"), Request("m", text="?"))
    with pytest.raises(ProviderError) as caught:
        run_virtual(call.model.client.send(call))
    assert caught.value is BUSY
    assert len(scene.provider.sent) == 2
    assert scene.ledger.spent == Spend()
