"""Splits the seconds for which a server holds its accelerators over the calls it answers."""

from __future__ import annotations

from collections.abc import Callable


class SharedTime:
    """Charges every second that a server is up to some call, once.

    While n calls run, each is charged 1/n of the time. Time without calls, including the start, is
    charged to the next call that ends. No call is charged more than ``most`` seconds; the excess is
    charged to the next one too.

    Example:
        >>> now = 0.0
        >>> time = SharedTime(lambda: now, most=100.0)
        >>> time.begin()
        >>> now = 8.0  # it took eight seconds to start
        >>> one = time.enter()
        >>> now = 10.0
        >>> other = time.enter()
        >>> now = 14.0
        >>> time.leave(one), time.leave(other)
        (12.0, 2.0)
    """

    def __init__(self, clock: Callable[[], float], most: float) -> None:
        self._clock = clock
        self._most = most
        self._since: float | None = None  # up since, as far as charged; None: not up
        self._n_calls = 0
        self._each = 0.0  # seconds that a call under way all the time would have been charged
        self._waiting = 0.0

    def begin(self) -> None:
        """Note that the server takes the accelerators."""
        self._advance()
        self._since = self._clock()

    def end(self) -> None:
        """Note that it releases them."""
        self._advance()
        self._since = None

    def enter(self) -> float:
        """Note that a call begins; return its ticket."""
        self._advance()
        self._n_calls += 1
        return self._each

    def leave(self, ticket: float) -> float:
        """Note that a call was answered; return the seconds to charge."""
        share = self._left(ticket) + self._waiting
        charged = min(share, self._most)
        self._waiting = share - charged
        return charged

    def fail(self, ticket: float) -> None:
        """Note that a call failed; its seconds are charged to the next one."""
        self._waiting += self._left(ticket)

    def _left(self, ticket: float) -> float:
        self._advance()
        self._n_calls -= 1
        return self._each - ticket

    def _advance(self) -> None:
        if self._since is None:
            return
        now = self._clock()
        if self._n_calls:
            self._each += (now - self._since) / self._n_calls
        else:
            self._waiting += now - self._since
        self._since = now
