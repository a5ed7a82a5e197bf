"""All limits of the calls to one model: rates (``rates.py``), pauses and outages (``pauses.py``).

Every attempt takes a permit before it is sent, first come, first served: its expected use is
reserved in each token bucket, and replaced by its real use when it ends.

A refused call (429) waits alone and is repeated. What it means for the others:

                 refusals that come at any rate, or of places that are taken (``rates.py``)
                    +------+
                    |      v      a refusal that says so of the account, or more in
      +----------> OPEN <--+      a row than chance explains          +------------+
      |             |  ^      ------------------------------------->  |   PAUSED   |
      |  more are   |  |                                              +------------+
      |  refused    v  | as many as before: back up,    time is over    |       ^
      |          LOWERED | these come at any rate                       v       | refused
      |             |                                                 PROBE ----+
      |  fewer, or the rate is back                                     |
      +-----------------------------------------------------------------+ accepted

Ten failures in a row are an outage: PAUSED, too, until a probe is answered. Only a rate that nobody
states is searched; where the user states a limit, there is no LOWERED, and only what the server
says of the account pauses.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bestarm_agent.domain.spend import Resource, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.limits.gates import Slot
from bestarm_agent.engine.limits.pauses import Pause, Permit
from bestarm_agent.engine.limits.rates import SearchedRate, TokenBucket
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.errors import Blame, FailureKind, ProviderError, counted
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import may_be_billed

_SHORTEST_WAIT = 1e-3  # a shorter one can be lost to rounding in the clock
_LONG_SILENCE = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits > 0 of one model of one account; a resource not named is learned from the answers."""

    per_minute: Mapping[Resource, float] = field(default_factory=dict)  # as the user says
    assumed: Mapping[Resource, float] = field(default_factory=dict)  # until the provider says
    # look for the rate that the provider accepts, from a slow start: where nobody states a limit
    searches: bool = False


