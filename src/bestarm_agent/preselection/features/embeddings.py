"""Features of prompts from a model's vectors, reduced to a few components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray


class EmbeddingFeatures:
    """At most ``n_components`` principal components of vectors, of equal variance.

    There are fewer where the prompts are few or alike.
    """

    def __init__(self, n_components: int = 16) -> None:
        if n_components < 1:
            raise ValueError(f"n_components must be at least 1, got {n_components}")
        self.n_components = n_components
        self._mean: FloatArray = np.zeros(0)
        self._projection: FloatArray = np.zeros((0, 0))  # (d, p), scaled

    @property
    def n_features(self) -> int:
        """Return p, the features of one prompt; 0 before fitting."""
        return int(self._projection.shape[1])

    def fit(self, vectors: FloatArray) -> Self:
        """Learn the directions from (N, d) vectors; raise ValueError if they do not differ."""
        self._mean = vectors.mean(axis=0)
        _, sizes, directions = np.linalg.svd(vectors - self._mean, full_matrices=False)
        scale = sizes / np.sqrt(len(vectors))  # standard deviations, falling
        kept = int((scale[: self.n_components] > 1e-9 * max(scale[0], 1e-12)).sum())
        if not kept or scale[0] < 1e-12:
            raise ValueError("no features can be made of prompts that do not differ")
        signs = np.sign(directions[np.arange(kept), np.abs(directions[:kept]).argmax(axis=1)])
        # unit variance in all p together, as with text: then a prompt's vector has length about 1
        self._projection = (directions[:kept] * signs[:, None]).T / (scale[:kept] * np.sqrt(kept))
        return self

    def transform(self, vectors: FloatArray) -> FloatArray:
        """Return (N, p) features of (N, d) vectors, each row of about length 1."""
        if vectors.shape[-1] != len(self._mean):
            raise ValueError(f"vectors must be {len(self._mean)} long, got {vectors.shape[-1]}")
        return np.clip((vectors - self._mean) @ self._projection, -3.0, 3.0)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, as arrays."""
        return {"mean": self._mean, "projection": self._projection}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Replace what was fitted by a ``state``."""
        self._mean, self._projection = state["mean"], state["projection"]
        return self
