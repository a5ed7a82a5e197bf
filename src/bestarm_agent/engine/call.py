"""One call of a model: its attempts, retries and cost.

Everything that asks a model goes through here: candidates, judges, proposers. A call is sent until
it is answered. This is the only retry layer: the SDKs' own are switched off, since failures would
multiply unseen.
"""

# What a call holds, who takes it and who gives it back; ``Call.let_go`` returns at the end what is
# still held, however the call ends.
#
#   gate         so many places for calls in flight: one gate of each provider, one of the run
#   slot         a call's places in its gates, all or none; left while the call waits for anything
#                but its answer, so that no place is kept by a call that is not sent
#   permit       leave to send one attempt, from the limits of its model: taken by the loop if one
#                is there, else awaited in ``_permitted``; ended with the attempt, or refunded
#   hold         what a permit takes from one bucket of these limits (requests, tokens, ...)
#   reservation  the most that an attempt can cost, out of the budget: made with the pair for the
#                first attempt, and for a further one once it has its permit; settled at its cost
#   claim        the right to buy its reply, asked for with the pair; ``ReplyCache`` takes it over
#
#                waits to be sent       in flight            backs off   is judged
#   slot         left                   held                 left        the run's gate alone
#   permit       taken or awaited       held, then ended     none        none
#   reservation  first attempt: held    held, then settled   none        none
#   claim        asked for with the ask held                 held        given up with the reply
from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_exponential_jitter

from bestarm_agent.domain.events import Attempted, Event, Settled
from bestarm_agent.domain.redaction import masked, raised
from bestarm_agent.domain.spend import NOTHING, Budget, Spend
from bestarm_agent.domain.values import Json, Reply, Request, canonical, digest
from bestarm_agent.engine.ledger import Ledger, Reservation
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.limits.gates import Gate, Slot
from bestarm_agent.engine.limits.model_limits import ModelLimits, RateLimits
from bestarm_agent.engine.limits.pauses import LONGEST_PAUSE, Permit
from bestarm_agent.engine.limits.prompt_caches import PromptCaches
from bestarm_agent.engine.limits.waits import WaitBoard
from bestarm_agent.errors import BestarmError, FailureKind, ProviderError
from bestarm_agent.providers.base import EFFORT, Capabilities, Provider
from bestarm_agent.providers.failures import BilledError, failed_spend, failure
from bestarm_agent.store.codec import as_stored
from bestarm_agent.store.store import Claim

MOST_CHARS = 4_000_000  # of a reply, as of a prompt: longer than any model writes
# What makes every further call to the provider, or to the model, pointless.
# UNREACHABLE is fatal where trying again cannot help, such as a wrong proxy.
WHOLE_PROVIDER = (FailureKind.AUTHENTICATION, FailureKind.QUOTA_EXHAUSTED, FailureKind.UNREACHABLE)
_WHOLE_ACCOUNT = (FailureKind.RATE_LIMITED,)  # fatal if a longer wait is asked for than we allow
_WHOLE_MODEL = (*_WHOLE_ACCOUNT, FailureKind.MODEL_NOT_FOUND)
_CONFIRMED = (*WHOLE_PROVIDER, FailureKind.MODEL_NOT_FOUND)  # once, where it answered before


class BudgetEndedError(BestarmError):
    """No further attempt fits into the budget; a pair stays pending and can be resumed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number and length of a call's retries."""

    max_attempts: int = 5  # >= 1; those that a rate limit refused are not counted
    timeout_seconds: float = 120.0  # time-out of one attempt, > 0
    first_wait_seconds: float = 0.5  # wait after the first failure; doubles from there, jittered
    max_wait_seconds: float = 60.0  # a model whose provider asks for a longer wait is given up
    # no attempt begins later than this after the first one, except where no time-out applies
    max_elapsed_seconds: float = 900.0


