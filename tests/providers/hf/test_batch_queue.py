"""Batches: who is taken together, and that nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.providers.hf.generate import Call
from bestarm_agent.providers.hf.options import Sampling
from bestarm_agent.providers.hf.worker import BatchQueue, Job


def in_loop(body: Callable[[], None]) -> None:
    """Run something that needs an event loop for its futures."""

    async def main() -> None:
        body()

    asyncio.run(main())


def job(length: int, max_tokens: int = 8, submitted: float = 0.0) -> Job:
    request = Request(model="m", text="x" * length)
    future = asyncio.get_running_loop().create_future()
    return Job(Call(request, Sampling(max_tokens=max_tokens)), future, submitted)


def queue_of(jobs: Sequence[Job], max_batch: int = 4, max_tokens: int = 1_000_000) -> BatchQueue:
    queue = BatchQueue(max_batch, max_tokens)
    for one in jobs:
        queue.add(one)
    return queue


def lengths(batch: Sequence[Job]) -> list[int]:
    return [one.call.length for one in batch]


def test_a_small_queue_is_one_batch_sorted_by_length() -> None:
    def body() -> None:
        assert lengths(queue_of([job(5), job(1), job(3)]).take()) == [1, 3, 5]

    in_loop(body)


def test_a_batch_holds_the_oldest_and_its_shorter_neighbours() -> None:
    def body() -> None:
        jobs = [job(n, submitted=i) for i, n in enumerate((50, 90, 10, 49, 51, 48, 20))]
        queue = queue_of(jobs)
        assert lengths(queue.take()) == [20, 48, 49, 50]
        assert lengths(queue.take()) == [10, 51, 90]
        assert queue.take() == []

    in_loop(body)


def test_calls_of_other_lengths_of_reply_wait_for_their_own_batch() -> None:
    def body() -> None:
        jobs = [job(1, 8, 1.0), job(1, 256, 0.0), job(1, 8, 2.0), job(1, 256, 3.0)]
        queue = queue_of(jobs)
        assert [one.submitted for one in queue.take()] == [0.0, 3.0]
        assert [one.submitted for one in queue.take()] == [1.0, 2.0]

    in_loop(body)


def test_long_prompts_make_small_batches() -> None:
    def body() -> None:
        queue = queue_of([job(92, 8) for _ in range(5)] + [job(392, 8)], max_tokens=200)
        assert [len(queue.take()) for _ in range(5)] == [2, 2, 1, 1, 0]

    in_loop(body)


def test_cancelled_calls_are_dropped() -> None:
    def body() -> None:
        jobs = [job(1), job(2), job(3)]
        queue = queue_of(jobs)
        jobs[1].reply.cancel()
        assert lengths(queue.take()) == [1, 3]
        queue.add(jobs[1])
        assert len(queue) == 1
        assert queue.take() == []
        assert len(queue) == 0

    in_loop(body)


def test_messages_count_by_their_contents() -> None:
    messages = (Message("user", "abc"), Message("assistant", "de"))
    assert Call(Request(model="m", messages=messages), Sampling()).length == 5


@given(
    shapes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 8, 64])), max_size=40),
    max_batch=st.integers(1, 6),
    max_tokens=st.integers(1, 400),
)
def test_everyone_is_taken_once_the_oldest_first_and_within_the_limits(
    shapes: list[tuple[int, int]], max_batch: int, max_tokens: int
) -> None:
    def body() -> None:
        jobs = [job(length, n, float(i)) for i, (length, n) in enumerate(shapes)]
        queue = queue_of(jobs, max_batch, max_tokens)
        waiting = list(jobs)
        while batch := queue.take():
            assert waiting[0] in batch
            assert len({one.call.sampling.max_tokens for one in batch}) == 1
            assert len(batch) <= max_batch
            width = max(lengths(batch)) + batch[0].call.sampling.max_tokens
            assert len(batch) == 1 or len(batch) * width <= max_tokens
            for one in batch:
                waiting.remove(one)
        assert waiting == []

    in_loop(body)
