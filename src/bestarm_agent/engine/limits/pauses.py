"""Pauses of all calls to one model: after refusals, and in an outage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bestarm_agent.domain.values import Request
from bestarm_agent.engine.limits.refusals import Hold

_FIRST_PAUSE = 0.5  # seconds; doubles
LONGEST_PAUSE = 16.0  # after refusals that do not say how long
# A refusal comes at once: a call that takes longer, or ten times as long as one, was accepted.
_PROBE_SECONDS, _AS_LONG = 2.0, 10.0
_FAILURES_TO_PAUSE = 10  # in a row
_LONGEST_OUTAGE_PAUSE = 60.0
_PROBES_OF_NEWCOMERS = 5  # of a model that never answered
_LONGEST_OUTAGE = 900.0


@dataclass(slots=True, eq=False)
class Permit:
    """Permission to send one attempt."""

    request: Request
    holds: dict[str, Hold]  # what is reserved for it
    since: float  # when its call failed first, other than by a refusal
    sent_at: float = math.inf
    n_pauses: int = 0  # pauses that began before it was sent
    closed: bool = False  # true once it is ended or refunded


# Three phases, and an outage (``outage`` is not None) goes through the same ones:
#
#   phase   _is_on  probe    who may go
#   OPEN    no      None     everybody
#   SHUT    yes     None     nobody before ``until``, then whoever asks first, as the probe
#   PROBED  yes     a call   nobody else, until the probe ends
#
#               refused(): shut, or of a probe
#               failed(): ten in a row               refused(), failed() of the probe;
#        +------------------------------------> SHUT <---+ withdrawn(): the next is the probe
#        |                                        |      |
#       OPEN                              admit() |      |
#        |                                        v      |
#        +<------------------------------------ PROBED --+
#          ended(), answered(); after a refusal
#          also admit(), once the probe was not
#          refused for ``_probe_seconds``
#
# Three things do not fit into the picture:
#   - An outage ends with any answer or refusal, whichever call it is of, and with nothing else.
#     A pause after refusals is not ended by a call that left before it (``n_pauses``).
#   - ``until`` may lie ahead in OPEN, too: a refused call that left before named a time.
#   - A probe that was not refused in time may still be refused in OPEN, which shuts again.
class Pause:
    """The time in which no call goes, and the probe: the one call that goes first after it.

    It begins with refusals (429) of all calls, or with ten failures in a row: an outage. A refusal
    that is said to be of the account holds for as long as the provider asks for, any other once the
    probe has met with it. It doubles with every probe that ends in the same way. After a refusal
    all calls follow once the probe was accepted, or was not refused for up to 2 s; after an outage
    once the model answered. A model that never answered is given up after five probes, any other
    after an outage of 15 minutes.

    Some examples fail whenever they are sent, though the model answers all others. So the failures
    of a call count only while nothing was answered since its first one.

    Attributes:
        until: when the probe may go, in the clock's seconds.
        probe: the one in flight.
        n_pauses: that began, also by a refused probe.
        outage: when the outage began that goes on; None: there is none.
        answered_at: the last sign of life, where a refusal counts; -inf: there was none.
    """

    def __init__(self, longest: float) -> None:
        self.until = self.answered_at = -math.inf
        self.probe: Permit | None = None
        self.n_pauses = 0
        self.outage: float | None = None
        self._longest = longest  # seconds that are waited because a provider asks for it
        self._is_on = False  # until the probe has shown that it is over
        self._n_in_row = 0  # pauses
        self._probed_at = -math.inf
        self._probe_seconds = _PROBE_SECONDS
        self._n_failures = 0  # also in a row

    def room(self, now: float) -> float:
        """Return the number of calls that may go now: none, the probe, or any."""
        if self.wait(now) > 0:
            return 0
        return 1 if self._is_on and self.probe is None else math.inf

    def is_over(self, now: float) -> bool:
        """Return whether any call may go, until one of them fails or is refused."""
        return not self._is_on and self.until <= now

    def wait(self, now: float) -> float:
        """Return the seconds until a call may go, which may be infinite."""
        until = self.until
        if self._is_on and self.probe is not None:
            accepted_at = self._probed_at + self._probe_seconds
            until = max(until, accepted_at) if self.outage is None else math.inf
        return max(0.0, until - now)

    def admit(self, permit: Permit, now: float) -> None:
        """Record that a call may go."""
        if self.probe is not None:
            self._is_on = False  # not refused for so long: it was accepted
        elif self._is_on:
            self.probe, self._probed_at = permit, now

    def withdrawn(self, permit: Permit) -> None:
        """Record a call that was not sent, or ended and says nothing about the model."""
        if permit is self.probe:
            self.probe = None

    def refused(
        self, permit: Permit, now: float, retry_after: float | None, *, shut: bool, of_account: bool
    ) -> None:
        """Record a refusal.

        Args:
            permit: the call's.
            now: the time.
            retry_after: the seconds that the provider asks to wait, or None.
            shut: whether nobody is let in any more.
            of_account: whether the provider says that its refusal is of the whole account.
        """
        self._answers(now)
        if now > permit.sent_at:
            self._probe_seconds = min(_PROBE_SECONDS, _AS_LONG * (now - permit.sent_at))
        is_probe = permit is self.probe
        self.withdrawn(permit)
        # Of many calls in flight all may be refused: only the first refusal begins a pause, and
        # doubles the next one. Those of calls that left before it may name a later end.
        is_new = permit.n_pauses == self.n_pauses
        if is_new and (shut or is_probe):
            self.n_pauses += 1
            self._n_in_row += 1
            self._is_on, self.probe = True, None
        elif not of_account or retry_after is None:
            return  # it left before the pause, or concerns that call alone
        # what was not said of all calls holds them up once the probe has met with it too
        asked = retry_after if of_account or is_probe else None
        seconds = asked or 0.0
        if asked is None or self._n_in_row > 1:
            seconds = max(seconds, min(_FIRST_PAUSE * 2.0 ** (self._n_in_row - 1), LONGEST_PAUSE))
        self.until = max(self.until, now + min(seconds, self._longest))

    def ended(self, permit: Permit, now: float) -> None:
        """Record that a call was not refused."""
        if self.outage is None and permit.n_pauses == self.n_pauses:
            self._is_on, self._n_in_row = False, 0  # one that left before the pause says nothing
        self.withdrawn(permit)

    def answered(self, permit: Permit, now: float) -> None:
        """Record an answer."""
        self._answers(now)
        self.ended(permit, now)

    def failed(self, permit: Permit, now: float) -> None:
        """Record a failure that suggests the server is down."""
        is_probe = permit is self.probe
        self.ended(permit, now)
        # the model has answered since this call failed first: that is the example's failure
        if permit.since < self.answered_at:
            return
        self._n_failures += 1
        if self.outage is None and self._n_failures >= _FAILURES_TO_PAUSE:
            self.outage, self._n_in_row = now, 0
        elif self.outage is None or not is_probe:
            return
        self._n_in_row += 1
        self._is_on, self.probe = True, None
        self.until = now + min(_FIRST_PAUSE * 2.0 ** (self._n_in_row - 1), _LONGEST_OUTAGE_PAUSE)

    def is_hopeless(self, now: float) -> bool:
        """Return whether the model is to be given up."""
        if self.outage is None:
            return False
        never = self.answered_at == -math.inf and self._n_in_row > _PROBES_OF_NEWCOMERS
        return never or now - self.outage >= _LONGEST_OUTAGE

    def _answers(self, now: float) -> None:
        self.answered_at, self._n_failures = now, 0
        if self.outage is not None:
            self.outage, self._is_on, self._n_in_row = None, False, 0
            self.until = now