@dataclass(slots=True)
class AttemptLog:
    """The attempts at the calls of one pair, or of one proposer, as the run's log has them.

    An attempt is durable before it is sent. What it cost is logged with what comes next of its
    pair: a kill in between leaves it open, and it counts with its bound. An outcome settles all::

        begun -> settled -> logged (next attempt, or the pair stays pending)
          |         `-----> outcome
          `-> killed: lost -> found in the reply cache: its cost takes the place of the bound
                        `---> never found: settled at its bound

    Attributes:
        seq: the ask's number; None: of a proposer.
        record, flush: of the run's record.
        is_asked: whether the ask in the log stands for the candidate's next attempt.
        lost: attempts of processes that did not live to settle them, charged with these bounds.
        begun: keys of the replies that attempts were begun for, in any process: such a reply may
            be stored, and is not bought again.
    """

    seq: int | None
    record: Callable[[Event], None]
    flush: Callable[[], Awaitable[None]]
    is_asked: bool = False
    lost: list[Attempted] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    _settled: list[Settled] = field(default_factory=list)  # not logged yet
    _is_closed: bool = False  # those lost are settled at their bounds

    async def begin(self, call: Call, bound: Spend) -> str:
        """Log an attempt, durably; return the key that it is settled by."""
        self.begun.add(key := call.key)
        # An ask is in the log before its candidate is called, and stands for the first attempt:
        # that saves an event and a write for nearly every pair.
        if self.is_asked and not call.is_judges:
            self.is_asked = False
            return ""
        self._log_settled()
        bound, priced = replace(bound, answers=0), call.model.able.priced
        self.record(Attempted(self.seq, key, bound, call.is_judges, priced))
        # After a kill nobody knows what was sent: an attempt that the log holds is counted then.
        try:
            await self.flush()
        except BaseException:
            self.settle(key, Spend(), call.is_judges)  # it is not sent
            raise
        return key

    def settle(self, key: str, cost: Spend, is_judges: bool) -> None:
        """Note what an attempt cost, or what a reply did that was found."""
        self._settled.append(Settled(self.seq, key, cost, is_judges))

    def found(self, call: Call, reply: Reply, answers: Spend) -> Spend:
        """Settle a call whose reply was in the cache; return what that adds to the books.

        If a lost attempt may have brought it, its cost takes the place of the bound.
        """
        # The latest of those that fit, since none follows an attempt that was answered. The key ""
        # is that of a candidate's first attempt, for which the ask stands.
        keys = {call.key} if call.is_judges else {call.key, ""}
        fits = (attempt for attempt in reversed(self.lost) if attempt.key in keys)
        lost, change = next(fits, None), Spend()
        cost, key = answers, call.key
        if lost is not None:
            self.lost.remove(lost)
            # The books have held the bound since the run was opened, and change by the difference.
            # The log still has the attempt open and gets its whole cost; once ``close`` has settled
            # it at its bound, the difference.
            change, key = replied_spend(reply, answers=0) - lost.cost, lost.key
            cost += change if self._is_closed else change + lost.cost
        if lost is not None or answers != Spend():
            self.settle(key, cost, call.is_judges)
        return change

    def close(self) -> None:
        """Settle and log all: the pair stays pending, or the proposer's call is over."""
        if self.is_asked:
            self.is_asked = False
            self.settle("", Spend(), False)
        for attempt in [] if self._is_closed else self.lost:
            self.settle(attempt.key, attempt.cost, attempt.judge)
        self._is_closed = True
        self._log_settled()

    def _log_settled(self) -> None:
        settled, self._settled = self._settled, []
        for event in settled:
            self.record(event)


@dataclass(slots=True)
class Tries:
    """The attempts at one call so far."""

    n: int = 0  # attempts
    began: float = math.inf  # time of the first one, in the clock's seconds
    n_failures: int = 0  # without those that a rate limit refused
    n_refusals: int = 0  # by a rate limit
    failed_at: float = math.inf  # when the first of these was
    failure: ProviderError | None = None  # the last one's; None: it was answered, or is awaited
    notices: list[str] = field(default_factory=list)  # of those that failed, for users


@dataclass(slots=True, eq=False)
class Model:
    """A model, ready to be called; as text ``provider/model``.

    Attributes:
        client: its provider's.
        name: the provider's name of it.
        fingerprint: all that decides its replies besides the request.
        is_tried: whether it answered, also in an earlier session, or leaves calls without answer.
    """

    client: ProviderClient
    name: str
    fingerprint: str = ""
    is_tried: bool = False
    _limits: ModelLimits | None = None

    def __str__(self) -> str:
        return f"{self.client.provider.name}/{self.name}"

    @property
    def able(self) -> Capabilities:
        """Its features."""
        return self.client.provider.capabilities(self.name)

    @property
    def is_untried(self) -> bool:
        """True of a model over the network as long as nobody knows whether it answers."""
        return not self.is_tried and self.able.rate_limited

    @property
    def limits(self) -> ModelLimits:
        """The limits of the calls to it."""
        if self._limits is None:  # kept: each attempt asks for them several times
            self._limits = self.client.limits(self.name)
        return self._limits


