"""Long logs as columns, so that reading one again takes a fraction of the time.

A log is cut into chunks of as many events. What a chunk makes of the state (its asks and outcomes
as rows of columns, and what they add to texts and sums) is stored beside the log, compressed, with
a digest of all events up to its end, by the process that writes the log. The log stays the truth:
whoever reads it computes the digest again, and where columns are missing, damaged, of other events
or of another version of the package, takes the lines, and stores the columns as the writer does.

    a chunk, its digest --> columns of that digest?  yes: put them behind those of the state
                                                     no:  take the lines, and store the columns

A chunk that holds more than pairs and their attempts is always taken from its lines, as are the
first one with asks (a rule is made at the first ask, for the problem as it is then) and the last,
which may still grow.
"""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
import zlib
from array import array
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.events import Attempted, Event, Settled
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Failure
from bestarm_agent.errors import Blame, FailureKind, StoreError
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.store.codec import Line, event_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store

CHUNK = 32_000  # events
_FORMAT = b"3"  # another one: what was stored is made anew
_RARE = int(np.iinfo(np.int64).max)  # in ``numbers``: neither an ask nor an outcome
# what numpy raises on bytes that are no archive of arrays, or of others
_DAMAGE = (IndexError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
_OF_PAIRS = ("asked", "told")
Moves: TypeAlias = list[IntArray | Event]


class _Size(NamedTuple):
    """Counts of what a state holds."""

    n_events: int
    n_asked: int
    n_told: int
    n_reasons: int
    n_failures: int
    n_signs: int
    n_candidates: int

    @classmethod
    def of(cls, state: RunState) -> _Size:
        texts = len(state.reasons), len(state.failures), len(state.signs)
        return cls(state.n_events, state.n_asked, state.n_told, *texts, len(state.candidates))


class LogColumns:
    """The columns of a log, written as it grows, and read in place of its lines.

    Args:
        state: that the log is taken into; it holds none of it yet.
    """

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._digest = blake2b(_FORMAT, digest_size=16)  # of all events taken
        self._due: list[tuple[int, dict[str, NDArray[Any]]]] = []  # chunks that are not stored yet
        self._begin()

    def _begin(self) -> None:
        """Begin a chunk."""
        self._before = _Size.of(self._state)
        self._numbers = array("q")  # of its asks and outcomes, as ``RunState.take`` has them
        self._is_of_pairs = self._before.n_asked > 0

    def take(self, lines: Sequence[Line]) -> Moves:
        """Take the next events into the state; return and raise as ``RunState.take``."""
        moves: Moves = []
        while lines:
            room = CHUNK - self._state.n_events % CHUNK
            part, lines = lines[:room], lines[room:]
            new = self._state.take(part)
            _add(self._digest, part)
            for move in new:
                if isinstance(move, np.ndarray):
                    self._numbers.extend(move.tolist())
                else:
                    self._numbers.append(_RARE)
                    self._is_of_pairs &= isinstance(move, Attempted | Settled)
            if len(part) == room:
                if self._is_of_pairs:
                    self._due.append((self._state.n_events // CHUNK, self._arrays()))
                self._begin()
            moves += new
        return moves

    async def write(self, store: Store, run_id: str) -> None:
        """Store the columns of the chunks that are full, if the store can be written."""
        while self._due:
            number, arrays = self._due.pop(0)
            name, data = _name(run_id, number), await asyncio.to_thread(_packed, arrays)
            with suppress(StoreError):  # whoever reads the run next makes them again
                known = await store.get_state(name)
                await store.put_state(name, data, after=0 if known is None else known[0])

    async def read(
        self,
        store: Store,
        run_id: str,
        take: Callable[[Sequence[Line]], object],
        feed: Callable[[Moves], object],
    ) -> None:
        """Read a whole log, in a thread.

        Args:
            store: holds it.
            run_id: of the run.
            take: gets some lines, and has this object take them.
            feed: gets the pairs of others, which the state has taken in, as ``take`` returns them.

        Raises:
            StoreError: the log is damaged.
        """
        n_events = (await store.find(run_id)).n_events
        # One thread, since the C library keeps for each what was freed in it: for five, 25 MB.
        with ThreadPoolExecutor(1) as thread:
            in_thread = partial(asyncio.get_running_loop().run_in_executor, thread)
            while True:
                first = self._state.n_events
                if self._state.n_asked and first + CHUNK <= n_events:
                    moves = await self._stored(store, run_id, in_thread)
                    if moves is not None:
                        await in_thread(feed, moves)
                        continue
                async for page in store.lines_of(run_id, since=first, until=first + CHUNK):
                    await in_thread(take, page)
                if self._state.n_events < first + CHUNK:
                    return
                await self.write(store, run_id)

    async def _stored(
        self, store: Store, run_id: str, in_thread: Callable[..., Awaitable[Any]]
    ) -> Moves | None:
        """Take a chunk in from its columns; None, and no change, if there are none that fit."""
        first = self._state.n_events
        known = await store.get_state(_name(run_id, first // CHUNK + 1))
        if known is None:
            return None
        # Page by page, of which only the lines of attempts are kept: a chunk of lines takes ten
        # times the memory of its columns.
        digest, rare = self._digest.copy(), dict[int, Line]()
        at = first
        async for page in store.lines_of(run_id, since=first, until=first + CHUNK):
            await in_thread(_add, digest, page)
            rare |= {n - first: line for n, line in enumerate(page, at) if line[0] not in _OF_PAIRS}
            at += len(page)
        moves: Moves | None = await in_thread(self._unpack, known[1], digest.digest(), rare)
        if moves is not None:
            self._digest = digest
            self._begin()
        return moves

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was taken in since the chunk began, none of it as a view."""
        state, before = self._state, self._before
        texts = [
            state.reasons[before.n_reasons :],
            [astuple(failure) for failure in state.failures[before.n_failures :]],
            state.signs[before.n_signs :],
        ]
        order = state.order[before.n_told :].copy()
        spends = [spend.amounts for spend in (*state.judging, *state.lost)]
        return {
            "digest": np.frombuffer(self._digest.digest(), np.uint8),
            "before": np.array(before),
            "numbers": np.array(self._numbers),
            "asked": state.asks[before.n_asked :].copy(),
            "order": order,
            "told": state.told[order],
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "spends": np.array([amounts[:-1] for amounts in spends], dtype=np.int64),
            "seconds": np.array([amounts[-1] for amounts in spends]),
            "cached_tokens": np.array(state.cached_tokens),
            "elapsed": np.array(state.elapsed),
        }

    def _unpack(self, data: bytes, digest: bytes, lines: dict[int, Line]) -> Moves | None:
        """Put stored columns behind those of the state; None, and no change, if they do not fit.

        Args:
            data: the columns.
            digest: of all events up to the end of the chunk.
            lines: those of the chunk that are not of an ask or an outcome, by their place in it.
        """
        state, before = self._state, self._before
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                # before all else, so that what stands for other events is not even unpacked
                if archive["digest"].tobytes() != digest:
                    return None
                arrays = {name: archive[name] for name in archive.files}
            reasons, failures, signs = json.loads(arrays["texts"].tobytes())
            failures = [Failure(FailureKind(kind), Blame(b), text) for kind, b, text in failures]
            columns = [*arrays["spends"].T.tolist(), arrays["seconds"].tolist()]
            each = list(map(Spend, *columns))
            numbers = arrays["numbers"]
            rare = {place: event_of(line) for place, line in lines.items()}
            fits = arrays["before"].tolist() == list(before) and len(numbers) == CHUNK
            fits = fits and np.flatnonzero(numbers == _RARE).tolist() == list(rare)
            if not (fits and len(each) == 2 * before.n_candidates):
                return None
            state.put_columns(arrays["asked"], arrays["order"], arrays["told"])
        except _DAMAGE:
            return None
        for texts, new in ((state.reasons, reasons), (state.failures, failures)):
            for text in new:
                texts.number_of(text)
        for sign in signs:
            state.signs.number_of(sign)
        state.judging, state.lost = each[: before.n_candidates], each[before.n_candidates :]
        state.cached_tokens, state.elapsed = int(arrays["cached_tokens"]), float(arrays["elapsed"])
        state.n_events += CHUNK
        state.put_attempts([*rare.values()])
        return [numbers[numbers != _RARE]]  # attempts are of the state alone


async def folded(store: Store, run: str) -> RunState:
    """Fold a run's log; raise RunNotFoundError if there is no such run."""
    columns = LogColumns(state := RunState())
    await columns.read(store, (await store.find(run)).id, columns.take, lambda moves: None)
    return state


def _name(run_id: str, number: int) -> str:
    return f"columns {run_id} {number - 1}"


def _add(digest: blake2b, lines: Sequence[Line]) -> None:
    # The texts are JSON without line breaks, so that other lines make another text.
    text = "".join([f"{tag} {text}\n" for tag, text in lines])
    digest.update(text.encode(errors="surrogatepass"))


def _packed(arrays: dict[str, NDArray[Any]]) -> bytes:
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, **arrays)
    return packed.getvalue()
