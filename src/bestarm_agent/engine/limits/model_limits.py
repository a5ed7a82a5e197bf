"""All limits of the calls to one model: rates, pauses after refusals, outages, calls in flight.

Every attempt takes a permit before it is sent, first come, first served: its expected use is
reserved in each token bucket, and replaced by its real use when it ends. A refusal (429) pauses all
calls. After the pause one call goes first as a probe, unless the answer to an earlier one has shown
that calls are accepted.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bestarm_agent.domain.rate_limits import Allowance, RateLimits, Resource
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.clock import Clock, sleep_unless
from bestarm_agent.engine.limits.concurrency_gates import AdaptiveConcurrency, Gate, Slot
from bestarm_agent.engine.limits.rates import Departure, Hold, RateSearch, TokenBucket
from bestarm_agent.engine.limits.wait_reasons import Wait, loading_wait
from bestarm_agent.errors import Blame, FailureKind, ProviderError, counted
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import may_be_billed

_MOST_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens")
_TOKENS_PER_CHARACTER = 0.3  # of English prose, before anything was seen
_FIRST_OUTPUT = 500.0  # before anything was seen, where the request sets no maximum
_MEMORY = 0.1


@dataclass(slots=True)
class MovingMean:
    """A moving mean: of all values at first, later of about the last ``1 / _MEMORY``.

    Example:
        >>> mean = MovingMean()
        >>> mean.add(2.0); mean.add(4.0)
        >>> mean.value
        3.0
    """

    value: float = 0.0
    n: int = 0

    def add(self, value: float) -> None:
        """Add a value."""
        self.n += 1
        self.value += (value - self.value) * max(1 / self.n, _MEMORY)


class TokenEstimate:
    """The tokens of calls to one model.

    Prompts are measured in characters, since all candidates of a model share its tokenizer; replies
    are averaged by candidate, since a prompt that asks for reasoning gets longer ones.

    Args:
        reserve_maximum: count a reply with the most tokens that it may have.
    """

    def __init__(self, reserve_maximum: bool = False) -> None:
        self.reserve_maximum = reserve_maximum
        self._per_character = MovingMean()
        self._output = MovingMean()
        self._output_of: dict[str, MovingMean] = {}
        self._asked_input, self._asked_output = MovingMean(), MovingMean()

    def need(self, request: Request, bound: int) -> dict[Resource, float]:
        """Return the amounts to reserve for one attempt.

        ``bound`` is the most tokens that it can take, prompt included; 0 if unknown.
        """
        share = self._per_character.value if self._per_character.n else _TOKENS_PER_CHARACTER
        prompt = max(1.0, _characters(request) * share)
        if bound:
            prompt = min(prompt, float(bound))
        output = self._reply(request, bound - prompt if bound else math.inf)
        self._asked_input.add(prompt)
        self._asked_output.add(output)
        return _amounts(prompt, output)

    def _reply(self, request: Request, at_most: float) -> float:
        asked = next((request.params[p] for p in _MOST_TOKENS if p in request.params), None)
        if isinstance(asked, int | float):
            at_most = min(float(asked), at_most)
        if self.reserve_maximum and at_most < math.inf:
            return at_most
        seen = self._output_of.get(request.candidate, self._output)
        return min(seen.value if seen.n else _FIRST_OUTPUT, at_most)

    def typical(self) -> dict[Resource, float] | None:
        """Return the amounts of an average call; None before the first."""
        if not self._asked_input.n:
            return None
        return _amounts(self._asked_input.value, self._asked_output.value)

    def observe(self, request: Request, usage: Usage) -> None:
        """Learn from an answered call."""
        self._per_character.add(usage.input / max(1, _characters(request)))
        self._output.add(usage.output)
        self._output_of.setdefault(request.candidate, MovingMean()).add(usage.output)

    def used(self, usage: Usage, reserved: Mapping[Resource, float]) -> dict[Resource, float]:
        """Return the amounts that an answered call counts with, given those ``reserved`` for it.

        Tokens read from the provider's cache do not count as input. Where replies count with their
        maximum, none of it is returned.
        """
        used = _amounts(usage.input, usage.output)
        used[Resource.INPUT_TOKENS] = usage.input - usage.cached
        if self.reserve_maximum:
            used = {resource: max(used[resource], reserved.get(resource, 0.0)) for resource in used}
        return used


def _amounts(prompt: float, output: float) -> dict[Resource, float]:
    return {
        Resource.REQUESTS: 1.0,
        Resource.TOKENS: prompt + output,
        Resource.INPUT_TOKENS: prompt,
        Resource.OUTPUT_TOKENS: output,
    }


def _characters(request: Request) -> int:
    if request.text is not None:
        return len(request.text)
    return sum(len(message.content) for message in request.messages)


_FAILURES_TO_OPEN = 10  # in a row
_FIRST_PAUSE = 0.5  # seconds, after refusals too
_LONGEST_OUTAGE_PAUSE = 60.0
_PROBES_OF_NEWCOMERS = 5  # of a model that never answered
_LONGEST_OUTAGE = 900.0
_FIRST_TURN = 1.0  # seconds in which a call that never failed may become the probe
_SHORTEST_WAIT = 1e-3  # a shorter one may not move a clock of floats


@dataclass(slots=True)
class _Outage:
    """The time since too many calls failed in a row."""

    began: float
    next_probe: float  # when one call may go again
    n_probes: int = 0  # that failed
    probe: object | None = None  # in flight


class CircuitBreaker:
    """Opens after failures in a row; then one call at a time goes, after growing pauses.

    An answer closes it. A model that never answered is given up after five failed probes, any other
    after an outage of 15 minutes.

    Some examples fail whenever they are sent, though the model answers all others. So a call that
    failed before leaves every other probe to new ones for a second, if the model ever answered, and
    its failures count only while nothing was answered since its first one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outage: _Outage | None = None
        self._failures = 0  # in a row
        self._answered_at = -math.inf  # last; -inf: never
        self._sent_at = math.inf  # when the first call since an answer or a failure went
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True while calls pause."""
        return self._outage is not None

    @property
    def room(self) -> float:
        """Number of calls that may be sent now: 0, 1 or infinite."""
        if self._outage is None:
            return math.inf
        return 0 if self.opens_in() > 0 else 1

    def opens_in(self, *, again: bool = False) -> float:
        """Return the seconds until a call may go; infinite while a probe is in flight.

        ``again``: the call failed before.
        """
        outage = self._outage
        if outage is None:
            return 0.0
        if outage.probe is not None:
            return math.inf
        leaves_turn = again and self._has_answered and outage.n_probes % 2 == 0
        at = outage.next_probe + (_FIRST_TURN if leaves_turn else 0.0)
        return max(0.0, at - self._clock.now())

    @property
    def silence(self) -> float:
        """Seconds that a model which never answered has left a call without an answer; else 0."""
        return 0.0 if self._has_answered else max(0.0, self._clock.now() - self._sent_at)

    @property
    def is_hopeless(self) -> bool:
        """True if the model is to be given up."""
        outage = self._outage
        if outage is None:
            return False
        if not self._has_answered and outage.n_probes >= _PROBES_OF_NEWCOMERS:
            return True
        return self._clock.now() - outage.began >= _LONGEST_OUTAGE

    @property
    def _has_answered(self) -> bool:
        return self._answered_at > -math.inf

    def admit(self, call: object) -> None:
        """Record that a call may go; it is the probe if calls pause."""
        self._sent_at = min(self._sent_at, self._clock.now())
        if self._outage is not None:
            self._outage.probe = call

    async def wait(self, *, again: bool) -> None:
        """Wait until a call may go, or ``wake`` is called."""
        seconds = max(self.opens_in(again=again), _SHORTEST_WAIT)
        await sleep_unless(self._clock, seconds, self._changed)

    def wake(self) -> None:
        """Wake the calls that wait, so that they check again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def answered(self) -> None:
        """Record an answer: calls go on."""
        self._failures, self._answered_at = 0, self._clock.now()
        if self._outage is not None:
            self._outage = None
            self.wake()

    def failed(self, call: object, since: float = math.inf) -> None:
        """Record a failure that suggests the server is down; ``since`` its call's first one."""
        if since < self._answered_at:
            self.gave_up(call)
            return
        self._failures, self._sent_at = self._failures + 1, math.inf
        now, outage = self._clock.now(), self._outage
        if outage is None:
            if self._failures >= _FAILURES_TO_OPEN:
                self._outage = _Outage(now, now + _FIRST_PAUSE)
        elif call is outage.probe:
            outage.n_probes += 1
            pause = min(_FIRST_PAUSE * 2.0**outage.n_probes, _LONGEST_OUTAGE_PAUSE)
            outage.next_probe, outage.probe = now + pause, None
            self.wake()

    def gave_up(self, call: object) -> None:
        """Record a call that ended and says nothing about the model."""
        self._sent_at = math.inf
        if self._outage is not None and call is self._outage.probe:
            self._outage.probe = None
            self.wake()


