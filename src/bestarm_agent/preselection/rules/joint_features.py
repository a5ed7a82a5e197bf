"""Vectors that a rule learns on, from raw features of contexts and arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.rules.types import FloatArray

_LEAST_VARIANCE = 0.01
_MOST_CORRELATION = 0.95


def joint_features(context: FloatArray, arms: FloatArray) -> FloatArray:
    """Return (n, p q) Kronecker products of a context's (p,) features with each arm's (n, q).

    With ``arms`` the identity matrix this is the disjoint model, one parameter vector per arm.

    Example:
        >>> joint_features(np.array([1.0, 2.0]), np.array([[1.0, 3.0]])).tolist()
        [[1.0, 3.0, 2.0, 6.0]]
    """
    return (context[None, :, None] * arms[:, None, :]).reshape(len(arms), -1)


class FeatureFilter:
    """The preparation of El Mesaoudi-Paul et al. 2020, section 6.2, fitted once and reused.

    Scales features to [0, 1], drops those of a variance below 0.01, then repeatedly drops one of
    the two most correlated features while their absolute correlation exceeds 0.95: the one more
    correlated with the rest (the paper leaves it open).
    Missing values (NaN) become the feature's mean; values outside the fitted range are clipped.
    ``kept`` are the (p',) indices of the features kept, ascending.
    """

    def __init__(self) -> None:
        self.kept: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._low: FloatArray = np.zeros(0)
        self._range: FloatArray = np.zeros(0)
        self._fill: FloatArray = np.zeros(0)

    def fit(self, raw: FloatArray) -> FeatureFilter:
        """Learn ranges and what to keep from (N, p) features; raise ValueError if none is left."""
        if raw.ndim != 2 or not len(raw):
            raise ValueError(f"features must be (N, p) with N at least 1, got {raw.shape}")
        some = np.isfinite(raw).any(axis=0)
        known = np.where(np.isfinite(raw) | ~some, raw, np.nan)
        known[:, ~some] = 0.0
        self._low = np.nanmin(known, axis=0)
        width = np.nanmax(known, axis=0) - self._low
        self._range = np.where(width > 0, width, 1.0)
        self._fill = np.nanmean(known, axis=0)
        scaled = self._scale(raw)
        varied = np.flatnonzero(scaled.var(axis=0) >= _LEAST_VARIANCE)
        if not len(varied):
            raise ValueError(f"no feature has a variance of {_LEAST_VARIANCE} after scaling")
        self.kept = varied[_uncorrelated(scaled[:, varied])]
        return self

    @property
    def n_features(self) -> int:
        """Return p', the features kept; 0 before fitting."""
        return len(self.kept)

    def transform(self, raw: FloatArray) -> FloatArray:
        """Return (N, p') features in [0, 1] of (N, p) raw ones."""
        if raw.shape[-1] != len(self._low):
            raise ValueError(f"features must be {len(self._low)} wide, got {raw.shape[-1]}")
        return self._scale(raw)[:, self.kept]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, as arrays."""
        return {
            "kept": self.kept,
            "low": self._low,
            "range": self._range,
            "fill": self._fill,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> FeatureFilter:
        """Replace what was fitted by a ``state``."""
        self.kept, self._low = state["kept"], state["low"]
        self._range, self._fill = state["range"], state["fill"]
        return self

    def _scale(self, raw: FloatArray) -> FloatArray:
        filled = np.where(np.isfinite(raw), raw, self._fill)
        scaled: FloatArray = np.clip((filled - self._low) / self._range, 0.0, 1.0)
        return scaled


def arm_features(
    numbers: FloatArray,
    families: tuple[str, ...],
    *,
    identity: bool = True,
    n_first: int | None = None,
) -> FloatArray:
    """Return (n, q) features of arms.

    Args:
        numbers: (n, m) numbers such as price and size; each is scaled to [0, 1], a missing one
            becomes the mean.
        families: n family names, "" where unknown; one 0/1 feature per family of two arms or more.
        identity: give each arm a 0/1 feature of its own, so that it can differ from all others;
            else one constant feature.
        n_first: take scale and families from the first so many arms only, so that arms which join
            later leave features unchanged; features of their own come last. None: from all.

    Example:
        >>> arm_features(np.array([[1.0], [3.0]]), ("a", "a")).tolist()
        [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]]
    """
    n = len(families)
    first = n if n_first is None else n_first
    own = np.eye(n) if identity else np.ones((n, 1))
    founders = families[:first]
    shared = sorted({name for name in founders if name and founders.count(name) > 1})
    member = np.array([[float(name == other) for other in shared] for name in families])
    known = [_scaled(numbers.reshape(n, -1), first), member.reshape(n, -1)]
    return np.hstack([own[:, :first], *known, own[:, first:]])


def _scaled(numbers: FloatArray, n_first: int) -> FloatArray:
    """Scale each column's first rows to [0, 1]; drop columns that do not vary there."""
    columns = []
    for column in numbers.T:
        first = column[:n_first]
        known = first[np.isfinite(first)]
        if len(known) and np.ptp(known) > 0:
            filled = np.where(np.isfinite(column), column, known.mean())
            columns.append((filled - known.min()) / np.ptp(known))
    return np.array(columns).T if columns else np.zeros((len(numbers), 0))


def _uncorrelated(scaled: FloatArray) -> NDArray[np.intp]:
    """Return the indices left after greedily dropping one of each pair above the limit."""
    correlation = np.atleast_2d(np.abs(np.corrcoef(scaled, rowvar=False)))
    np.fill_diagonal(correlation, 0.0)
    left = np.ones(len(correlation), dtype=np.bool_)
    while correlation.max() > _MOST_CORRELATION:
        pair = np.array(np.unravel_index(correlation.argmax(), correlation.shape))
        drop = pair[correlation[pair].sum(axis=1).argmax()]
        left[drop] = False
        correlation[drop, :] = correlation[:, drop] = 0.0
    return np.flatnonzero(left)