@dataclass(slots=True, eq=False)
class Call:
    """One request on its way to a model; a pair that is sent again gets another call.

    Attributes:
        model: answers it.
        log: where attempts are logged; None where no run pays for them.
        is_judges: whether a judge makes it.
        is_first: whether its model never answered; a time-out is then not repeated.
        resent: whether an attempt at it was begun before, by another call.
        slot: its places in the gates, given up while it waits.
        reservation: for the next attempt; None: reserved when it is sent.
        permit: the rate limiter's for the next attempt; None: to be waited for.
        claim: on its reply, asked for before it is obtained; None: not yet.
        tries: the attempts so far.
        spend: their cost, also after an error.
        found: whether the reply was in the cache.
        has_waited: whether it waited for another to fill the provider's cache; it does so once.
        n_refitted: how often it was sent again without something that its model does not take.
        stored: its reply as the store will hold it, once it was answered.
    """

    model: Model
    request: Request
    log: AttemptLog | None = None
    is_judges: bool = False
    is_first: bool = False
    resent: bool = False
    slot: Slot = field(default_factory=Slot)
    reservation: Reservation | None = None
    permit: Permit | None = None
    claim: Claim | None = None
    tries: Tries = field(default_factory=Tries)
    spend: Spend = NOTHING
    found: bool = False
    has_waited: bool = False
    n_refitted: int = 0
    stored: str | None = None
    _keyed: tuple[Request, str] | None = None  # what was asked last for its key

    def __post_init__(self) -> None:
        if self.log is not None and self.log.begun:
            self.resent = self.key in self.log.begun

    @property
    def fitted(self) -> Request:
        """The request, without what its model was found not to take."""
        return self.model.client.provider.fitted(self.request)

    @property
    def key(self) -> str:
        """Key of its reply in the reply cache; another one once more is known of the model."""
        fitted, model = self.fitted, self.model
        # The key is read several times per attempt, and a digest of long messages takes longer than
        # comparing them. It is made anew once a refusal has changed the fitted request.
        last = self._keyed
        if last is None or (last[0] is not fitted and last[0] != fitted):
            own = model.client.ledger.own
            key = reply_key(model.client.provider, model.fingerprint, fitted, own)
            self._keyed = last = fitted, key
        return last[1]

    def is_refitted(self, error: ProviderError) -> bool:
        """Return whether to send it again at once, without what an error says is not taken.

        Each parameter may be refused once, and the limit of the answer under each of its names.
        """
        self.n_refitted += 1
        return bool(error.refused) and self.n_refitted <= len(self.request.names) + 2

    @property
    def prefix(self) -> tuple[str, ...]:
        """Key of the beginning that it shares in the provider's prompt cache; () if none."""
        prefix = self.request.prefix
        return prefix and (self.model.name, *prefix)

    def bound(self) -> Spend:
        """Return the most that one attempt can cost."""
        return self.model.client.provider.bound(self.fitted)

    @asynccontextmanager
    async def in_turn(self) -> AsyncIterator[None]:
        """Wait for its places, where the loop took none for the call; let go at the end."""
        self.slot = Slot(self.model.client.gate, inside=False)
        try:
            with self.model.client.board.waiting(str(self.model), "queue full", math.inf):
                await self.slot.reenter()
            yield
        finally:
            self.let_go()

    def refund_permit(self) -> None:
        """Give back the rate limiter's permit for an attempt that is not sent."""
        permit, self.permit = self.permit, None
        if permit is not None:
            self.model.limits.refund(permit)

    def let_go(self) -> None:
        """Give back all that it holds: places, permit, claim, what is reserved and not spent."""
        self.slot.leave()
        self.refund_permit()
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release()
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            self.model.client.ledger.release(reservation)


