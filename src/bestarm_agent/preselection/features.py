"""Numbers that a rule learns on: features of prompts' texts, and context vectors of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.plugins import optional
from bestarm_agent.preselection.rule import Arrays, FloatArray

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

_MOST_TERMS = 5000


def contexts_of(prompt: FloatArray, n_arms: int) -> FloatArray:
    """Return (n, p n) context vectors: the prompt's (p,) features, in columns of the arm's own.

    This is the disjoint model, one parameter vector per arm.

    Example:
        >>> contexts_of(np.array([1.0, 5.0]), 2).tolist()
        [[1.0, 0.0, 5.0, 0.0], [0.0, 1.0, 0.0, 5.0]]
    """
    return np.asarray(np.kron(prompt, np.eye(n_arms)), dtype=np.float64)


class PromptFeatures:
    """TF-IDF of runs of one to three characters, reduced to a few components of equal variance.

    Characters, spaces included, tell formats apart (``12+34=`` from ``12 + 34 =``) and topics as
    well as words do. They are fitted once, on the first prompts, and depend on the arrays of
    ``state`` alone afterwards. A prompt's vector begins with a constant 1, and ends there for
    prompts that do not differ: then a rule learns which candidates are best, whatever the prompt.
    Needs scikit-learn (the extra ``preselect``).

    Args:
        n_components: at most so many features, >= 1; fewer where the prompts are few or alike.
        seed: of the decomposition.
    """

    def __init__(self, n_components: int = 16, *, seed: int = 0) -> None:
        self._n_components, self._seed = n_components, seed
        self._vectorizer: TfidfVectorizer | None = None  # None: the constant alone
        self._projection: FloatArray = np.zeros((0, 0))  # (terms, p), scaled
        self._offset: FloatArray = np.zeros(0)

    @property
    def n_features(self) -> int:
        """Return the length of a prompt's vector."""
        return 1 + len(self._offset)

    def fit(self, prompts: Sequence[str]) -> None:
        """Learn terms, their weights and the components from prompts."""
        vectorizer = _vectorizer()
        from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]

        self._vectorizer, self._offset = None, np.zeros(0)
        try:
            weights = vectorizer.fit_transform(prompts)
        except ValueError:  # there is no term in them
            return
        # The decomposition needs fewer components than rows and columns, and some difference
        # between prompts.
        differ = (weights.max(axis=0) != weights.min(axis=0)).nnz > 0
        rank = min(self._n_components, min(weights.shape) - 1)
        if rank < 1 or not differ:
            return
        components = TruncatedSVD(rank, random_state=self._seed).fit(weights).components_.T
        projected = weights @ components
        scale = projected.std(axis=0)
        # A component along which the prompts do not differ would be divided by 0.
        varied = scale > 1e-9
        if not varied.any():
            return
        self._vectorizer = vectorizer
        # unit variance in all p together: then a prompt's vector has length about 1
        self._projection = components[:, varied] / (scale[varied] * np.sqrt(varied.sum()))
        self._offset = projected.mean(axis=0)[varied] / (scale[varied] * np.sqrt(varied.sum()))

    def vectors(self, prompts: Sequence[str]) -> FloatArray:
        """Return (N, 1 + p) features of prompts, 1 first, the others of about length 1 together."""
        ones = np.ones((len(prompts), 1))
        if self._vectorizer is None:
            return ones
        made: FloatArray = self._vectorizer.transform(prompts) @ self._projection - self._offset
        # a prompt of one rare term must not outweigh all others
        return np.hstack([ones, np.clip(made, -3.0, 3.0)])

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, as arrays of numbers and text; none for the constant alone."""
        if self._vectorizer is None:
            return {}
        return {
            "terms": np.array(list(self._vectorizer.get_feature_names_out()), dtype=np.str_),
            "idf": np.asarray(self._vectorizer.idf_),
            # Half the size of the state; a router that is loaded uses these rounded numbers ever
            # after.
            "projection": self._projection.astype(np.float32),
            "offset": self._offset,
        }

    def restore(self, state: Arrays) -> None:
        """Replace what was fitted by a ``state``."""
        if not state:
            self._vectorizer, self._offset = None, np.zeros(0)
            return
        terms = {str(term): i for i, term in enumerate(state["terms"])}
        self._vectorizer = _vectorizer(vocabulary=terms)
        self._vectorizer.idf_ = state["idf"]
        self._projection = state["projection"].astype(np.float64)
        self._offset = state["offset"]


def _vectorizer(vocabulary: Mapping[str, int] | None = None) -> TfidfVectorizer:
    text = optional("sklearn.feature_extraction.text", "preselect", "features of prompts")
    return text.TfidfVectorizer(
        analyzer="char",
        lowercase=True,
        ngram_range=(1, 3),
        max_features=None if vocabulary else _MOST_TERMS,
        sublinear_tf=True,
        vocabulary=vocabulary,
    )
