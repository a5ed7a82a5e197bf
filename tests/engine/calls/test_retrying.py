"""Retries: what is repeated, how long it waits, and what every attempt costs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from bestarm_agent.domain.events import Attempted, Event, Settled
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import BudgetEndedError, Call, Model, RetryPolicy
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Slot
from bestarm_agent.engine.loop import End
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.failures import BilledError
from tests.support import runs
from tests.support.runs import Actor, attempt_log, failing, scored
from tests.support.virtual_time import run_virtual

BOUND = Spend(calls=1, tokens=100, usd_nanos=1000)
ANSWER = Reply("42", usage=Usage(input=7, output=3), usd_nanos=50)
BUSY = failing(FailureKind.OVERLOADED)
REFUSED = failing(FailureKind.AUTHENTICATION, fatal=True)

Step = Reply | Exception | float


def limited(seconds: float) -> ProviderError:
    return failing(FailureKind.RATE_LIMITED, retry_after=seconds)


def busy(seconds: float) -> ProviderError:
    return failing(FailureKind.OVERLOADED, retry_after=seconds)


def scripted(script: Sequence[Step]) -> Actor:
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
        self, *script: Step, budget: Budget | None = None, policy: RetryPolicy | None = None
    ) -> None:
        self.provider = scripted(script)
        self.ledger = Ledger(budget or Budget())
        run = runs.Scene({}, provider_in_flight=4, policy=policy)
        self.client = run.client(self.provider, self.ledger)
        self.board, self.gate = self.client.board, self.client.gate
        reservation = self.ledger.reserve(BOUND + Spend(answers=1))
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

    @property
    def pauses(self) -> list[float]:
        """Seconds from attempt to attempt."""
        times = [at for at, _ in self.provider.sent]
        return [late - early for early, late in pairwise(times)]


# a model that never answers has 120 s for a call


@pytest.mark.parametrize(
    ("script", "spend"),
    [
        ([ANSWER], Spend(1, 1, 10, 50)),
        ([BUSY, BUSY, ANSWER], Spend(1, 3, 10, 50)),
        ([500.0, ANSWER], Spend(1, 2, 110, 1050)),  # a time-out counts as billed in full
        # an answer made of several calls counts them all
        ([replace(ANSWER, calls=4, usd_nanos=None)], Spend(1, 4, 10)),
        # one beyond its bound is charged in full: a server that ignores `max_tokens` bills it
        (
            [Reply("42", usage=Usage(input=7, output=5000), usd_nanos=2500, gpu_seconds=2.0)],
            Spend(1, 1, 5007, 2500, 2.0),
        ),
        # a failure whose cost is known is booked at that
        (
            [BilledError(failing(FailureKind.TIMEOUT, fatal=True), Spend(0, 3, 7, 20))],
            Spend(1, 3, 7, 20),
        ),
    ],
)
async def test_every_attempt_is_booked_at_what_it_cost(script: list[Step], spend: Spend) -> None:
    scene = Scene(*script)
    if isinstance(script[-1], Exception):
        with pytest.raises(ProviderError):
            await scene.call()
    else:
        assert (await scene.call()).text == "42"
    assert scene.sent.spend == scene.ledger.spent == spend
    assert scene.ledger.outstanding == Spend()
    assert scene.gate.inside == 0


@pytest.mark.parametrize(
    ("script", "bounds"),
    [
        ([BUSY, BUSY, ANSWER], [(0.5, 1.0), (1.0, 1.5)]),  # a growing wait
        ([limited(30.0), ANSWER], [(30.0, 31.0)]),  # one that the provider asks for
        ([limited(60.0), ANSWER], [(60.0, 61.0)]),
        ([busy(30.0), ANSWER], [(30.0, 31.0)]),
        ([busy(60.0), ANSWER], [(60.0, 61.0)]),
    ],
)
async def test_a_transient_failure_is_repeated_after_a_wait_outside_the_gate(
    script: list[Step], bounds: list[tuple[float, float]]
) -> None:
    scene = Scene(*script)
    await scene.call()
    assert len(scene.pauses) == len(bounds)
    for pause, (least, most) in zip(scene.pauses, bounds, strict=True):
        assert least <= pause <= most
    assert set(scene.gate_while_waiting) == {0}


async def test_the_first_wait_is_as_short_as_was_asked_for() -> None:
    scene = Scene(BUSY, ANSWER, policy=RetryPolicy(first_wait_seconds=0.01))
    await scene.call()
    assert 0.009 < scene.pauses[0] < 0.021


async def test_refusals_do_not_lengthen_the_wait_after_a_failure() -> None:
    refused = failing(FailureKind.RATE_LIMITED)
    scene = Scene(*[refused] * 5, BUSY, refused, BUSY, ANSWER)
    await scene.call()
    after_failures = [scene.pauses[5], scene.pauses[7]]
    for pause, expected in zip(after_failures, (0.5, 1.0), strict=True):
        assert expected <= pause <= expected + 0.5
    assert scene.pauses[6] > 8.0, "the sixth refusal in all"


@pytest.mark.parametrize(
    ("script", "n_sent", "said"),
    [
        ([BUSY, BUSY, BUSY, ANSWER], 3, "scripted overloaded"),
        ([busy(60.5), ANSWER], 1, "scripted overloaded"),  # too long a wait
        ([limited(3600.0), ANSWER], 1, "is rate limited for another 3600 s"),
        ([REFUSED, ANSWER], 1, "scripted authentication"),
        ([RuntimeError("bug")], 1, "RuntimeError: bug"),
    ],
)
async def test_attempts_end(script: list[Step], n_sent: int, said: str) -> None:
    scene = Scene(*script)
    with pytest.raises(ProviderError, match=said) as caught:
        await scene.call()
    assert len(scene.provider.sent) == scene.sent.spend.calls == n_sent
    assert caught.value.fatal == (said not in ("scripted overloaded", "RuntimeError: bug"))
    assert (caught.value.blame is Blame.HARNESS) == (said == "RuntimeError: bug")


async def test_refusals_are_repeated_until_patience_ends() -> None:
    scene = Scene(*[limited(50.0)] * 30)
    with pytest.raises(ProviderError):
        await scene.call()
    assert 900.0 <= sum(scene.pauses) <= 950.0


async def test_patience_is_counted_from_the_first_attempt() -> None:
    scene = Scene(BUSY, ANSWER)
    await asyncio.sleep(2000.0)
    assert (await scene.call()) == ANSWER


async def test_patience_does_not_end_where_no_time_out_applies() -> None:
    scene = Scene(BUSY, ANSWER)
    scene.provider.queued = True
    scene.provider.latency = lambda _request: 1000.0
    assert (await scene.call()) == ANSWER


async def test_the_call_that_shows_a_model_to_be_dead_fails_as_all_after_it() -> None:
    client = Scene(*[BUSY] * 15).client.unrecorded()
    errors = []
    for _ in range(16):
        with pytest.raises(ProviderError) as caught:
            await client.send(Call(Model(client, "m"), Request("m", text="?")))
        errors.append(caught.value)
    *early, last, after = errors
    assert early == [BUSY] * 14
    assert last.fatal
    assert last is after


async def test_a_model_that_never_answered_has_one_time_out() -> None:
    scene = Scene(500.0, ANSWER)
    scene.sent.is_first = True
    with pytest.raises(ProviderError, match="did not answer within 120 s"):
        await scene.client.send(scene.sent)
    assert len(scene.provider.sent) == 1


async def test_a_retry_that_the_budget_cannot_pay_is_not_sent() -> None:
    scene = Scene(BUSY, ANSWER, budget=Budget(calls=1))
    with pytest.raises(BudgetEndedError):
        await scene.call()
    assert len(scene.provider.sent) == 1
    assert scene.sent.spend == Spend(answers=1, calls=1)


async def test_cancellation_is_not_swallowed_and_counts_as_billed() -> None:
    scene = Scene(1000.0)
    task = asyncio.create_task(scene.call())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(10)
    assert scene.sent.model.limits.waits() is None, "nothing waits for an answer"
    assert scene.ledger.spent == BOUND + Spend(answers=1)
    assert scene.gate.inside == 0


async def test_a_key_that_is_refused_closes_models_not_called_yet_whoever_met_it() -> None:
    scene = Scene(REFUSED)
    twin = scene.client.unrecorded()
    calls = [
        Call(Model(client, model), Request(model, text="?"), slot=Slot(scene.gate))
        for client, model in ((twin, "first"), (scene.client, "second"), (twin, "third"))
    ]
    calls[1].permit = calls[1].model.limits.take(calls[1].request, BOUND)
    for call in calls:
        with pytest.raises(ProviderError) as caught:
            await call.model.client.send(call)
        assert caught.value is REFUSED
    assert [request.model for _, request in scene.provider.sent] == ["first"]


@pytest.mark.parametrize(
    ("is_asked", "is_judges"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_every_attempt_is_in_the_log_before_it_is_sent_and_settled_before_the_next(
    is_asked: bool, is_judges: bool
) -> None:
    scene = Scene(BUSY, ANSWER)
    logged: list[tuple[int, Event]] = []
    call = scene.sent
    call.log = log = attempt_log(record=lambda one: logged.append((len(scene.provider.sent), one)))
    log.is_asked, call.is_judges = is_asked, is_judges
    run_virtual(scene.call())
    stands, key = is_asked and not is_judges, call.key
    begun = Attempted(0, key, BOUND, is_judges)
    first = [] if stands else [(0, begun)]
    cost = Spend(answers=1, calls=1)
    over = Settled(0, "" if stands else key, cost, is_judges)
    assert logged == [*first, (1, over), (1, begun)], "an outcome settles the one that is answered"
    logged.clear()
    log.is_asked = False
    log.close()
    assert [event for _, event in logged] == [Settled(0, key, call.spend - cost, is_judges)], (
        "where the pair stays pending"
    )


async def test_a_client_that_records_nothing_repeats_nothing_but_refusals() -> None:
    scene = Scene(limited(1.0), BUSY, ANSWER)
    call = Call(Model(scene.client.unrecorded(), "m"), Request("m", text="?"))
    with pytest.raises(ProviderError) as caught:
        await call.model.client.send(call)
    assert caught.value is BUSY
    assert len(scene.provider.sent) == 2
    assert scene.ledger.spent == Spend()


def refusing(refused: Collection[int], kind: FailureKind = FailureKind.AUTHENTICATION) -> Actor:
    """A provider that refuses the requests of these examples, and answers all others."""
    error = failing(kind, fatal=True)
    numbers = {f"e{i}" for i in refused}
    return Actor("p", lambda request, _: error if request.example in numbers else scored(1.0))


@pytest.mark.parametrize("in_flight", [1, 8])
@pytest.mark.parametrize("kind", [FailureKind.AUTHENTICATION, FailureKind.MODEL_NOT_FOUND])
def test_one_odd_refusal_ends_no_healthy_run(in_flight: int, kind: FailureKind) -> None:
    """The request alone fails, however often it is sent."""
    scene = runs.Scene({"a": refusing({10}, kind)}, n_examples=20, in_flight=in_flight)
    assert scene.run() is End.EXHAUSTED
    failed = [outcome.failure for outcome in scene.outcomes() if outcome.failure]
    assert [one.kind for one in failed] == [kind]
    assert not scene.loop.pool.broken()
    assert scene.loop.ledger.spent.usd_nanos == 19 * 60, "a refusal costs nothing"


def test_each_refusal_that_passes_costs_one_more_request() -> None:
    error, refused = failing(FailureKind.AUTHENTICATION, fatal=True), ("e5", "e10")
    actor = Actor("p", lambda one, n: error if one.example in refused and not n else scored(1.0))
    scene = runs.Scene({"a": actor}, n_examples=20, in_flight=1)
    assert scene.run() is End.EXHAUSTED
    assert len(actor.sent) == 22
    assert not [outcome for outcome in scene.outcomes() if outcome.failure]


@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_refusal_that_another_request_confirms_ends_the_run(in_flight: int) -> None:
    """Such as a key that is taken back: at most one pair is lost to it, the others stay."""
    actor = refusing(range(10, 40))
    scene = runs.Scene({"a": actor}, n_examples=40, in_flight=in_flight)
    assert scene.run() is End.FAILURES
    assert scene.loop.pool.broken()
    assert len(actor.sent) <= 10 + 3 * in_flight
    assert sum(outcome.failure is not None for outcome in scene.outcomes()) <= 1
