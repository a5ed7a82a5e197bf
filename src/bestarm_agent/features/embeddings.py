"""Features of prompts from vectors that a model made of them, reduced to a few components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


class EmbeddingFeatures:
    """Principal components of vectors, of equal variance.

    Rules that learn from thousands of prompts cannot use thousands of features; a few directions in
    which the prompts differ most say what they are about.

    Args:
        n_components: at most so many features, >= 1; fewer where the prompts are few or alike.

    Raises:
        ValueError: ``n_components`` is below 1.

    Example:
        >>> vectors = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 5.0]])
        >>> EmbeddingFeatures(2).fit(vectors).transform(vectors).round(2).T.tolist()
        [[-1.22, 0.0, 1.22]]
    """

    def __init__(self, n_components: int = 16) -> None:
        if n_components < 1:
            raise ValueError(f"n_components must be at least 1, got {n_components}")
        self.n_components = n_components
        self._mean: FloatArray = np.zeros(0)
        self._projection: FloatArray = np.zeros((0, 0))  # (d, p), scaled

    @property
    def n_features(self) -> int:
        """p, the features of one prompt; 0 before fitting."""
        return int(self._projection.shape[1])

    def fit(self, vectors: FloatArray) -> Self:
        """Learn the directions from (N, d) vectors.

        Raises:
            ValueError: the vectors do not differ.
        """
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
        """(N, p) features of (N, d) vectors, each row around length 1.

        Raises:
            ValueError: nothing was fitted, or the vectors are of another length.
        """
        if vectors.shape[-1] != len(self._mean):
            raise ValueError(f"vectors must be {len(self._mean)} long, got {vectors.shape[-1]}")
        return np.clip((vectors - self._mean) @ self._projection, -3.0, 3.0)

    def state(self) -> dict[str, NDArray[Any]]:
        """What was fitted, as arrays."""
        return {"mean": self._mean, "projection": self._projection}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what ``state`` gave out."""
        self._mean, self._projection = state["mean"], state["projection"]
        return self
