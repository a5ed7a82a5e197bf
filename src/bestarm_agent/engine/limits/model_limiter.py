"""Limits shared by all calls to one model of one account: rate, concurrency, fatal errors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bestarm_agent.domain.rate_limits import RateLimits, Resource
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.clock import Clock, sleep_unless
from bestarm_agent.engine.limits.concurrency_gates import AdaptiveConcurrency, Gate, Slot
from bestarm_agent.engine.limits.rate_limiter import Permit, RateLimiter
from bestarm_agent.engine.limits.wait_reasons import Wait, WaitBoard, loading_wait
from bestarm_agent.errors import Blame, FailureKind, ProviderError
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


@dataclass(slots=True)
class TokenEstimate:
    """The tokens of calls to one model.

    Prompts are measured in characters, since all candidates of a model share its tokenizer; replies
    are averaged by candidate, since a prompt that asks for reasoning gets longer ones.
    """

    reserve_maximum: bool = False  # count a reply with the most tokens that it may have
    _per_character: MovingMean = field(default_factory=MovingMean)
    _output: MovingMean = field(default_factory=MovingMean)
    _output_of: dict[str, MovingMean] = field(default_factory=dict)
    _asked_input: MovingMean = field(default_factory=MovingMean)
    _asked_output: MovingMean = field(default_factory=MovingMean)

    def need(self, request: Request, bound: int) -> dict[Resource, float]:
        """Return the amounts to reserve for one attempt.

        ``bound`` is the most tokens that it can take, prompt included; 0 if unknown.
        """
        prompt = self._prompt(request)
        if bound:
            prompt = min(prompt, float(bound))
        output = self._reply(request, bound - prompt if bound else None)
        self._asked_input.add(prompt)
        self._asked_output.add(output)
        return _amounts(prompt, output)

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

    def _prompt(self, request: Request) -> float:
        share = self._per_character.value if self._per_character.n else _TOKENS_PER_CHARACTER
        return max(1.0, _characters(request) * share)

    def _reply(self, request: Request, at_most: float | None) -> float:
        asked = next((request.params[p] for p in _MOST_TOKENS if p in request.params), None)
        if isinstance(asked, int | float):
            at_most = float(asked) if at_most is None else min(float(asked), at_most)
        if self.reserve_maximum and at_most is not None:
            return at_most
        seen = self._output_of.get(request.candidate, self._output)
        expected = seen.value if seen.n else _FIRST_OUTPUT
        return expected if at_most is None else min(expected, at_most)


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
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_PROBES_OF_NEWCOMERS = 5  # of a model that never answered
_LONGEST_OUTAGE = 900.0
_SHORTEST_WAIT = 1e-3
_FIRST_TURN = 1.0  # seconds in which a call that never failed may become the probe


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
        self._failures = 0  # in a row
        self._has_answered = False
        self._opened_at = math.inf
        self._next_probe = -math.inf
        self._n_probes = 0  # in a row
        self._probe: object | None = None
        self._sent_at = math.inf  # when the first call since an answer or a failure went
        self._answered_at = -math.inf
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True while calls pause."""
        return self._opened_at < math.inf

    @property
    def room(self) -> float:
        """Number of calls that may be sent now: 0, 1 or infinite."""
        if not self.is_open:
            return math.inf
        return 0 if self.opens_in > 0 else 1

    @property
    def opens_in(self) -> float:
        """Seconds until there is room; infinite while a probe is in flight."""
        if not self.is_open:
            return 0.0
        if self._probe is not None:
            return math.inf
        return max(0.0, self._next_probe - self._clock.now())

    def wait_of(self, *, again: bool) -> float:
        """Return the seconds until a call may go that failed before (``again``), or never did."""
        is_turn_of_new = self.is_open and self._has_answered and self._n_probes % 2 == 0
        if not again or not is_turn_of_new or self._probe is not None:
            return self.opens_in
        return max(0.0, self._next_probe + _FIRST_TURN - self._clock.now())

    @property
    def silence(self) -> float:
        """Seconds that a model which never answered has left a call without an answer; else 0."""
        return 0.0 if self._has_answered else max(0.0, self._clock.now() - self._sent_at)

    @property
    def is_hopeless(self) -> bool:
        """True if the model is to be given up."""
        if not self.is_open:
            return False
        if not self._has_answered and self._n_probes >= _PROBES_OF_NEWCOMERS:
            return True
        return self._clock.now() - self._opened_at >= _LONGEST_OUTAGE

    def admit(self, call: object) -> None:
        """Record that a call may go; it is the probe if calls pause."""
        self._sent_at = min(self._sent_at, self._clock.now())
        if self.is_open:
            self._probe = call

    async def wait(self, *, again: bool) -> None:
        """Wait until a call may go, or ``wake`` is called."""
        # A shorter wait may not move a clock of floats.
        seconds = max(self.wait_of(again=again), _SHORTEST_WAIT)
        await sleep_unless(self._clock, seconds, self._changed)

    def wake(self) -> None:
        """Wake the calls that wait, so that they check again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def answered(self) -> None:
        """Record an answer: calls go on."""
        self._failures, self._has_answered = 0, True
        self._answered_at = self._clock.now()
        if self.is_open:
            self._opened_at, self._n_probes, self._probe = math.inf, 0, None
            self.wake()

    def failed(self, call: object, since: float = math.inf) -> None:
        """Record a failure that suggests the server is down; ``since`` its call's first one."""
        if since < self._answered_at:
            self.gave_up(call)
            return
        self._failures, self._sent_at = self._failures + 1, math.inf
        now = self._clock.now()
        if call is self._probe:
            self._n_probes += 1
            pause = min(_FIRST_PAUSE * 2.0**self._n_probes, _LONGEST_PAUSE)
            self._next_probe, self._probe = now + pause, None
            self.wake()
        elif not self.is_open and self._failures >= _FAILURES_TO_OPEN:
            self._opened_at, self._next_probe = now, now + _FIRST_PAUSE

    def gave_up(self, call: object) -> None:
        """Record a call that ended and says nothing about the model."""
        self._sent_at = math.inf
        if call is self._probe:
            self._probe = None
            self.wake()


