"""A process that answers calls with the models of one device, for another process.

    python -m bestarm_agent.providers.hf.worker_process

The first frame on stdin is a ``Setup``; the others are (number, Request), or (number, None) to
cancel a call. Each frame on stdout is (number, Reply or ProviderError, Times). The process ends
when stdin does: its owner closed it, or died.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from functools import partial

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.frames import Setup, frame, read_frame
from bestarm_agent.providers.hf.provider import HfProvider


async def _serve(stream: asyncio.StreamReader, output: int) -> None:
    """Answer calls until the stream ends."""
    setup: Setup = await read_frame(stream)
    calls: dict[int, asyncio.Task[None]] = {}
    async with HfProvider.create(setup.name, setup.options, setup.base_dir) as provider:
        with suppress(asyncio.IncompleteReadError):
            while True:
                number, request = await read_frame(stream)
                if request is not None:
                    answering = _answer(provider, number, request, output)
                    calls[number] = asyncio.create_task(answering)
                    calls[number].add_done_callback(partial(_forget, calls, number))
                elif number in calls:
                    calls[number].cancel()
        for call in [*calls.values()]:
            call.cancel()


def _forget(calls: dict[int, asyncio.Task[None]], number: int, _: asyncio.Task[None]) -> None:
    del calls[number]


async def _answer(provider: HfProvider, number: int, request: Request, output: int) -> None:
    result: Reply | ProviderError
    try:
        result = await provider.generate(request)
    except ProviderError as error:
        result = error
    except Exception as error:
        result = failure(FailureKind.INTERNAL, f"{request.model}: {error!r}")
    content = frame((number, result, provider.times(request.model)))
    while content:
        content = content[os.write(output, content) :]


async def _main() -> None:
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no frame
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    with suppress(BrokenPipeError):  # the owner is gone, and nobody waits for answers
        await _serve(stream, output)


if __name__ == "__main__":
    asyncio.run(_main())
