"""Workers with an engine of cardboard: batching, failures, cancellation, accounting."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.generate import BatchEngine, HfCall, Prompt, Sampling
from bestarm_agent.providers.hf.worker import HfOptions, Worker, next_batch
from bestarm_agent.providers.local import ModelMemory

PATIENCE = 60.0


class Cardboard(BatchEngine):
    """Echoes prompts; each batch starts when the test lets it."""

    def __init__(self, *, is_free: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.aborted = threading.Event()
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self._is_free = is_free
        self.most_tokens = math.inf

    def encode(self, calls: Sequence[HfCall]) -> list[Prompt | ProviderError]:
        """A token for each character."""
        texts = [call.request.text or "" for call in calls]
        if "unreadable" in texts:
            raise KeyError("a bug")
        return [
            failure(FailureKind.TOO_LONG, "too long")
            if text == "huge"
            else Prompt(call, [*map(ord, text)], call.sampling.max_tokens)
            for call, text in zip(calls, texts, strict=True)
        ]

    def generate(self, batch: Sequence[Prompt]) -> list[Reply | ProviderError]:
        texts = [prompt.call.request.text or "" for prompt in batch]
        self.batches.append(texts)
        self.started.release()
        if not self._is_free:
            while not self.go.acquire(timeout=0.01):
                if self.aborted.is_set():
                    break
        if "bug" in texts:
            raise KeyError("a bug")
        return [self._result(text) for text in texts if text != "forgotten"]

    def abort(self) -> None:
        self.aborted.set()

    @staticmethod
    def _result(text: str) -> Reply | ProviderError:
        if text == "long":
            return failure(FailureKind.TOO_LONG, "too long")
        return Reply(text.upper(), usage=Usage(input=len(text), output=2 * len(text)))


class Ticking:
    """A clock that moves on by one second at every look."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now


def call(text: str) -> HfCall:
    return HfCall(Request(model="m", text=text), Sampling())


def worker_of(load: Callable[[], Cardboard], **options: Any) -> Worker:  # noqa: ANN401
    return Worker(
        "m",
        load,
        ModelMemory(),
        asyncio.Semaphore(),
        HfOptions(
            **{"max_batch_tokens": 1_000_000, "max_batch": 4, "max_gpu_seconds": 100, **options}
        ),
        price=lambda seconds: round(10 * seconds),
        clock=Ticking(),
    )


def play(
    scene: Callable[[Worker], Awaitable[None]],
    load: Callable[[], Cardboard] = Cardboard,
    **options: Any,  # noqa: ANN401
) -> None:
    """Play a scene with a worker, and close it."""

    async def main() -> None:
        worker = worker_of(load, **options)
        async with asyncio.timeout(PATIENCE):
            await scene(worker)
            await worker.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def submit(worker: Worker, texts: str | Sequence[str]) -> list[asyncio.Task[Reply]]:
    return [asyncio.create_task(worker.submit(call(text))) for text in texts]


async def outcomes(worker: Worker, *texts: str) -> list[Any]:
    """Replies and errors, in the order of the texts."""
    tasks = submit(worker, texts)
    await asyncio.wait(tasks)
    return [task.exception() or task.result() for task in tasks]


async def acquired(semaphore: threading.Semaphore) -> None:
    """Wait until another thread has come so far."""
    assert await asyncio.to_thread(semaphore.acquire, timeout=PATIENCE)


def test_a_busy_worker_gathers_the_next_batch() -> None:
    engine = Cardboard(is_free=False)

    async def scene(worker: Worker) -> None:
        calls = submit(worker, "a")
        await acquired(engine.started)
        calls += submit(worker, "bcdefg")
        engine.go.release(3)
        assert [(await one).text for one in calls] == list("ABCDEFG")

    play(scene, lambda: engine)
    assert [len(batch) for batch in engine.batches] == [1, 4, 2]


def test_a_small_batch_waits_while_it_grows() -> None:
    """Calls that come one by one, in the loop's next turns, still share a batch."""
    engine = Cardboard()

    async def scene(worker: Worker) -> None:

        async def later(text: str, turns: int) -> Reply:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await worker.submit(call(text))

        async with asyncio.TaskGroup() as group:
            for turns, text in enumerate("abc"):
                group.create_task(later(text, turns))

    play(scene, lambda: engine)
    assert engine.batches == [["a", "b", "c"]]


