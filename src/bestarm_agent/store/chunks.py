"""Long logs as columns, so that reading one again takes a fraction of the time.

A log is cut into chunks of as many events. What a chunk makes of the state (its asks and outcomes
as rows of columns, and what they add to texts and sums) is stored beside the log, compressed, with
a digest of all events up to its end. The log stays the truth: whoever reads it computes the digest
again, and where columns are missing, damaged, of other events or of another version of the package,
the chunk is made anew from its lines.

    lines --> digest --> columns of that digest?  yes: put them behind those of the state
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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.events import Attempted, Event, Settled
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Failure
from bestarm_agent.errors import Blame, FailureKind, StoreError
from bestarm_agent.selectors.types import IntArray
from bestarm_agent.store.codec import Line, event_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store

CHUNK = 32_000  # events
_PAGE = 2_000  # that are parsed at once
_FORMAT = b"1"  # another one: what was stored is made anew
_RARE = int(np.iinfo(np.int64).max)  # in ``numbers``: neither an ask nor an outcome
# what numpy raises on bytes that are no archive of arrays, or of others
_DAMAGE = (IndexError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
_Moves: TypeAlias = list[IntArray | Event]


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


class ChunkedLog:
    """The log of a run, read into a state once.

    Args:
        store: holds the log.
        run_id: of the run.
        state: that it is read into; it holds none of it yet.
    """

    def __init__(self, store: Store, run_id: str, state: RunState) -> None:
        self._store, self._run_id, self._state = store, run_id, state
        self._digest = blake2b(_FORMAT, digest_size=16)

    async def read(
        self, take: Callable[[Sequence[Line]], object], feed: Callable[[_Moves], object]
    ) -> None:
        """Read the whole log, in a thread.

        Args:
            take: takes some lines into the state.
            feed: gets what ``RunState.take`` made of others, which the state has taken in.

        Raises:
            StoreError: the log is damaged.
        """
        number = 0
        async for lines in self._chunks():
            if not self._state.n_asked or len(lines) < CHUNK:
                for start in range(0, len(lines), _PAGE):
                    await asyncio.to_thread(take, lines[start : start + _PAGE])
            else:
                moves = await self._moves(lines, f"columns {self._run_id} {number}")
                await asyncio.to_thread(feed, moves)
            number += 1

    async def _chunks(self) -> AsyncIterator[list[Line]]:
        chunk: list[Line] = []
        async for page in self._store.lines_of(self._run_id):
            chunk += page
            while len(chunk) >= CHUNK:
                lines, chunk = chunk[:CHUNK], chunk[CHUNK:]
                await asyncio.to_thread(self._hash, lines)
                yield lines
        if chunk:
            yield chunk

    def _hash(self, lines: Sequence[Line]) -> None:
        # The texts are JSON without line breaks, so that other lines make another text.
        for start in range(0, len(lines), _PAGE):
            text = "".join([f"{tag} {text}\n" for tag, text in lines[start : start + _PAGE]])
            self._digest.update(text.encode(errors="surrogatepass"))

    async def _moves(self, lines: Sequence[Line], name: str) -> _Moves:
        known = await self._store.get_state(name)
        if known is not None:
            moves = await asyncio.to_thread(self._unpack, lines, known[1])
            if moves is not None:
                return moves
        before, moves = _Size.of(self._state), []
        for start in range(0, CHUNK, _PAGE):
            moves += await asyncio.to_thread(self._state.take, lines[start : start + _PAGE])
        if all(isinstance(move, (np.ndarray, Attempted, Settled)) for move in moves):
            data = await asyncio.to_thread(self._packed, before, moves)
            with suppress(StoreError):  # may be read and not written: it is parsed again next time
                await self._store.put_state(name, data, after=0 if known is None else known[0])
        return moves

    def _packed(self, before: _Size, moves: _Moves) -> bytes:
        """Return the columns of what was taken in since then."""
        state = self._state
        numbers = [move if isinstance(move, np.ndarray) else [_RARE] for move in moves]
        texts = [
            state.reasons[before.n_reasons :],
            [astuple(failure) for failure in state.failures[before.n_failures :]],
            state.signs[before.n_signs :],
        ]
        order = state.order[before.n_told :]
        spends = [spend.amounts for spend in (*state.judging, *state.lost)]
        arrays: dict[str, NDArray[Any]] = {
            "digest": np.frombuffer(self._digest.digest(), np.uint8),
            "before": np.array(before),
            "numbers": np.concatenate(numbers).astype(np.int64),
            "asked": state.asks[before.n_asked :],
            "order": order,
            "told": state.told[order],
            "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
            "spends": np.array([amounts[:-1] for amounts in spends], dtype=np.int64),
            "seconds": np.array([amounts[-1] for amounts in spends]),
            "cached_tokens": np.array(state.cached_tokens),
            "elapsed": np.array(state.elapsed),
        }
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        return packed.getvalue()

    def _unpack(self, lines: Sequence[Line], data: bytes) -> _Moves | None:
        """Put stored columns behind those of the state; None, and no change, if they do not fit."""
        state, before = self._state, _Size.of(self._state)
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                # before all else, so that what stands for other events is not even unpacked
                if archive["digest"].tobytes() != self._digest.digest():
                    return None
                arrays = {name: archive[name] for name in archive.files}
            reasons, failures, signs = json.loads(arrays["texts"].tobytes())
            failures = [Failure(FailureKind(kind), Blame(b), text) for kind, b, text in failures]
            columns = [*arrays["spends"].T.tolist(), arrays["seconds"].tolist()]
            each = list(map(Spend, *columns))
            numbers = arrays["numbers"]
            places = np.flatnonzero(numbers == _RARE).tolist()
            rare = {place: event_of(lines[place]) for place in places}
            fits = arrays["before"].tolist() == list(before) and len(numbers) == len(lines)
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
        state.n_events += len(lines)
        state.put_attempts([*rare.values()])
        return _cut(numbers, rare)


async def folded(store: Store, run: str) -> RunState:
    """Fold a run's log; raise RunNotFoundError if there is no such run."""
    state = RunState()
    log = ChunkedLog(store, (await store.find(run)).id, state)
    await log.read(state.take, lambda moves: None)
    return state


def _cut(numbers: IntArray, rare: dict[int, Event]) -> _Moves:
    """Return the moves as ``RunState.take`` does."""
    moves: _Moves = []
    start = 0
    for place, event in [*rare.items(), (len(numbers), None)]:
        if place > start:
            moves.append(numbers[start:place])
        if event is not None:
            moves.append(event)
        start = place + 1
    return moves
