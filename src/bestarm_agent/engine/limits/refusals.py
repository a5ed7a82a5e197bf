"""The meaning of a refusal: it says something about our rate, or nothing.

Many servers refuse calls that they could not let in at any rate of ours: flex tiers, free models of
routers, balancers with one full replica, accounts that others share. A refusal is evidence about
our rate only if fewer come at a lower one. So the share of calls refused is compared.

Calls are numbered as they leave. A refusal comes at once, an answer takes longer; so of the calls
that left before a refused one, those that were not refused count as let in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

# Before any call a server is taken to refuse 1 % at any rate, as if that had been seen in 20 calls.
_FIRST_SHARE, _FIRST_CALLS = 0.01, 20.0
# So many standard deviations above the number of refusals expected by chance are more than chance
# brings; the half allows for whole numbers being compared with a continuous bound.
_SIGMAS, _HALF = 3.0, 0.5
_EXPECTED = 20.0  # refusals end a stretch, so that a change of the share is seen
_LONGEST = 1000  # calls of a stretch
_MEMORY = 4000.0  # calls: older ones count less, as what chance is may change
# The share at the lower rate, in multiples of the share before, that says that the rate does not
# matter. Below it the lower rate has made refusals fewer, above it something else has changed.
_LOWER, _HIGHER = 0.5, 3.0
_MOST = 0.5  # a server that refuses more is one to be called less, whatever its reason
_ENOUGH, _MANY = 3, 30  # refusals and calls from which two shares are compared
_SEVERAL = 5  # refusals by chance from which it is sure that some come at any rate
# A server that is shut refuses nearly all. Four refusals in a row tell at first, two after a
# thousand calls without any, and more where more are refused by chance; two also where it was shut
# before the rate was lowered.
_SHUT_SHARE, _SURE, _SURE_AGAIN = 0.95, math.log(5e3), math.log(10)
_LEAST_CHANCE = 0.01  # of a refusal, at least: else one refusal after many calls would be proof
# Cuts in a row, each after so few calls that a lower rate has let no more in between refusals.
_IN_VAIN, _VAIN_SHARE = 3, 0.25
# A refusal comes soon: a call that waits for twice the longest time that one took of late was let
# in. That longest time falls by 5 % with each refusal, as a slow one may have been an exception.
_LATE, _FORGET = 2.0, 0.95


@dataclass(slots=True, eq=False)
class Hold:
    """An amount reserved in one bucket for one call."""

    amount: float  # reserved; later the amount used
    reserved: float  # in the bucket once this was, so what exceeds it is later calls'
    sent_at: float = math.inf  # seconds; infinite before it is sent
    in_window: bool = False  # sent within the last minute
    number: int = 0  # of the call among those of a search, in the order of sending
    beside: int = 0  # calls under way when it was sent
    has_ended: bool = False
    is_refused: bool = False


class Meaning(Enum):
    """The meaning of a refusal."""

    CHANCE = auto()  # one of those that come at any rate, or too early to say
    MORE = auto()  # more are refused than at a lower rate
    AS_BEFORE = auto()  # a lower rate did not make them fewer
    SHUT = auto()  # nobody is let in any more
    NEVER_SHUT = auto()  # nor was anybody shut out before: what looked so was chance


class Refusals:
    """Compares the share of calls refused at a lower rate and at a higher one.

    A stretch is a number of calls at about one rate. It ends with a cut of the rate, and when the
    rate has come back.

    Attributes:
        is_compared: whether the rate was lowered, and the share is being compared with that before.
        share_before: share of the calls that were refused before it was lowered; 1 where none
            was refused before the row of refusals that showed the server shut.
    """

    def __init__(self) -> None:
        self.is_compared = False
        self._n_sent = self._before = 0  # calls; those before this stretch
        self._n_refused = 0  # in this stretch
        self.share_before = 0.0  # refused, before the rate was lowered
        self._least_before = 0.0  # what that share may have been: so few calls tell little of it
        self._low_sent, self._low_refused = _FIRST_CALLS, _FIRST_SHARE * _FIRST_CALLS
        self._in_row = 0  # refusals that told that the server is shut
        self._was_as_before = False  # once, when the rate was lowered
        self._shut_before = 0  # calls until it was found shut last
        self._n_in_vain = 0  # cuts in a row
        self._vain_sent = self._vain_refused = 0  # calls since the first of them
        self._latency = 0.0  # seconds that a refusal takes at most, of late

    @property
    def chance(self) -> float:
        """The share of calls that are refused whatever the rate, in (0, 1)."""
        return self._low_refused / self._low_sent

    def sent(self, *, is_lowered: bool) -> int:
        """Return the number of a call that is sent now."""
        n = self._n_sent - self._before
        # A stretch at a lowered rate ends once the rate is back, since few were refused on the way.
        # Any other ends after so many calls that a change of the share shows; they teach what
        # chance is only if no more were refused than at lower rates, since at this one more may be.
        if self.is_compared:
            if not is_lowered:
                self._learn(n)
        elif n >= _LONGEST or n * self.chance >= _EXPECTED:
            if self._n_refused <= n * self.chance:
                self._learn(n)
            else:
                self.begin()
        self._n_sent += 1
        return self._n_sent

    def refused(
        self, call: Hold, latest: Iterable[Hold], now: float, *, sure: bool = False
    ) -> Meaning:
        """Return what the refusal of a call means.

        Args:
            call: the refused one.
            latest: all calls of late, the newest first.
            now: the time.
            sure: whether the server itself says that our rate is the reason.
        """
        call.is_refused = True
        self._latency = max(now - call.sent_at, _FORGET * self._latency)
        n = call.number - self._before
        if n <= 0:
            return Meaning.CHANCE  # it left before the rate was cut, or judged
        self._n_refused += 1
        if self._is_shut(latest, now) or sure:
            return Meaning.SHUT if sure or not self._is_in_vain(n) else Meaning.NEVER_SHUT
        if self.is_compared:
            share = self._n_refused / n
            if self._n_refused < _ENOUGH or n < _MANY:
                return Meaning.CHANCE
            # About the same share at the lower rate: refusals do not depend on the rate, and the
            # search goes back.
            most = min(_MOST, _HIGHER * self.share_before)
            if _LOWER * self._least_before <= share <= most:
                self._comes_at_any_rate(n, self._n_refused)
                return Meaning.AS_BEFORE
        # Refusals by chance are about Poisson: their standard deviation is the root of their
        # number.
        expected = self.chance * n
        if self._n_refused > expected + _SIGMAS * math.sqrt(expected) - _HALF:
            return Meaning.MORE
        return Meaning.CHANCE

    def lowered(self, verdict: Meaning) -> None:
        """Begin to compare: the rate was cut for ``verdict``, MORE or SHUT."""
        n, refused = self._n_sent - self._before, self._n_refused
        if verdict is Meaning.SHUT:
            # The row of refusals that showed it belongs to the new state of the server. Only what
            # came before the row is compared with the lower rate, and teaches what chance is.
            n, refused = max(0, n - self._in_row), max(0, refused - self._in_row)
            self._shut_before = self._n_sent
            self._low_sent, self._low_refused = self._low_sent + n, self._low_refused + refused
        self.begin()
        self.is_compared = True
        self.share_before = self._least_before = 1.0
        if refused > 0 and n > 0:
            self.share_before = refused / n
            self._least_before = (refused - math.sqrt(refused)) / n

    def _is_in_vain(self, n: int) -> bool:
        """Return whether cuts do not help, now that it seems shut after ``n`` more calls.

        At a lower rate a server with a limit lets more calls in before it is shut again. Where
        refusals come by chance, it is as few as before, however low the rate.
        """
        if not self._is_shut_again or n > _MANY:
            self._n_in_vain = self._vain_sent = self._vain_refused = 0
            return False
        self._n_in_vain += 1
        self._vain_sent += n
        self._vain_refused += self._n_refused
        # A server that lets few calls a minute in refuses most of them at any rate of the search:
        # there the cuts are right.
        if self._n_in_vain < _IN_VAIN or self._vain_refused > _VAIN_SHARE * self._vain_sent:
            return False
        self._comes_at_any_rate(self._vain_sent, self._vain_refused)
        self._n_in_vain = self._vain_sent = self._vain_refused = 0
        self._shut_before = self._n_sent
        return True

    @property
    def _is_shut_again(self) -> bool:
        """Return whether the last cut was for a shut server that had refused nobody before."""
        return self.is_compared and self.share_before == 1.0

    def _comes_at_any_rate(self, n: int, refused: int) -> None:
        """Learn the share that is refused at any rate: ``refused`` of ``n`` calls.

        It was thought smaller until now; rather too large at first than cut again at once.
        """
        self._low_sent, self._low_refused = float(n), refused + math.sqrt(refused)
        self._was_as_before = True
        self.begin()

    def _learn(self, n: int) -> None:
        """Add a stretch of ``n`` calls to what is known of lower rates; begin another one."""
        kept = min(1.0, _MEMORY / self._low_sent)
        self._low_sent = kept * self._low_sent + n
        self._low_refused = kept * self._low_refused + self._n_refused
        self.begin()

    def begin(self) -> None:
        """Begin a stretch: what limits the calls has changed."""
        self._before, self._n_refused, self.is_compared = self._n_sent, 0, False

    def _is_shut(self, calls: Iterable[Hold], now: float) -> bool:
        """Return whether so many were refused in a row that chance does not explain it.

        The largest sum of log likelihood ratios of the latest calls (Page 1954, CUSUM): refused by
        a server that is shut, or by chance. ``calls``: the newest first.
        """
        # One refusal is added to those seen: after few calls the true chance may well be higher.
        chance = min(max((self._low_refused + 1.0) / self._low_sent, _LEAST_CHANCE), 0.9)
        by_chance = self._was_as_before or self._low_refused >= _SEVERAL  # some come at any rate
        again = self._is_shut_again and not by_chance
        sure = _SURE_AGAIN if again else _SURE
        # What one call adds to the log of the odds that the server is shut: a refusal log(.95 /
        # chance), a call let in log(.05 / (1 - chance)).
        refused, let_in = math.log(_SHUT_SHARE / chance), math.log((1 - _SHUT_SHARE) / (1 - chance))
        odds, self._in_row, n = 0.0, 0, 0
        for call in calls:
            if call.number <= self._shut_before or odds < -sure:
                return False
            if call.is_refused:
                odds, n = odds + refused, n + 1
            # One still in flight may yet be refused, unless it has waited longer than refusals
            # take. Where refusals come at any rate it counts as let in, which asks for more of
            # them.
            elif call.has_ended or by_chance or call.sent_at < now - _LATE * self._latency:
                odds += let_in
            if odds >= sure:
                self._in_row = n
                return True
        return False