_LONGEST_PAUSE = 16.0  # after refusals that do not say how long
_PROBE_SECONDS = 2.0  # a refusal comes at once; a call that takes longer was let in
_ONE_REQUEST = {Resource.REQUESTS: 1.0}
_TRIAL_CALLS = 4
_LONG_SILENCE = 5.0  # seconds
_UNLIMITED = 1_000_000_000
_UNITS = {
    Resource.REQUESTS: "request",
    Resource.TOKENS: "token",
    Resource.INPUT_TOKENS: "input token",
    Resource.OUTPUT_TOKENS: "output token",
}
_STRAINED = (FailureKind.OVERLOADED, FailureKind.SERVER, FailureKind.TIMEOUT)
_UNREACHED = (FailureKind.CONNECTION, FailureKind.UNREACHABLE, FailureKind.MALFORMED_REPLY)


@dataclass(frozen=True, slots=True)
class LimiterRules:
    """Limits that are known before the first call to a model."""

    limits: RateLimits = field(default_factory=RateLimits)
    adaptive: int | None = None  # most calls in flight, if their number is searched for
    trial: bool = False  # keep few calls in flight until an answer has cost no more than its bound


@dataclass(slots=True, eq=False)
class Permit:
    """Permission to send one attempt."""

    request: Request
    holds: dict[Resource, Hold]  # what is reserved for it
    n_refusals: int = 0  # number of refusals before it was sent
    departure: Departure | None = None  # when it was sent, or None
    closed: bool = False  # true once it is ended or refunded


