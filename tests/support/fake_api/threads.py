"""A server in a thread, for clients that bring a loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

from tests.support.fake_api.server import FakeApi


@contextmanager
def in_thread(api: FakeApi) -> Iterator[FakeApi]:
    """Run a server in a thread until the context ends."""
    ready: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def serve() -> None:
        stop = asyncio.Event()
        async with api:
            ready.put((asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    loop, stop = ready.get(timeout=30)
    try:
        yield api
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