_ONLY_THE_REQUEST = {**dict.fromkeys(Resource, 0.0), Resource.REQUESTS: 1.0}
_TRIAL_CALLS = 4
_LONG_SILENCE = 5.0  # seconds
_UNLIMITED = 1_000_000_000
_STRAINED = (FailureKind.OVERLOADED, FailureKind.SERVER, FailureKind.TIMEOUT)
_UNREACHED = (FailureKind.CONNECTION, FailureKind.UNREACHABLE, FailureKind.MALFORMED_REPLY)
_OUTAGE = (*_STRAINED, *_UNREACHED)

# What makes every further call to the provider, or to the model, pointless.
WHOLE_PROVIDER = (FailureKind.AUTHENTICATION, FailureKind.QUOTA_EXHAUSTED)
_WHOLE_ACCOUNT = (FailureKind.RATE_LIMITED,)  # fatal where the pause asked for is too long
_WHOLE_MODEL = (*_WHOLE_ACCOUNT, FailureKind.MODEL_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class LimiterRules:
    """Limits that are known before the first call to a model."""

    limits: RateLimits = field(default_factory=RateLimits)
    adaptive: int | None = None  # most calls in flight, if their number is searched for
    trial: bool = False  # keep few calls in flight until an answer has cost no more than its bound


class ModelLimiter:
    """Limits the calls to one model of one account, or to all of it if ``model`` is ""."""

    def __init__(self, provider: Provider, model: str, rules: LimiterRules, clock: Clock) -> None:
        self.name = f"{provider.name}/{model}" if model else provider.name
        self.rate = RateLimiter(rules.limits, clock, searching=rules.adaptive is not None)
        self.concurrency = (
            None if rules.adaptive is None else AdaptiveConcurrency(rules.adaptive, clock)
        )
        self.breaker = CircuitBreaker(clock)
        self.halted: ProviderError | None = None
        self._trial = Gate(_TRIAL_CALLS if rules.trial else _UNLIMITED)
        self._provider = provider
        self._clock = clock
        self._expected = TokenEstimate(rules.limits.reserve_maximum)
        self._halting = asyncio.Event()

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates that a call passes."""
        trial = () if self._trial.capacity == _UNLIMITED else (self._trial,)
        return trial if self.concurrency is None else (*trial, self.concurrency.gate)

    @property
    def room(self) -> float:
        """The number of calls that could be sent now, >= 0; may be infinite."""
        if self.halted is not None:
            return 0
        free = min((gate.free for gate in self.gates), default=math.inf)
        free = min(free, self.breaker.room)
        if not free or not self.rate.engaged:
            return free
        return min(free, self.rate.room(self._expected.typical()))

    @property
    def may_answer(self) -> bool:
        """False while calls pause since one after another failed, and once it was given up."""
        return self.halted is None and self.breaker.room > 0

    @property
    def opens_in(self) -> float:
        """Seconds until time alone may make room; infinite if it cannot."""
        if self.halted is not None or not all(gate.free for gate in self.gates):
            return math.inf
        return max(self.breaker.opens_in, self.rate.wait(self._expected.typical()))

    def take(self, request: Request, bound: Spend) -> Permit | None:
        """Return a permit for one attempt of at most ``bound``; None if it would have to wait."""
        if not self.breaker.room:
            return None
        permit = self.rate.take(self._expected.need(request, bound.tokens))
        if permit is not None:
            self.breaker.admit(permit)
        return permit

    async def acquire(self, request: Request, bound: Spend, slot: Slot, *, again: bool) -> Permit:
        """Wait for a permit, outside the gates of ``slot``; raise the error of a halted limiter."""
        need = self._expected.need(request, bound.tokens)
        while True:
            while self.breaker.wait_of(again=again) and self.halted is None:
                slot.leave()
                await self.breaker.wait(again=again)
            permit = await self.rate.acquire(need, slot)
            if not self.breaker.wait_of(again=again):
                self.breaker.admit(permit)
                return permit
            self.rate.refund(permit)

    def refund(self, permit: Permit) -> None:
        """Take back the permit of an attempt that is not sent."""
        self.rate.refund(permit)
        self.breaker.gave_up(permit)

    def send(self, permit: Permit) -> None:
        """Record that an attempt is sent."""
        self.rate.send(permit)
        if self.concurrency is not None:
            self.concurrency.sent()

    def answered(
        self,
        permit: Permit,
        request: Request,
        reply: Reply,
        *,
        first: bool,
        kept_bound: bool = True,
    ) -> None:
        """Record an answer.

        ``first`` says that no attempt at the same call failed before, ``kept_bound`` that it cost
        no more than its bound, which ends the trial.
        """
        if kept_bound:
            self._trial.resize(_UNLIMITED)
        self.breaker.answered()
        self._expected.observe(request, reply.usage)
        reserved = {name: hold.amount for name, hold in permit.holds.items()}
        self.rate.settle(permit, self._expected.used(reply.usage, reserved))
        self._listen(permit, request)
        if self.concurrency is not None:
            self.concurrency.answered(first=first)

    def refused(
        self, permit: Permit, request: Request, error: ProviderError, at_most: float
    ) -> None:
        """Record a refusal (429): all calls pause, for ``at_most`` seconds."""
        self.breaker.answered()
        news = self.rate.refuse(permit, error.retry_after, at_most=at_most)
        self._listen(permit, request)
        if self.concurrency is not None:
            self.concurrency.refused(self.rate.paused, news=news, probe=permit.probe)

    def failed(self, permit: Permit, request: Request, error: ProviderError, since: float) -> None:
        """Record a failure other than a refusal; ``since`` is when the call first failed.

        All that was reserved counts as used if the attempt may have been billed. Otherwise the
        request alone counts: providers count requests that they reject, but not their tokens.
        """
        self.rate.settle(permit, None if may_be_billed(error) else _ONLY_THE_REQUEST)
        self._listen(permit, request)
        if self.concurrency is not None and error.kind in _STRAINED:
            self.concurrency.failed()
        elif self.concurrency is not None:
            self.concurrency.gave_up()
        self._note_outage(permit, error, since)

    def _note_outage(self, permit: Permit, error: ProviderError, since: float) -> None:
        if error.kind in _OUTAGE:
            self.breaker.failed(permit, since)
        elif error.blame is Blame.HARNESS:
            self.breaker.gave_up(permit)
        else:
            self.breaker.answered()
        if self.breaker.is_hopeless and self.halted is None:
            self.halt(
                ProviderError(
                    f"{self.name} does not answer: one call after another failed, the last one "
                    f"with: {error}; see that it runs and can be reached; `bestarm-agent resume` "
                    f"goes on with it",
                    kind=error.kind,
                    fatal=True,
                )
            )

    def cut_off(self, permit: Permit) -> None:
        """Record a cancelled attempt, which may have been answered."""
        self.rate.settle(permit, None)
        self.breaker.gave_up(permit)
        if self.concurrency is not None:
            self.concurrency.gave_up()

    def halt(self, error: ProviderError) -> None:
        """Fail all calls with ``error`` from now on, those that wait too."""
        self.halted = self.halted or error
        self._halting.set()
        self.rate.halt(self.halted)
        self.breaker.wake()

    def check(self) -> None:
        """Raise the error that the limiter was halted with, if it was."""
        if self.halted is not None:
            raise self.halted

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the limiter is halted."""
        await sleep_unless(self._clock, seconds, self._halting)

    def waits(self) -> Wait | None:
        """Return why calls wait, for people; None if they do not."""
        if self.halted is not None:
            return None
        if self.breaker.is_open:
            return Wait(self.name, "failing; tried again with one call at a time", 0, None)
        if (silence := self.breaker.silence) >= _LONG_SILENCE and not loading_wait(self._provider):
            return Wait(self.name, f"has not answered yet, for {silence:.0f} s", 0, None)
        paused, queued = self.rate.paused, self.rate.queued
        if paused:
            until = datetime.fromisoformat(self._clock.utc()) + timedelta(seconds=paused)
            reason = f"rate limited until {until.astimezone():%H:%M:%S}"
            return Wait(self.name, reason, queued, paused)
        seconds, reason = self.rate.held_by(self._expected.typical())
        if queued or seconds > 0:
            return Wait(self.name, reason, queued, seconds if seconds < math.inf else None)
        return None

    def _listen(self, permit: Permit, request: Request) -> None:
        said = self._provider.allowances(request.model)
        if said:
            self.rate.observe(permit, said)


class AccountLimiters:
    """An account's gate and limiters, one for each model or ``shared``."""

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        board: WaitBoard,
        rules: Callable[[str], LimiterRules],
        gate: Gate,
        *,
        shared: bool,
    ) -> None:
        self._gate = gate
        self._provider, self._clock, self._board = provider, clock, board
        self._rules, self._shared = rules, shared
        self._limiters: dict[str, ModelLimiter] = {}
        self._halted: ProviderError | None = None

    def of(self, model: str) -> ModelLimiter:
        """Return the limiter of a model, made on first use."""
        name = "" if self._shared else model
        if name not in self._limiters:
            limiter = ModelLimiter(self._provider, name, self._rules(model), self._clock)
            if self._halted is not None:
                limiter.halt(self._halted)
            self._board.watch(limiter.waits)
            self._limiters[name] = limiter
        return self._limiters[name]

    @property
    def free(self) -> int:
        """The number of calls that may enter the gate now, >= 0."""
        return self._gate.free

    def close(self, model: str, error: ProviderError) -> None:
        """Halt what a fatal error of a call to ``model`` makes pointless, if it is fatal."""
        if not error.fatal:
            return
        if error.kind in WHOLE_PROVIDER:
            self._halted = error
            for limiter in self._limiters.values():
                limiter.halt(error)
        elif error.kind in (_WHOLE_ACCOUNT if self._shared else _WHOLE_MODEL):
            self.of(model).halt(error)