@dataclass(slots=True, eq=False)
class _Ticket:
    """A place in the queue."""

    need: Mapping[Resource, float]
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class ModelLimits:
    """The limits of the calls to one model of one account, or to all of it if ``model`` is "".

    A call gets a permit by ``take`` or ``acquire``; then comes ``send`` and, whatever happens,
    ``ended``; or ``refund`` if it is not sent.

    What ``rules`` leave open is learned from the provider's answers. A refusal pauses calls for
    ``longest_pause`` seconds at most.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        rules: LimiterRules,
        clock: Clock,
        longest_pause: float = 60.0,
    ) -> None:
        self.name = f"{provider.name}/{model}" if model else provider.name
        self.halted: ProviderError | None = None  # fails all calls
        now, limits = clock.now(), rules.limits
        stated = {**limits.assumed, **limits.per_minute}
        self.buckets = {name: TokenBucket(most, now) for name, most in stated.items()}
        self.breaker = CircuitBreaker(clock)
        self._search = RateSearch(now, searching=rules.adaptive is not None)
        self._concurrency = (
            None if rules.adaptive is None else AdaptiveConcurrency(rules.adaptive, clock)
        )
        self._trial = Gate(_TRIAL_CALLS if rules.trial else _UNLIMITED)
        self._estimate = TokenEstimate(limits.reserve_maximum)
        self._provider, self._clock = provider, clock
        self._given = frozenset(limits.per_minute)  # by the user: answers do not change these
        self._queue: deque[_Ticket] = deque()
        self._halting = asyncio.Event()
        self._longest_pause = longest_pause
        self._paused_until = -math.inf
        self._n_refusals = 0  # without those of calls that were under way at an earlier one
        self._n_pauses = 0  # in a row
        # After a pause, all wait until its probe was accepted, or was not refused for 2 s.
        self._needs_probe = False
        self._probe: Permit | None = None
        self._probed_at = -math.inf

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates that a call passes."""
        trial = () if self._trial.capacity == _UNLIMITED else (self._trial,)
        return trial if self._concurrency is None else (*trial, self._concurrency.gate)

    @property
    def paused(self) -> float:
        """Seconds left of the pause after a refusal, >= 0."""
        return max(0.0, self._paused_until - self._clock.now())

    @property
    def room(self) -> float:
        """The number of calls that could be sent now, >= 0; may be infinite."""
        if self.halted is not None:
            return 0
        free = min((gate.free for gate in self.gates), default=math.inf)
        free = min(free, self.breaker.room)
        is_limited = self.buckets or self._queue or self._n_refusals
        if not free or not (is_limited or not self._search.unlimited):
            return free
        need = self._estimate.typical()
        if self._queue or self._wait(need or _ONE_REQUEST) > 0:
            return 0
        if self._needs_probe or (self.buckets and need is None):
            return 1
        now = self._clock.now()
        rooms = [bucket.room(need[name], now) for name, bucket in self.buckets.items() if need]
        return min([free, self._search.room(now), *rooms])

    @property
    def may_answer(self) -> bool:
        """False while calls pause since one after another failed, and once it was given up."""
        return self.halted is None and self.breaker.room > 0

    @property
    def opens_in(self) -> float:
        """Seconds until time alone may make room; infinite if it cannot."""
        if self.halted is not None or not all(gate.free for gate in self.gates):
            return math.inf
        return max(self.breaker.opens_in(), self._wait(self._next_need()))

    def take(self, request: Request, bound: Spend) -> Permit | None:
        """Return a permit for one attempt of at most ``bound``; None if it would have to wait."""
        if self.halted is not None or not self.breaker.room:
            return None
        need = self._estimate.need(request, bound.tokens)
        if self._queue or self._wait(need) > 0:
            return None
        permit = self._grant(request, need)
        self.breaker.admit(permit)
        return permit

    async def acquire(
        self, request: Request, bound: Spend, slot: Slot, *, again: bool = False
    ) -> Permit:
        """Wait for a permit; raise the error of a halted model.

        ``slot``, the call's place in the gates, is given up while it waits and taken again before
        the permit is given, so that no permit is held by a call that cannot be sent. ``again``: the
        call failed before.
        """
        need = self._estimate.need(request, bound.tokens)
        while True:
            while self.breaker.opens_in(again=again) and self.halted is None:
                slot.leave()
                await self.breaker.wait(again=again)
            permit = await self._in_turn(request, need, slot)
            if not self.breaker.opens_in(again=again):
                self.breaker.admit(permit)
                return permit
            self.refund(permit)

    async def _in_turn(
        self, request: Request, need: Mapping[Resource, float], slot: Slot
    ) -> Permit:
        ticket = _Ticket(need)
        self._queue.append(ticket)
        try:
            while self.halted is None:
                seconds = self._wait(need) if self._queue[0] is ticket else math.inf
                if seconds > 0:
                    slot.leave()
                    ticket.wake.clear()
                    await sleep_unless(self._clock, max(seconds, _SHORTEST_WAIT), ticket.wake)
                elif slot.inside:
                    return self._grant(request, need)
                else:
                    await slot.reenter()
            raise self.halted
        finally:
            self._queue.remove(ticket)
            self._wake_first()

    def refund(self, permit: Permit) -> None:
        """Take back the permit of an attempt that is not sent; do nothing if it is closed."""
        if permit.closed:
            return
        now = self._close(permit)
        for name, hold in permit.holds.items():
            self.buckets[name].refund(hold, now)
        self._search.give_back(now)
        self.breaker.gave_up(permit)
        self._wake_first()

    def send(self, permit: Permit) -> None:
        """Record that an attempt is sent now."""
        now = self._clock.now()
        permit.n_refusals = self._n_refusals
        for name, hold in permit.holds.items():
            self.buckets[name].send(hold, now)
        permit.departure = self._search.sent(now)
        if self._concurrency is not None:
            self._concurrency.sent()

    def ended(
        self,
        permit: Permit,
        result: Reply | ProviderError | None,
        *,
        first: bool = True,
        since: float = math.inf,
        kept_bound: bool = True,
    ) -> None:
        """Record what an attempt came to; None: it was cut off, and may have been answered.

        Args:
            permit: the attempt's.
            result: the reply or the failure.
            first: whether no attempt at the same call failed before.
            since: when the call first failed, other than by a refusal.
            kept_bound: whether it cost no more than its bound, which ends the trial.
        """
        if isinstance(result, Reply):
            self._answered(permit, result, first=first, kept_bound=kept_bound)
        elif result is None:
            self._settle(permit, None)
            self.breaker.gave_up(permit)
            if self._concurrency is not None:
                self._concurrency.gave_up()
        elif result.kind is FailureKind.RATE_LIMITED:
            self._refused(permit, result.retry_after)
        else:
            self._failed(permit, result, since)
        self._wake_first()

    def _answered(self, permit: Permit, reply: Reply, *, first: bool, kept_bound: bool) -> None:
        if kept_bound:
            self._trial.resize(_UNLIMITED)
        self.breaker.answered()
        self._estimate.observe(permit.request, reply.usage)
        reserved = {name: hold.amount for name, hold in permit.holds.items()}
        self._settle(permit, self._estimate.used(reply.usage, reserved))
        self._listen(permit)
        if self._concurrency is not None:
            self._concurrency.answered(first=first)

    def _failed(self, permit: Permit, error: ProviderError, since: float) -> None:
        """Record a failure other than a refusal.

        All that was reserved counts as used if the attempt may have been billed. Otherwise the
        request alone counts: providers count requests that they reject, but not their tokens.
        """
        self._settle(permit, None if may_be_billed(error) else _ONE_REQUEST)
        self._listen(permit)
        if self._concurrency is not None and error.kind in _STRAINED:
            self._concurrency.failed()
        elif self._concurrency is not None:
            self._concurrency.gave_up()
        if error.kind in _STRAINED or error.kind in _UNREACHED:
            self.breaker.failed(permit, since)
        elif error.blame is Blame.HARNESS:
            self.breaker.gave_up(permit)
        else:
            self.breaker.answered()
        if self.breaker.is_hopeless:
            self.halt(
                ProviderError(
                    f"{self.name} does not answer: one call after another failed, the last one "
                    f"with: {error}; see that it runs and can be reached; `bestarm-agent resume` "
                    f"goes on with it",
                    kind=error.kind,
                    fatal=True,
                )
            )

    def _refused(self, permit: Permit, retry_after: float | None) -> None:
        """Record a refusal (429): the request counts, its tokens do not, and all calls pause.

        The pause is half a second without ``retry_after``; when refused again 1 s, 2 s, and so on,
        or longer if the provider asks for it. A call that was sent before the last pause belongs to
        the same burst as an earlier refusal.
        """
        is_probe = permit is self._probe
        now = self._close(permit)
        self.breaker.answered()
        for name, hold in permit.holds.items():
            if name is not Resource.REQUESTS:
                self.buckets[name].settle(hold, 0.0, now)
        news = permit.n_refusals == self._n_refusals
        if news:
            self._n_refusals += 1
            self._n_pauses += 1
            self._needs_probe = True
        if news or retry_after is not None:
            seconds = retry_after or 0.0
            if retry_after is None or self._n_pauses > 1:
                own = min(_FIRST_PAUSE * 2.0 ** (self._n_pauses - 1), _LONGEST_PAUSE)
                seconds = max(own, seconds)
            self._paused_until = max(self._paused_until, now + min(seconds, self._longest_pause))
        if permit.departure is not None:
            self._search.refused(permit.departure, now, self.paused, news=news, probe=is_probe)
        self._listen(permit)
        if self._concurrency is not None:
            self._concurrency.refused(self.paused, news=news, probe=is_probe)

    def _settle(self, permit: Permit, used: Mapping[Resource, float] | None) -> None:
        """Close a permit whose attempt was not refused; None: all that was reserved was used."""
        now = self._close(permit)
        if used is not None:
            for name, hold in permit.holds.items():
                self.buckets[name].settle(hold, used.get(name, 0.0), now)
        self._search.accepted(now)
        is_new = permit.n_refusals == self._n_refusals
        if is_new:
            self._n_pauses = 0
        if is_new or now >= self._paused_until:
            self._needs_probe = False

    def halt(self, error: ProviderError) -> None:
        """Fail all calls with ``error`` from now on, those that wait too."""
        self.halted = self.halted or error
        self._halting.set()
        for ticket in self._queue:
            ticket.wake.set()
        self.breaker.wake()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the model is halted."""
        await sleep_unless(self._clock, seconds, self._halting)

    def waits(self) -> Wait | None:
        """Return why calls wait, for people; None if they do not."""
        if self.halted is not None:
            return None
        if self.breaker.is_open:
            return Wait(self.name, "failing; tried again with one call at a time", 0, None)
        if (silence := self.breaker.silence) >= _LONG_SILENCE and not loading_wait(self._provider):
            return Wait(self.name, f"has not answered yet, for {silence:.0f} s", 0, None)
        paused, queued = self.paused, len(self._queue)
        if paused:
            until = datetime.fromisoformat(self._clock.utc()) + timedelta(seconds=paused)
            reason = f"rate limited until {until.astimezone():%H:%M:%S}"
            return Wait(self.name, reason, queued, paused)
        seconds = self._wait(self._next_need())
        if not queued and seconds <= 0:
            return None
        known = seconds if seconds < math.inf else None
        return Wait(self.name, self._held_by(seconds), queued, known)

    def _held_by(self, seconds: float) -> str:
        """Say what a call that leaves in ``seconds`` waits for."""
        need, now = self._next_need(), self._clock.now()
        if seconds <= 0:
            return "waiting for a free place"
        for name, bucket in self.buckets.items():
            if bucket.wait(need.get(name, 0.0), now) == seconds:
                limit = counted(round(bucket.per_minute), _UNITS[name])
                return f"at its limit of {limit} a minute"
        if self._search.wait(now) == seconds:
            found = counted(round(60 * self._search.rate(now)), "request")
            return f"at {found} a minute, the rate found so far"
        return "until one call has shown that the pause is over"

    def _next_need(self) -> Mapping[Resource, float]:
        if self._queue:
            return self._queue[0].need
        return self._estimate.typical() or _ONE_REQUEST

    def _wait(self, need: Mapping[Resource, float]) -> float:
        """Return the seconds until a call of this need could be sent; infinite if unknown."""
        now = self._clock.now()
        waits = [bucket.wait(need.get(name, 0.0), now) for name, bucket in self.buckets.items()]
        waits += [self._paused_until - now, self._search.wait(now)]
        if self._needs_probe and self._probe is not None:
            waits.append(self._probed_at + _PROBE_SECONDS - now)
        return max(waits)

    def _grant(self, request: Request, need: Mapping[Resource, float]) -> Permit:
        holds = {name: bucket.reserve(need[name]) for name, bucket in self.buckets.items()}
        permit, now = Permit(request, holds), self._clock.now()
        self._search.take(now)
        if self._needs_probe and self._probe is not None:
            self._needs_probe = False  # not refused for so long: it was accepted
        elif self._needs_probe:
            self._probe, self._probed_at = permit, now
        return permit

    def _close(self, permit: Permit) -> float:
        """Close a permit; return the time."""
        if permit.closed:
            raise ValueError("this permit was ended or refunded before")
        permit.closed = True
        if permit is self._probe:
            self._probe = None
        return self._clock.now()

    def _listen(self, permit: Permit) -> None:
        """Apply what an answer says is left of each limit; ignore nonsense."""
        now = self._clock.now()
        for said in self._provider.allowances(permit.request.model):
            limit, remaining = _sensible(said.limit), _sensible(said.remaining)
            if limit and said.resource not in self._given:
                self._learn(said, limit, now)
            bucket, hold = self.buckets.get(said.resource), permit.holds.get(said.resource)
            if bucket is None or hold is None or remaining is None:
                continue
            if limit is None or remaining <= limit:
                bucket.lower(remaining, hold, now)

    def _learn(self, said: Allowance, limit: float, now: float) -> None:
        bucket = self.buckets.get(said.resource)
        if bucket is None:
            self.buckets[said.resource] = TokenBucket(limit, now)
        elif bucket.per_minute != limit:
            bucket.resize(limit)

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].wake.set()


def _sensible(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