def test_worker_seconds_are_split_by_tokens() -> None:
    async def scene(worker: Worker) -> None:
        await outcomes(worker, "x")
        first, second, third = await outcomes(worker, "a", "bcd", "long")
        assert (first.gpu_seconds, second.gpu_seconds) == (0.25, 0.75)
        assert (first.usd_nanos, second.usd_nanos) == (2, 8)
        assert (second.usage.input, second.usage.output) == (3, 6)
        assert second.seconds > second.gpu_seconds
        assert third.kind is FailureKind.TOO_LONG

    play(scene)  # the clock ticks: loading and a batch take one second each


def test_loading_is_charged_to_the_calls_that_wanted_it() -> None:
    async def scene(worker: Worker) -> None:
        failed, first = await outcomes(worker, "long", "a")
        assert isinstance(failed, ProviderError)
        assert first.gpu_seconds == 2.0, "one second of loading, one of generating"
        (second,) = await outcomes(worker, "b")
        assert second.gpu_seconds == 1.0
        assert (worker.load_seconds, worker.call_seconds) == (1.0, 2 / 3)
        await worker.unload()
        await outcomes(worker, "bug")
        (third,) = await outcomes(worker, "c")
        assert third.gpu_seconds == 2.0, "loaded again; a call that failed was charged nothing"

    play(scene)


def test_no_call_is_charged_more_than_the_cap() -> None:
    async def scene(worker: Worker) -> None:
        (reply,) = await outcomes(worker, "a")
        assert (reply.gpu_seconds, reply.usd_nanos) == (0.5, 5)

    play(scene, max_gpu_seconds=0.5)


def test_a_bug_fails_its_batch_and_no_other_and_a_forgotten_call_waits_for_nothing() -> None:
    async def scene(worker: Worker) -> None:
        one, other = await outcomes(worker, "bug", "a")
        assert one is not other
        for error in (one, other):
            assert error.kind is FailureKind.INTERNAL
            assert "KeyError('a bug')" in str(error)
        answered, forgotten = await outcomes(worker, "b", "forgotten")
        assert answered.text == "B"
        assert forgotten.kind is FailureKind.INTERNAL

    play(scene)


def test_a_model_that_cannot_be_loaded_fails_everyone_and_stays_out() -> None:
    attempts: list[int] = []

    def load() -> Cardboard:
        attempts.append(1)
        raise OSError("no\n such thing")

    async def scene(worker: Worker) -> None:
        for error in [*await outcomes(worker, "a", "b"), *await outcomes(worker, "c")]:
            assert (error.kind, error.fatal) == (FailureKind.MODEL_NOT_FOUND, True)
            assert str(error).startswith("model m cannot be loaded: no such thing; ")
        assert not worker.is_loaded

    play(scene, load)
    assert attempts == [1]


def test_cancelled_calls_are_not_generated_and_late_results_are_dropped() -> None:
    engine = Cardboard(is_free=False)

    async def scene(worker: Worker) -> None:
        a, b = submit(worker, "ab")
        await acquired(engine.started)
        c, d = submit(worker, "cd")
        await asyncio.sleep(0)
        a.cancel()
        c.cancel()
        engine.go.release(2)
        await asyncio.wait([a, b, c, d])
        assert [one.cancelled() for one in (a, b, c, d)] == [True, False, True, False]
        assert (b.result().text, d.result().text) == ("B", "D")

    play(scene, lambda: engine)
    assert engine.batches == [["a", "b"], ["d"]]


def test_closing_ends_what_runs_and_what_waits() -> None:
    engine = Cardboard(is_free=False)

    async def scene(worker: Worker) -> None:
        tasks = submit(worker, "ab")
        await acquired(engine.started)
        await worker.close()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert engine.aborted.is_set()
        assert not worker.is_loaded

    play(scene, lambda: engine, max_batch=1)
    assert engine.batches == [["a"]]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("hf m")]


