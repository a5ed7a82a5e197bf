"""The number of calls that a server takes at once, where nobody states it.

A server with so many places refuses a call when all are taken, whatever the rate. A rate that suits
it leaves places empty: replies differ in length, so the number of calls under way goes up and down,
and the rate must be low enough for its peaks. Such a server is asked as fast as it answers, with so
many calls under way at most.

What tells it apart from a limit on the rate: calls that leave beside fewer others than any refused
one make up nearly all, and hardly one of them is refused. A limit on the rate refuses calls
whatever is under way. In slow start that tells nothing: there the rate and the number under way
grow together, and the first refusal comes at the most of both.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice

from bestarm_agent.engine.limits.refusals import Hold

_LATEST = 1000  # calls that are looked at
_ENOUGH, _REFUSED = 3, 5  # refusals to judge by: so many, and the latest of them
_FEWEST = 4  # places: with fewer calls under way their number tells too little
_FEWER, _BELOW = 0.9, 0.01  # share that leaves beside fewer, at least; refused of these, at most
_STEP_CALLS = 150  # let in with all places taken, before more are tried
_STEPS = 16  # a step is a sixteenth of the places at most
_LAST = 30  # calls: if half of them are refused, something else is the matter


class SearchedPlaces:
    """Counts the calls under way, and finds how many of them a server takes.

    After 150 calls that took the last place and were let in, one place more is tried; then two,
    and twice as many each time, until a call is refused. A refusal takes one place back. Where it
    refuses most of its calls all the same, the search for a rate begins again.

    Attributes:
        most: the calls that may be under way; infinite until a refusal is explained by their
            number.
        under_way: the calls that were sent and have not ended.
    """

    def __init__(self) -> None:
        self.most = math.inf
        self.under_way = 0
        self._found = 0  # what ``most`` was at first
        self._step, self._n_full = 1.0, 0
        self._latest = 0  # the number of the call that was sent last
        self._changed = 0  # ... when ``most`` changed: what left before tells nothing of it
        self._slow_start = math.inf  # ... when slow start was over
        self._refused: deque[int] = deque(maxlen=_REFUSED)  # how many calls were beside each

    def sent(self, call: Hold) -> None:
        """Count a call that is sent now, and has its number."""
        call.beside, self._latest = self.under_way, call.number
        self.under_way += 1

    def ended(self) -> None:
        """Count the end of a call that was sent."""
        self.under_way -= 1

    def accepted(self, call: Hold) -> None:
        """Try more places after many calls that took the last one and were let in."""
        if call.number <= self._changed or call.beside + 1 < self.most:
            return
        self._n_full += 1
        if self._n_full >= _STEP_CALLS:
            self.most += self._step
            self._step = min(2 * self._step, max(1.0, self.most // _STEPS))
            self._n_full, self._changed = 0, self._latest

    def slow_start_over(self) -> None:
        """Record that the rate is cut: what leaves from now on is looked at."""
        self._slow_start = min(self._slow_start, self._latest)

    def explain(self, call: Hold, calls: Iterable[Hold], *, is_limit: bool) -> bool:
        """Return whether a call was refused since all places were taken; learn from it.

        Args:
            call: the refused one.
            calls: all calls of late, the newest first.
            is_limit: whether so many are refused that the rate would be cut.
        """
        if call.number > self._slow_start:
            self._refused.append(call.beside)
        if self.most == math.inf:
            return is_limit and self._find(calls)
        is_shut = 2 * sum(other.is_refused for other in islice(calls, _LAST)) > _LAST
        if is_shut or self.most <= self._found / 2:
            self.most, self._slow_start = math.inf, self._latest
            self._refused.clear()
            return False
        if call.number > self._changed:
            self._keep(max(1.0, self.most - 1.0))
        return True

    def _find(self, calls: Iterable[Hold]) -> bool:
        """Return whether the refusals of late come of the number under way; keep it if they do."""
        if len(self._refused) < _ENOUGH or (taken := min(self._refused)) < _FEWEST:
            return False
        seen = [call for call in islice(calls, _LATEST) if call.number > self._slow_start]
        fewer = [call.is_refused for call in seen if call.beside < taken]
        if len(fewer) < _FEWER * len(seen) or sum(fewer) > _BELOW * len(fewer):
            return False
        self._found = taken
        self._keep(float(taken))
        return True

    def _keep(self, most: float) -> None:
        self.most, self._changed, self._step, self._n_full = most, self._latest, 1.0, 0