class ProviderClient:
    """Sends requests to one provider, within the budget, and repeats what may yet succeed.

    Args:
        board: shows why a call waits.
        gate: limits the calls in flight.
        rules: limits of a model, by its name.
        shared: whether all models of the account share what ``rules`` says.
    """

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        policy: RetryPolicy,
        clock: Clock,
        board: WaitBoard,
        gate: Gate,
        *,
        rules: Callable[[str], RateLimits] = lambda _model: RateLimits(),
        shared: bool = False,
    ) -> None:
        self.provider = provider
        self.ledger = ledger
        self.gate = gate
        self.board = board
        self.clock = clock
        self._rules, self._shared = rules, shared
        self._limits: dict[str, ModelLimits] = {}
        self._caches = PromptCaches(clock)
        self._halted: list[ProviderError] = []  # why no model can be called any more
        self._n_sent = 0  # attempts
        self._answered: set[str] = set()  # models that did, and "" if any did
        # by model: the call whose fatal refusal is not confirmed, and the attempts before that;
        # forgotten when it answers
        self._doubted: dict[str, tuple[Call, int]] = {}
        self._policy = policy
        self._jittered = wait_exponential_jitter(
            multiplier=policy.first_wait_seconds,
            max=policy.max_wait_seconds,
            jitter=policy.first_wait_seconds,
        )

    def limits(self, model: str) -> ModelLimits:
        """Return the limits of a model, made on first use."""
        name = "" if self._shared else model
        if name not in self._limits:
            most = self._policy.max_wait_seconds
            limits = ModelLimits(self.provider, name, self._rules(model), self.clock, most)
            for error in self._halted:
                limits.halt(error)
            self.board.watch(limits.waits)
            self._limits[name] = limits
        return self._limits[name]

    def _halt(self, model: str, error: ProviderError) -> None:
        """Fail all calls that a fatal error of a call to ``model`` makes pointless."""
        if error.kind in WHOLE_PROVIDER:
            self._halted.append(error)
            for limits in self._limits.values():
                limits.halt(error)
        elif error.kind in (_WHOLE_ACCOUNT if self._shared else _WHOLE_MODEL):
            self.limits(model).halt(error)

    def unrecorded(self) -> ProviderClient:
        """Return a client that shares the limits of this one, and records and repeats nothing.

        For calls that a program reserves and records itself. What a rate limit turned away is
        repeated: it costs nothing.
        """
        twin = copy(self)
        twin.ledger = Ledger(Budget())
        twin._policy = replace(self._policy, max_attempts=1)
        return twin

    async def send(self, call: Call) -> Reply:
        """Send a call until it is answered; the caller lets go of it in any case.

        Raises:
            ProviderError: it failed for good, or too often.
            BudgetEndedError: the next attempt does not fit into the budget.
        """
        # Most calls are answered at once: tenacity gets a call only with its first error.
        try:
            return await self._attempt(call)
        except ProviderError as error:
            failed = [error]

        async def again() -> Reply:  # most calls fail never, and need nothing of this
            if failed:
                raise failed.pop()
            return await self._attempt(call)

        retrying = AsyncRetrying(
            retry=partial(self._is_repeated, call),
            wait=partial(self._backoff, call),
            sleep=partial(self._pause, call),
        )
        return await retrying(again)

    async def _attempt(self, call: Call) -> Reply:
        """Make one attempt, once it may be sent and is logged; settle what it cost."""
        limits, tries = call.model.limits, call.tries
        permit, reservation, key = await self._cleared(call)
        self._n_sent += 1
        number = self._n_sent
        tries.n += 1
        tries.began = min(tries.began, self.clock.now())
        limits.send(permit)
        sent = call.fitted
        # From here the attempt is settled exactly once: ``finally`` also runs if it is cancelled.
        # It may have been answered and billed all the same, so that it costs its whole bound.
        result: Reply | ProviderError | None = None  # cut off: it may have been answered
        cost = reservation.amount
        try:
            with self._caches.sent(call.prefix) if call.prefix else nullcontext():
                result, call.stored = await generate(self.provider, sent, self._policy)
            cost = replied_spend(result, answers=cost.answers)
        except ProviderError as error:
            result, cost = error, failed_spend(error, cost)
        finally:
            self.ledger.settle(reservation, cost)
            call.spend += cost
            if call.log is not None:
                call.log.settle(key, cost, call.is_judges)
            limits.ended(permit, result)
        if isinstance(result, Reply):
            tries.failure = None
            self._answered |= {"", call.model.name}
            self._doubted.pop(call.model.name, None)
            return result
        tries.failure = result = self._weighed(call, result, number)
        self.provider.learn(sent.model, canonical(sent.params.get(EFFORT)), result.refused)
        tries.notices += filter(None, [result.notice])
        if result.kind is FailureKind.RATE_LIMITED:
            tries.n_refusals += 1
        else:
            tries.n_failures += 1
            tries.failed_at = min(tries.failed_at, self.clock.now())
        if result.fatal:
            self._halt(call.model.name, result)
        # Another call has halted the model meanwhile: a further attempt would fail with that error,
        # which says more than the one of this attempt.
        if limits.halted is not None and result.transient:
            raise limits.halted from result
        raise result

    def _weighed(self, call: Call, error: ProviderError, number: int) -> ProviderError:
        """Return the error of an attempt as it counts: one odd refusal ends no healthy run.

        A server that answered before may refuse one request of many, for what it holds or by a
        fault of its own. So a fatal refusal is confirmed by another call, which was sent after it,
        before anything is given up: until then its call is repeated, and at last fails alone.
        """
        scope = call.model.name if error.kind is FailureKind.MODEL_NOT_FOUND else ""
        if not error.fatal or error.kind not in _CONFIRMED or scope not in self._answered:
            return error
        # that another model answers meanwhile says nothing of this one
        # Kept are the first call refused, and the number of attempts sent until then. Those may
        # have met with the same passing fault, so an attempt among them is repeated. A later one of
        # another call confirms the refusal; a later one of the first call makes only that call
        # fail.
        first, n_before = self._doubted.setdefault(call.model.name, (call, self._n_sent))
        is_later = number > n_before
        if is_later and first is not call:
            return error
        doubted = copy(error)
        doubted.fatal, doubted.transient = False, not is_later
        return doubted

    async def _cleared(self, call: Call) -> tuple[Permit, Reservation, str]:
        """Return permit, reservation and key of the next attempt, once the log holds it."""
        # The order matters. The permit comes first: the wait for it may be long, and an amount of
        # the budget reserved meanwhile would be kept from others. The log comes last: an attempt in
        # it counts with its bound until it is settled. Up to the last lines the call itself holds
        # permit and reservation, so that ``let_go`` returns them whatever is raised. From then on
        # they are ``_attempt``'s, which awaits nothing before its ``finally`` settles them.
        permit = await self._permitted(call)
        if not call.has_waited and (filled := self._caches.filling.get(call.prefix)):
            # Its permit is given back: a refusal of the other call may begin a pause. Its places
            # are kept, or more pairs would be asked: that call was sent, and needs none of them.
            call.has_waited = True
            call.refund_permit()
            with self.board.waiting(str(call.model), "first call fills the prompt cache", math.inf):
                await filled.wait()
            permit = await self._permitted(call)
        call.reservation = call.reservation or self.ledger.reserve(call.bound())
        if call.reservation is None:
            raise BudgetEndedError("the budget cannot pay for another call; raise it")
        key = ""
        if call.log is not None:
            key = await call.log.begin(call, call.reservation.amount)
        reservation = call.reservation
        call.permit, call.reservation = None, None
        return permit, reservation, key

    async def _permitted(self, call: Call) -> Permit:
        """Return the call's permit, waited for if need be; raise the error of a halted model."""
        limits = call.model.limits
        if call.permit is None:  # the call's slot is free while it waits
            bound, since = call.bound(), call.tries.failed_at
            call.permit = await limits.acquire(call.request, bound, call.slot, since)
        # also with a permit at hand: the model may have been halted since the loop took it
        if limits.halted is not None:
            raise limits.halted
        return call.permit

    def _is_repeated(self, call: Call, state: RetryCallState) -> bool:
        error = state.outcome and state.outcome.exception()
        if not isinstance(error, ProviderError) or not error.transient:
            return False
        tries, policy = call.tries, self._policy
        elapsed = max(0.0, self.clock.now() - tries.began)
        # A server that never answered and let a whole time-out pass is not sent the same call
        # again. One that the server itself reports (408, 504) may come sooner, and is repeated.
        hangs = call.is_first and error.kind is FailureKind.TIMEOUT
        return (
            not (hangs and elapsed >= policy.timeout_seconds)
            and (error.retry_after or 0.0) <= policy.max_wait_seconds
            and tries.n_failures < policy.max_attempts
            and (call.model.able.queued or elapsed < policy.max_elapsed_seconds)
        )

    def _backoff(self, call: Call, state: RetryCallState) -> float:
        """Return the seconds until the next attempt: doubled by each earlier one of its kind."""
        error, tries = call.tries.failure, call.tries
        is_refused = error is not None and error.kind is FailureKind.RATE_LIMITED
        # tenacity counts all attempts together. Refusals by a rate limit and failures each double a
        # wait of their own: a call that was refused many times does not wait long after one
        # failure.
        counted = copy(state)
        counted.attempt_number = tries.n_refusals if is_refused else tries.n_failures
        seconds = self._jittered(counted)
        asked = None if error is None else error.retry_after
        if is_refused:
            return min(seconds, LONGEST_PAUSE) if asked is None else asked
        return max(asked or 0.0, seconds)

    async def _pause(self, call: Call, seconds: float) -> None:
        error = call.tries.failure
        call.slot.leave()
        if error is None or error.of_account:
            return  # it waits in the limiter's queue, with all others
        reason, until = f"backing off after: {error.kind.said}", self.clock.now() + seconds
        with self.board.waiting(self.provider.name, reason, until):
            await call.model.limits.sleep(seconds)
            await call.slot.reenter()