class ModelLimits:
    """The limits of the calls to one model of one account, or to all of it if ``model`` is "".

    A call gets a permit by ``take`` or ``acquire``; then comes ``send`` and, whatever happens,
    ``ended``; or ``refund`` if it is not sent.

    What ``known`` leaves open is learned from the provider's answers. A refusal pauses calls for
    ``longest_pause`` seconds at most.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        known: RateLimits,
        clock: Clock,
        longest_pause: float = 60.0,
    ) -> None:
        self.name = f"{provider.name}/{model}" if model else provider.name
        self.halted: ProviderError | None = None  # fails all calls
        now, stated = clock.now(), {**known.assumed, **known.per_minute}
        self._search = SearchedRate(now) if known.searches else None
        self.buckets: dict[str, TokenBucket] = {}
        if self._search is not None:
            self.buckets[SEARCHED] = self._search
        self.buckets.update((name, TokenBucket(most, now)) for name, most in stated.items())
        self._pause = Pause(longest_pause)
        self._estimate = TokenEstimate()
        self._provider, self._clock = provider, clock
        self._given = frozenset(known.per_minute)  # by the user: answers do not change these
        # the needs of calls that wait, in the order of their coming, each with what wakes it
        self._queue: deque[tuple[Mapping[str, float], asyncio.Event]] = deque()
        self._last_need: Mapping[str, float] = ONE_REQUEST
        self._silent_since = math.inf  # when the first call went that was not answered yet
        self._halting = asyncio.Event()
        self._watchers: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever a call may change ``room``, ``may_answer`` or ``opens_in``."""
        self._watchers.append(changed)

    @property
    def is_at_rest(self) -> bool:
        """True if time alone does not change ``room``, ``may_answer`` or ``opens_in`` any more."""
        now, need = self._clock.now(), self._last_need
        full = (bucket.is_full(need.get(name, 0.0), now) for name, bucket in self.buckets.items())
        is_open = not self._queue and self._pause.is_over(now)
        return self.halted is not None or (is_open and all(full))

    @property
    def paused(self) -> float:
        """Seconds left of the pause after a refusal, >= 0."""
        return max(0.0, self._pause.until - self._clock.now())

    @property
    def room(self) -> float:
        """The number of calls that could be sent now, >= 0; may be infinite."""
        if self._is_closed:
            return 0
        now, need = self._clock.now(), self._last_need
        rooms = [
            bucket.room(need[name], now) for name, bucket in self.buckets.items() if need.get(name)
        ]
        return min([self._pause.room(now), *rooms])

    @property
    def _is_closed(self) -> bool:
        """True if a call that is not in the queue must wait; the probe of an outage passes it."""
        # In an outage the queue holds calls that failed. Were the probes taken from it alone,
        # examples that always fail would keep a model shut that answers all others.
        return self.halted is not None or (bool(self._queue) and self._pause.outage is None)

    @property
    def may_answer(self) -> bool:
        """False while calls pause since one after another failed, and once it was given up."""
        pause = self._pause
        return self.halted is None and (pause.outage is None or not pause.wait(self._clock.now()))

    @property
    def opens_in(self) -> float:
        """Seconds until time alone may make room; infinite if it cannot."""
        return math.inf if self.halted is not None else self._wait(self._next_need())

    def take(self, request: Request, bound: Spend) -> Permit | None:
        """Return a permit for one attempt of at most ``bound``; None if it would have to wait."""
        need = self._need(request, bound)
        self._note_change()
        if self._is_closed or self._wait(need) > 0:
            return None
        return self._grant(request, need, math.inf)

    async def acquire(
        self, request: Request, bound: Spend, slot: Slot, since: float = math.inf
    ) -> Permit:
        """Wait for a permit; raise the error of a halted model.

        ``slot``, the call's place in the gates, is given up while it waits and taken again before
        the permit is given, so that no permit is held by a call that cannot be sent. ``since``:
        when the call failed first, other than by a refusal.
        """
        # First come, first served. Only the first of the queue watches the limits, so that a call
        # that needs much is not overtaken by small ones for ever; whatever frees something wakes
        # it. It has its places before it gets the permit; the limits are read again after the wait
        # for them, and a place is left again if they have changed.
        need, wake = self._need(request, bound), asyncio.Event()
        self._queue.append((need, wake))
        self._note_change()
        try:
            while self.halted is None:
                is_next = self._queue[0][1] is wake
                seconds = self._wait(need) if is_next else math.inf
                if seconds > 0:
                    slot.leave()
                    wake.clear()
                    await self._clock.sleep(max(seconds, _SHORTEST_WAIT), unless=wake)
                elif slot.inside:
                    return self._grant(request, need, since)
                else:
                    await slot.reenter()
            raise self.halted
        finally:
            self._queue.remove((need, wake))
            self._note_change(frees=True)

    def refund(self, permit: Permit) -> None:
        """Take back the permit of an attempt that is not sent; do nothing if it is closed."""
        if permit.closed:
            return
        # The order matters: what was used takes the place of what was reserved before the server's
        # own count, which includes it, is compared with the buckets (``_listen``).
        now = self._close(permit)
        for name, hold in permit.holds.items():
            self.buckets[name].refund(hold, now)
        self._pause.withdrawn(permit)
        self._note_change(frees=True)

    def send(self, permit: Permit) -> None:
        """Record that an attempt is sent now."""
        now = self._clock.now()
        permit.sent_at, permit.n_pauses = now, self._pause.n_pauses
        for name, hold in permit.holds.items():
            self.buckets[name].send(hold, now)
        self._silent_since = min(self._silent_since, now)

    def ended(self, permit: Permit, result: Reply | ProviderError | None) -> None:
        """Record what an attempt came to; None: it was cut off, and may have been answered."""
        self._silent_since = math.inf
        now = self._close(permit)
        if self._search is not None:
            self._search.places.ended()
        self._settle(permit, result, now)
        if isinstance(result, Reply):
            self._estimate.observe(permit.request, result.usage)
        self._learn(permit, result, now)
        if result is not None:
            self._listen(permit)
        self._note_change(frees=True)

    def _settle(self, permit: Permit, result: Reply | ProviderError | None, now: float) -> None:
        """Count what was used in place of what was reserved.

        That is all of it if the attempt may have been billed, nobody knows at how much. Else the
        request alone counts: providers count requests that they reject, but not their tokens.
        """
        if isinstance(result, Reply):
            used = amounts_used(result.usage)
        elif result is None or may_be_billed(result):
            return
        else:
            used = ONE_REQUEST
        for name, hold in permit.holds.items():
            self.buckets[name].settle(hold, used.get(name, 0.0), now)

    def _learn(self, permit: Permit, result: Reply | ProviderError | None, now: float) -> None:
        """Let the end of an attempt begin or end a pause, and change the rate."""
        pause, search = self._pause, self._search
        error = result if isinstance(result, ProviderError) else None
        if error is not None and error.kind is FailureKind.RATE_LIMITED:
            # With a limit that the user states, nothing is searched: a refusal concerns its call
            # alone, unless the provider says that it is the account's.
            of_account = error.of_account
            shut = of_account if search is None else self._is_shut(permit, now, of_account)
            pause.refused(permit, now, error.retry_after, shut=shut, of_account=of_account)
            if search is not None and self.paused > 0:
                search.held(pause.until)
            return
        if search is not None:
            search.accepted(permit.holds[SEARCHED], now)
        # Cut off, or failed by our own doing: that says nothing about the server, but frees the
        # probe. An error that is not transient is an answer: the server works and dislikes the
        # request.
        if result is None or (error is not None and error.blame is Blame.HARNESS):
            pause.ended(permit, now)
        elif error is None or not error.transient:
            pause.answered(permit, now)
        else:
            pause.failed(permit, now)
            if pause.is_hopeless(now):
                self.halt(
                    ProviderError(
                        f"{self.name} does not answer: one call after another failed, the last one "
                        f"with: {error}; see that it runs and can be reached; `bestarm-agent "
                        f"resume` goes on with it",
                        kind=error.kind,
                        fatal=True,
                    )
                )

    def _is_shut(self, permit: Permit, now: float, of_account: bool) -> bool:
        """Return what the search makes of a refusal; that of a probe says nothing of the rate."""
        search, hold = self._search, permit.holds[SEARCHED]
        assert search is not None
        if permit is not self._pause.probe:
            return search.refused(hold, now, sure=of_account)
        search.settle(hold, 0.0, now)
        return False

    def halt(self, error: ProviderError) -> None:
        """Fail all calls with ``error`` from now on, those that wait too."""
        self.halted = self.halted or error
        self._halting.set()
        for _, wake in self._queue:
            wake.set()
        self._note_change()

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until the model is halted."""
        await self._clock.sleep(seconds, unless=self._halting)

    def waits(self) -> Wait | None:
        """Return why calls wait, for people; None if they do not."""
        pause, need, now = self._pause, self._next_need(), self._clock.now()
        queued, seconds = len(self._queue), self._wait(need)
        # told of a model that never answered; one that did is slow, and its calls time out
        silence = now - self._silent_since if pause.answered_at == -math.inf else 0.0
        if self.halted is not None:
            return None
        if pause.outage is not None:
            return Wait(self.name, "failing; tried again with one call at a time", 0, None)
        if silence >= _LONG_SILENCE and not self._provider.loading:
            return Wait(self.name, f"has not answered yet, for {silence:.0f} s", 0, None)
        if not queued and seconds <= 0:
            return None
        if seconds <= 0:
            reason = "waiting for a free place"
        elif pause.wait(now) > 0:
            reason = "rate limited"
        else:
            waits = {k: bucket.wait(need.get(k, 0.0), now) for k, bucket in self.buckets.items()}
            reason = self._limit(max(waits, key=waits.__getitem__))
        return Wait(self.name, reason, queued, None if seconds == math.inf else seconds)

    def _limit(self, name: str) -> str:
        """Say which limit a call waits for."""
        bucket = self.buckets[name]
        if name == SEARCHED and self._search is not None and self._search.places.most < math.inf:
            most = counted(round(self._search.places.most), "call")
            return f"with {most} under way, as many as it was found to take"
        if name == SEARCHED:
            rate = counted(round(60 * bucket.rate(self._clock.now())), "request")
            return f"at {rate} a minute, the rate found so far"
        unit = name.replace("-", " ").removesuffix("s")
        return f"at its limit of {counted(round(bucket.per_minute), unit)} a minute"

    def _next_need(self) -> Mapping[str, float]:
        return self._queue[0][0] if self._queue else self._last_need

    def _need(self, request: Request, bound: Spend) -> Mapping[str, float]:
        self._last_need = self._estimate.need(request, bound.tokens)
        return self._last_need

    def _wait(self, need: Mapping[str, float]) -> float:
        """Return the seconds until a call of this need could be sent; infinite if unknown."""
        now = self._clock.now()
        waits = [bucket.wait(need.get(name, 0.0), now) for name, bucket in self.buckets.items()]
        return max([self._pause.wait(now), *waits])

    def _grant(self, request: Request, need: Mapping[str, float], since: float) -> Permit:
        holds = {name: bucket.reserve(need[name]) for name, bucket in self.buckets.items()}
        permit = Permit(request, holds, since)
        self._pause.admit(permit, self._clock.now())
        return permit

    def _close(self, permit: Permit) -> float:
        """Close a permit; return the time."""
        if permit.closed:
            raise ValueError("this permit was ended or refunded before")
        permit.closed = True
        return self._clock.now()

    def _listen(self, permit: Permit) -> None:
        """Apply what an answer says is left of each limit; ignore nonsense."""
        now = self._clock.now()
        for stated in self._provider.allowances(permit.request.model):
            # A limit of 0 would stop all calls for good: it is not believed, nor is more left than
            # the limit allows.
            limit, remaining = _sensible(stated.limit), _sensible(stated.remaining)
            if limit and stated.resource not in self._given:
                self.buckets.setdefault(stated.resource, TokenBucket(limit, now)).per_minute = limit
            bucket, hold = self.buckets.get(stated.resource), permit.holds.get(stated.resource)
            if bucket is None or hold is None or remaining is None:
                continue
            if limit is None or remaining <= limit:
                bucket.lower(remaining, hold, now)

    def _note_change(self, *, frees: bool = False) -> None:
        """Tell who watches; ``frees``: the first that waits may go now."""
        if frees and self._queue:
            self._queue[0][1].set()
        for changed in self._watchers:
            changed()


def _sensible(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None


_TOKENS_PER_CHARACTER = 0.3  # of English prose, before anything was seen
_FIRST_OUTPUT = 500.0  # before anything was seen, where the bound is no lower
_MEMORY = 0.1  # the weight of a new value, once there are ten
_PER_CHARACTER = "tokens of a prompt by its characters"
SEARCHED = "searched"  # calls, under the rate that nobody states
ONE_REQUEST = {Resource.REQUESTS: 1.0, SEARCHED: 1.0}


class TokenEstimate:
    """The tokens of calls to one model.

    Prompts are measured in characters, since all candidates of a model share its tokenizer; replies
    are averaged by candidate, since a prompt that asks for reasoning gets longer ones.
    """

    def __init__(self) -> None:
        # Means that move: of all values at first, later of about the last ten; with their number.
        self._means: dict[str | None, tuple[float, int]] = {}

    def need(self, request: Request, bound: int) -> dict[str, float]:
        """Return the amounts to reserve for one attempt.

        ``bound`` is the most tokens that it can take, prompt included; 0 if unknown.
        """
        # The prompt first, and the output out of what is left: a bound holds for both together.
        at_most = bound or math.inf
        share = self._mean(_PER_CHARACTER, _TOKENS_PER_CHARACTER)
        prompt = min(max(1.0, sum(map(len, request.texts)) * share), at_most)
        output = self._mean(request.candidate, self._mean(None, _FIRST_OUTPUT))
        return _amounts(prompt, min(output, at_most - prompt))

    def observe(self, request: Request, usage: Usage) -> None:
        """Learn from an answered call."""
        self._add(_PER_CHARACTER, usage.input / max(1, sum(map(len, request.texts))))
        for candidate in (None, request.candidate):
            self._add(candidate, usage.output)

    def _mean(self, key: str | None, default: float) -> float:
        return self._means.get(key, (default, 0))[0]

    def _add(self, key: str | None, value: float) -> None:
        mean, n = self._means.get(key, (0.0, 0))
        self._means[key] = mean + (value - mean) * max(1 / (n + 1), _MEMORY), n + 1


def amounts_used(usage: Usage) -> dict[str, float]:
    """Return what an answered call counts with; tokens read from a cache are no input tokens."""
    return _amounts(usage.input, usage.output) | {Resource.INPUT_TOKENS: usage.input - usage.cached}


def _amounts(prompt: float, output: float) -> dict[str, float]:
    return {
        **ONE_REQUEST,
        Resource.TOKENS: prompt + output,
        Resource.INPUT_TOKENS: prompt,
        Resource.OUTPUT_TOKENS: output,
    }
