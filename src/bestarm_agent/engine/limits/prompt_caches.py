"""The first call with a long beginning fills a provider's cache, before others read it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from bestarm_agent.engine.limits.clock import Clock

_CACHE_SECONDS = 300.0  # that providers keep the beginning of a prompt after its last use


class PromptCaches:
    """Lets the first call with a long beginning fill a provider's cache before others read it.

    Calls that are sent together all pay for what only the first one has to write.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.filling: dict[Hashable, asyncio.Event] = {}  # set when the first call has ended
        self._until: dict[Hashable, float] = {}  # when a cache that was filled is given up

    @contextmanager
    def sent(self, prefix: Hashable) -> Iterator[None]:
        """Note that a call is under way, which was answered if the block ends without an error."""
        event = None
        # The first call of a beginning, and the first one after the provider has dropped it. A call
        # that fails leaves ``_until`` as it was: it may have filled nothing, so the next is the
        # first.
        if prefix not in self.filling and self._until.get(prefix, 0.0) <= self._clock.now():
            event = self.filling[prefix] = asyncio.Event()
        try:
            yield
            self._until[prefix] = self._clock.now() + _CACHE_SECONDS
        finally:
            if event is not None:
                del self.filling[prefix]
                event.set()
