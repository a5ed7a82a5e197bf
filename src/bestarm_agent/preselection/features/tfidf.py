"""Prompt features without any call: TF-IDF, reduced by a singular value decomposition.

Fitted once; afterwards a transform depends on the arrays of ``state`` alone. Needs scikit-learn
(the extra ``preselect``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.arrays import FloatArray

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

Analyzer = Literal["word", "char"]

_MOST_TERMS = 5000
_TOKENS = r"(?u)\w+|[^\w\s]"  # words, and every mark by itself: code and sums are prompts too


class TextFeatures:
    """TF-IDF of words or characters, reduced to a few components of equal variance.

    Args:
        n_components: at most so many features, >= 1; fewer where the prompts are few or alike.
        analyzer: "word" counts words, marks, and pairs of them; "char" counts runs of one to three
            characters, spaces included, which distinguishes formats.
        seed: of the decomposition.
    """

    def __init__(
        self, n_components: int = 16, *, analyzer: Analyzer = "word", seed: int = 0
    ) -> None:
        if n_components < 1:
            raise ValueError(f"n_components must be at least 1, got {n_components}")
        self.n_components = n_components
        self.analyzer: Analyzer = analyzer
        self.seed = seed
        self._vectorizer = _vectorizer(analyzer)
        self._projection: FloatArray = np.zeros((0, 0))  # (terms, p), scaled
        self._offset: FloatArray = np.zeros(0)

    @property
    def n_features(self) -> int:
        """Return p, the features of one prompt; 0 before fitting."""
        return int(self._projection.shape[1])

    def fit(self, prompts: Sequence[str]) -> Self:
        """Learn terms, their weights and the components from prompts.

        Raises:
            ValueError: the prompts hold no term, or do not differ.
        """
        from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]

        try:
            weights = self._vectorizer.fit_transform(prompts)
        except ValueError as error:
            raise ValueError(f"no features can be made of these prompts: {error}") from error
        differ = (weights.max(axis=0) != weights.min(axis=0)).nnz > 0
        rank = min(self.n_components, min(weights.shape) - 1)
        if rank < 1 or not differ:
            raise ValueError("no features can be made of prompts that do not differ")
        svd = TruncatedSVD(rank, random_state=self.seed).fit(weights)
        components = svd.components_.T
        projected = weights @ components
        scale = projected.std(axis=0)
        varied = scale > 1e-9
        if not varied.any():
            raise ValueError("no features can be made of prompts that do not differ")
        # unit variance in all p together: then a prompt's vector has length about 1
        self._projection = components[:, varied] / (scale[varied] * np.sqrt(varied.sum()))
        self._offset = projected.mean(axis=0)[varied] / (scale[varied] * np.sqrt(varied.sum()))
        return self

    def transform(self, prompts: Sequence[str]) -> FloatArray:
        """Return (N, p) features of about length 1; raises ValueError before fitting."""
        if not self.n_features:
            raise ValueError("the features were not fitted; call fit, or restore a state")
        made: FloatArray = self._vectorizer.transform(prompts) @ self._projection - self._offset
        return np.clip(made, -3.0, 3.0)  # a prompt of one rare term must not outweigh all others

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, as arrays of numbers and text."""
        return {
            "terms": np.array(list(self._vectorizer.get_feature_names_out()), dtype=np.str_),
            "idf": np.asarray(self._vectorizer.idf_),
            "projection": self._projection.astype(np.float32),
            "offset": self._offset,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Replace what was fitted by a ``state``."""
        terms = {str(term): i for i, term in enumerate(state["terms"])}
        self._vectorizer = _vectorizer(self.analyzer, vocabulary=terms)
        self._vectorizer.idf_ = state["idf"]
        self._projection = state["projection"].astype(np.float64)
        self._offset = state["offset"]
        return self


def _vectorizer(analyzer: Analyzer, vocabulary: Mapping[str, int] | None = None) -> TfidfVectorizer:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise ConfigError(
            "features of prompts need scikit-learn: pip install 'bestarm-agent[preselect]', or "
            "give `features` with every prompt"
        ) from None
    return TfidfVectorizer(
        analyzer=analyzer,
        lowercase=True,
        token_pattern=_TOKENS if analyzer == "word" else None,
        ngram_range=(1, 2) if analyzer == "word" else (1, 3),
        max_features=None if vocabulary else _MOST_TERMS,
        sublinear_tf=True,
        vocabulary=vocabulary,
    )