async def generate(provider: Provider, request: Request, policy: RetryPolicy) -> tuple[Reply, str]:
    """Make one attempt within the time-out; return its reply, and that as the store will hold it.

    Raise ProviderError for everything that goes wrong. Whatever a provider hands in is checked
    here, and nowhere after.
    """
    seconds = policy.timeout_seconds
    queued = provider.capabilities(request.model).queued  # waits for its turn without time-out
    try:
        async with asyncio.timeout(None if queued else seconds):
            given = await provider.generate(request)
    except ProviderError as error:
        lasts = error.retry_after or 0.0
        if error.kind is not FailureKind.RATE_LIMITED or lasts <= policy.max_wait_seconds:
            raise
        raise ProviderError(
            f"{provider.name}/{request.model} is rate limited for another {lasts:.0f} s, and a run "
            f"waits {policy.max_wait_seconds:.0f} s at most; `bestarm-agent resume` goes on with "
            f"it when that is over ({error})",
            kind=FailureKind.RATE_LIMITED,
            fatal=True,
            retry_after=error.retry_after,
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = f"provider {provider.name} let a cancellation of its own get out"
        raise failure(FailureKind.INTERNAL, message) from error  # else it is waited for forever
    except TimeoutError as error:
        message = (
            f"{provider.name}/{request.model} did not answer within {seconds:g} s; "
            f"raise limits.timeout_seconds if it is slow"
        )
        raise failure(FailureKind.TIMEOUT, message) from error
    except (Exception, SystemExit) as error:
        # SystemExit, too: a user's function that calls sys.exit fails its call, not the run
        raise failure(FailureKind.INTERNAL, raised(f"provider {provider.name}", error)) from error
    try:
        reply, text = as_stored(given, Reply)
        if (length := len(reply.text) + len(reply.reasoning)) > MOST_CHARS:
            raise ValueError(f"it has {length:,} characters, and {MOST_CHARS:,} are the most")
    except ValueError as error:
        message = f"provider {provider.name} gave what is no reply: {masked(str(error))}"
        odd = failure(FailureKind.INTERNAL, message)
        raise BilledError(odd, provider.bound(request)) from error  # whatever it was, it was paid
    return reply, text


def replied_spend(reply: Reply, *, answers: int) -> Spend:
    """Return the cost of one answered attempt."""
    return Spend(
        answers=answers,
        calls=reply.calls,
        tokens=reply.usage.total,
        usd_nanos=reply.usd_nanos or 0,
        gpu_seconds=reply.gpu_seconds,
    )


def reply_key(provider: Provider, fingerprint: str, request: Request, own: str = "") -> str:
    """Return the cache key of a reply: equal for equal requests to the same model.

    Where a run shares no replies, ``own`` is its id, and the key is that of one pair of the run: an
    outcome names the reply that it was scored by, whatever others were answered.
    """
    capabilities = provider.capabilities(request.model)
    asked_for: list[Json] = [request.example] if capabilities.by_example else []
    if capabilities.by_inputs:
        asked_for.append(dict(request.inputs))
    whose: list[Json] = [[own, request.candidate, request.example]] if own else []
    return digest([provider.name, fingerprint, request.as_json(), asked_for, *whose], length=32)