def test_closing_while_loading_waits_for_the_loader() -> None:
    loading, go = threading.Semaphore(0), threading.Semaphore(0)

    def load() -> Cardboard:
        loading.release()
        go.acquire(timeout=PATIENCE)
        return Cardboard()

    async def scene(worker: Worker) -> None:
        (task,) = submit(worker, "a")
        await acquired(loading)
        closing = asyncio.create_task(worker.close())
        await asyncio.sleep(0)
        go.release()
        await closing
        await asyncio.wait([task])
        assert task.cancelled()
        assert not worker.is_loaded

    play(scene, load)


def waiting(*shapes: tuple[int, int]) -> list[Prompt]:
    """Prompts by their length in tokens and the limit of the reply, the oldest first."""
    request = Request(model="m", text="x")
    return [
        Prompt(HfCall(request, Sampling(max_tokens=n)), [0] * length, n) for length, n in shapes
    ]


def batches(prompts: list[Prompt], max_batch: int, max_tokens: int) -> list[list[Prompt]]:
    chosen = []
    while prompts:
        chosen.append(next_batch(prompts, max_batch, max_tokens))
        prompts = [prompt for prompt in prompts if prompt not in chosen[-1]]
    return chosen


@pytest.mark.parametrize(
    ("shapes", "max_tokens", "expected"),
    [
        ([(5, 8), (1, 8), (3, 8)], 1_000_000, [[1, 3, 5]]),
        (  # the oldest and its shorter neighbours
            [(n, 8) for n in (50, 90, 10, 49, 51, 48, 20)],
            1_000_000,
            [[20, 48, 49, 50], [10, 51, 90]],
        ),
        ([(2, 256), (1, 8), (3, 8), (4, 256)], 1_000_000, [[2, 4], [1, 3]]),
        ([*[(92, 8)] * 5, (392, 8)], 200, [[92, 92], [92, 92], [92], [392]]),
    ],
)
def test_a_batch_holds_the_oldest_and_calls_of_similar_length(
    shapes: list[tuple[int, int]], max_tokens: int, expected: list[list[int]]
) -> None:
    chosen = batches(waiting(*shapes), 4, max_tokens)
    assert [[len(prompt.tokens) for prompt in batch] for batch in chosen] == expected


def test_batches_are_put_together_by_tokens_and_by_what_the_memory_held() -> None:
    engine = Cardboard(is_free=False)

    async def scene(worker: Worker) -> None:
        calls = submit(worker, ["x"])
        await acquired(engine.started)
        calls += submit(worker, ["aaaa", "bbbb", "cccc", "dddd", "eeee"])
        engine.go.release()
        await acquired(engine.started)  # two of 4 + 256 tokens fit into 700
        engine.most_tokens = 300
        engine.go.release(8)
        await asyncio.wait(calls)

    play(scene, lambda: engine, max_batch_tokens=700)
    assert engine.batches == [["x"], ["aaaa", "bbbb"], ["cccc"], ["dddd"], ["eeee"]]


def test_a_prompt_that_cannot_be_read_fails_alone_and_a_bug_fails_the_new_ones() -> None:
    async def scene(worker: Worker) -> None:
        answered, huge = await outcomes(worker, "a", "huge")
        assert (answered.text, huge.kind) == ("A", FailureKind.TOO_LONG)
        for error in await outcomes(worker, "b", "unreadable"):
            assert (error.kind, "KeyError" in str(error)) == (FailureKind.INTERNAL, True)
        (after,) = await outcomes(worker, "c")
        assert after.text == "C"

    play(scene)


@given(
    shapes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 8, 64])), max_size=40),
    max_batch=st.integers(1, 6),
    max_tokens=st.integers(1, 400),
)
def test_everyone_is_taken_once_the_oldest_first_and_within_the_limits(
    shapes: list[tuple[int, int]], max_batch: int, max_tokens: int
) -> None:
    waits = waiting(*shapes)
    for batch in batches(list(waits), max_batch, max_tokens):
        assert waits[0] in batch
        assert len({prompt.limit for prompt in batch}) == 1
        width = max(len(prompt.tokens) for prompt in batch) + batch[0].limit
        assert len(batch) <= max_batch
        assert len(batch) == 1 or len(batch) * width <= max_tokens
        waits = [prompt for prompt in waits if prompt not in batch]
    assert not waits
