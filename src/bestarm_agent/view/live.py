"""The open pages of one run: its log is read for all of them together, not for each."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from bestarm_agent.errors import BestarmError
from bestarm_agent.store.export import labels as names
from bestarm_agent.view.documents import standing_page
from bestarm_agent.view.followed_run import FollowedRun

_POLL_SECONDS: Final = 0.5
_REST: Final = 4  # the next look comes after this many times as long as the last one took
_REST_PER_PAGE: Final = 0.0015  # seconds; to tell a page what is new takes 40 microseconds
_SIGN_OF_LIFE_SECONDS: Final = 15.0  # between two messages; a page that was left is noticed by it
_SIGN_OF_LIFE: Final = ":\n\n"  # a comment: browsers skip it


class LiveRun:
    """One run as open pages watch it.

    A task looks for what is new as long as a page is open, and makes each text once. The pages do
    nothing but wait for it, so that a thousand of them cost what one does.
    """

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._pages: Counter[int] = Counter()  # open ones, by the most rows that each shows
        self._texts: dict[int, str] = {}  # to send, by the most rows
        self._known = -1  # events that the texts tell of
        self._look_now = asyncio.Event()
        self._changed = asyncio.Event()  # replaced by another once it is set
        self._following: asyncio.Task[None] | None = None
        self._closed = False

    async def texts(self, most_rows: int) -> AsyncGenerator[str]:
        """Iterate over what to send to a page, now and whenever something is new; it never ends.

        A sign of life comes in between. After ``close``, it ends.
        """
        self._pages[most_rows] += 1
        if most_rows not in self._texts:
            # A width that no open page had so far: nothing new was logged, and its text is missing
            # all the same.
            self._known = -1  # it is worked out with the next look
            self._look_now.set()
        sent = ""
        try:
            while not self._closed:
                # The task ends with the last page, and an error ends it too: whoever watches next
                # starts it again.
                if self._following is None or self._following.done():
                    self._following = asyncio.create_task(self._follow())
                changed = self._changed  # before looking: what comes meanwhile sets this one
                text = self._texts.get(most_rows, "")
                # Writing to a page that was closed is the only way to notice that it is gone.
                yield _SIGN_OF_LIFE if text == sent else text
                sent = text
                await _wait(changed, _SIGN_OF_LIFE_SECONDS)
        finally:
            self._pages[most_rows] -= 1

    @property
    def is_watched(self) -> bool:
        """Return whether a page of the run is open."""
        return bool(+self._pages)

    def close(self) -> None:
        """End all iterations."""
        self._closed = True
        self._look_now.set()
        self._announce()

    async def _follow(self) -> None:
        """Look for what is new until the last page is left."""
        clock = asyncio.get_running_loop()
        while not self._closed and (open_pages := +self._pages):
            began = clock.time()
            self._look_now.clear()
            await self._look(open_pages)
            # A large run takes long to fold: the rest grows with it, so that watching takes at most
            # a fifth of a core, whatever the run.
            rest = max(_POLL_SECONDS, _REST * (clock.time() - began))
            await _wait(self._look_now, max(rest, _REST_PER_PAGE * open_pages.total()))
        self._following = None
        self._texts = {}  # the next page does not begin with what is old

    async def _look(self, open_pages: Counter[int]) -> None:
        known = self._known
        try:
            async with self._run.refreshed() as state:
                if self._run.n_events == known:
                    return
                standing = await self._run.standing()
                pages = {most: standing_page(*standing, names(state), most) for most in open_pages}
                known = self._run.n_events
            jsons = {most: json.dumps(page) for most, page in pages.items()}
        except BestarmError as error:  # such as a damaged log: told once, and looked at again
            jsons, known = dict.fromkeys(open_pages, json.dumps({"error": str(error)})), -1
        texts = {most: f"data: {text}\n\n" for most, text in jsons.items()}
        # ``_look_now`` may have been set while this look was under way, for widths that it did not
        # know.
        if not self._look_now.is_set():  # else another page came meanwhile, and needs a look too
            self._known = known
        if texts != self._texts:
            self._texts = texts
            self._announce()

    def _announce(self) -> None:
        # Each announcement has an event of its own: pages hold the old one, so none can miss it or
        # be woken twice by it.
        self._changed.set()
        self._changed = asyncio.Event()


async def _wait(event: asyncio.Event, at_most: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(at_most):
            await event.wait()
