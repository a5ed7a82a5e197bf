"""Chooses which waiting calls are generated together."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.providers.hf.options import Sampling


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its parameters parsed."""

    request: Request
    sampling: Sampling

    @property
    def length(self) -> int:
        """Characters of the prompt: close enough to its tokens to sort by."""
        request = self.request
        if request.text is not None:
            return len(request.text)
        return sum(len(message.content) for message in request.messages)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A call with the future of its reply; ``submitted`` is its time of arrival."""

    call: Call
    reply: asyncio.Future[Reply]
    submitted: float


class BatchQueue:
    """Waiting calls, taken in batches.

    A batch runs until its longest reply is done, so only calls of one ``max_tokens`` share it; all
    else about sampling may differ from row to row. A batch always holds the oldest call.

    Args:
        max_batch: most calls in a batch, >= 1.
        max_tokens: most tokens in a batch, prompts (counted in characters) padded to the longest
            and replies included; a larger call goes alone.
    """

    def __init__(self, max_batch: int, max_tokens: int) -> None:
        self._max_batch = max_batch
        self._max_tokens = max_tokens
        self._groups: dict[int, list[Job]] = {}

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def add(self, job: Job) -> None:
        """Add a call."""
        self._groups.setdefault(job.call.sampling.max_tokens, []).append(job)

    def take(self) -> list[Job]:
        """Remove the next batch and return it; cancelled calls are dropped."""
        self._drop(lambda job: job.reply.done())
        if not self._groups:
            return []
        group = min(self._groups.values(), key=lambda jobs: jobs[0].submitted)
        batch = self._around_oldest(group)
        taken = set(map(id, batch))
        self._drop(lambda job: id(job) in taken)
        return batch

    def take_all(self) -> list[Job]:
        """Remove all calls and return them."""
        jobs = [job for group in self._groups.values() for job in group]
        self._groups.clear()
        return jobs

    def _drop(self, is_gone: Callable[[Job], bool]) -> None:
        for key, group in list(self._groups.items()):
            self._groups[key] = [job for job in group if not is_gone(job)]
            if not self._groups[key]:
                del self._groups[key]

    def _around_oldest(self, group: list[Job]) -> list[Job]:
        """Return calls of similar length: first shorter ones, which need no more padding."""
        oldest = group[0]
        length = attrgetter("call.length")
        by_length = sorted(group, key=length)
        start = by_length.index(oldest, bisect_left(by_length, length(oldest), key=length))
        stop = start + 1
        while start > 0 and self._fits(stop - start + 1, oldest):
            start -= 1
        while stop < len(by_length) and self._fits(stop - start + 1, by_length[stop]):
            stop += 1
        return by_length[start:stop]

    def _fits(self, n_rows: int, longest: Job) -> bool:
        n_tokens = longest.call.length + longest.call.sampling.max_tokens
        return n_rows <= self._max_batch and n_rows * n_tokens <= self._max_tokens
