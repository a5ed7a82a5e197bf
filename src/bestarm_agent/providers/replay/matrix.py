"""Recorded scores in a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Usage, nanos
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.replay.rows import Record

NAMES = ("candidates", "models", "methods")
AMOUNTS = ("seconds", "input_tokens", "output_tokens", "usd")

Arrays = Mapping[str, NDArray[Any]]


class MatrixRecording:
    """Records given as a matrix; raises ConfigError if an array breaks a rule of ``files``."""

    def __init__(self, arrays: Arrays) -> None:
        self._scores = _checked_scores(arrays)
        self._shape = self._scores.shape
        names = next((arrays[key] for key in NAMES if key in arrays), None)
        self._rows = _positions(names, self._shape[0], "candidates")
        self._columns = _positions(arrays.get("examples"), self._shape[1], "examples")
        self._amounts = {
            key: self._checked_amounts(arrays, key) for key in AMOUNTS if key in arrays
        }

    def candidates(self) -> Sequence[str]:
        """Return the names of the rows."""
        return list(self._rows)

    def has_candidate(self, candidate: str) -> bool:
        """Return True if there is a row of that name or number."""
        return _position(self._rows, candidate) is not None

    def examples(self, candidate: str) -> Sequence[str]:
        """Return the names of the columns."""
        return list(self._columns)

    def attempts(self, candidate: str, example: str) -> Sequence[Record]:
        """Return the one call recorded for a pair; nothing if its score is NaN."""
        row, column = _position(self._rows, candidate), _position(self._columns, example)
        if row is None or column is None:
            return ()
        score = float(self._scores[row, column])
        if score != score:  # NaN: nothing was recorded
            return ()
        return (Record(self._reply(candidate, row, column, score)),)

    def priced(self, candidate: str) -> bool:
        """Return True if the archive holds the calls' cost in dollars."""
        return "usd" in self._amounts

    def _reply(self, candidate: str, row: int, column: int, score: float) -> Reply:
        amount = {key: float(values[row, column]) for key, values in self._amounts.items()}
        return Reply(
            text="",
            usage=Usage(
                input=int(amount.get("input_tokens", 0)),
                output=int(amount.get("output_tokens", 0)),
            ),
            usd_nanos=nanos(amount["usd"]) if "usd" in amount else None,
            seconds=amount.get("seconds", 0.0),
            model=candidate,
            score=score,
        )

    def _checked_amounts(self, arrays: Arrays, key: str) -> NDArray[Any]:
        values = arrays[key]
        if values.dtype.kind not in "iuf" or values.shape not in (self._shape, self._shape[:1]):
            raise ConfigError(
                f"`{key}` must be numbers of shape {self._shape} or {self._shape[:1]}, "
                f"got {values.dtype} of shape {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ConfigError(f"`{key}` holds NaN or infinity; write 0 where nothing is known")
        _check_range(values, key, upper=np.inf)
        return np.broadcast_to(values.reshape(self._shape[0], -1), self._shape)


def _checked_scores(arrays: Arrays) -> NDArray[Any]:
    scores = arrays.get("scores")
    if scores is None:
        raise ConfigError("the archive holds no array `scores`")
    if scores.ndim != 2 or scores.size == 0 or scores.dtype.kind not in "biuf":
        raise ConfigError(
            "`scores` must be a (K, N) matrix of numbers, with K, N >= 1, "
            f"got {scores.dtype} of shape {scores.shape}"
        )
    _check_range(scores, "scores", upper=1.0)
    return scores


def _check_range(values: NDArray[Any], key: str, *, upper: float) -> None:
    lowest, highest = float(np.fmin.reduce(values, None)), float(np.fmax.reduce(values, None))
    if lowest < 0 or highest > upper:
        raise ConfigError(
            f"`{key}` must be in [0, {upper:g}], got numbers from {lowest:g} to {highest:g}"
        )


def _positions(names: NDArray[Any] | None, size: int, what: str) -> dict[str, int]:
    if names is None:
        return {str(number): number for number in range(size)}
    if names.shape != (size,):
        raise ConfigError(f"there are {size} {what}, but their names have shape {names.shape}")
    positions = {str(name): number for number, name in enumerate(names.tolist())}
    if len(positions) < size:
        raise ConfigError(f"the {size} {what} have only {len(positions)} different names")
    return positions


def _position(positions: Mapping[str, int], name: str) -> int | None:
    found = positions.get(name)
    if found is None and name.isascii() and name.isdigit() and int(name) < len(positions):
        return int(name)
    return found
