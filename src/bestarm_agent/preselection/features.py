"""Numbers that a rule learns on: of prompts, of candidates, and of both together.

A prompt is described by its text or by features that come with it; either is fitted once, on the
first prompts, and afterwards depends on the arrays of ``state`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.rule import Arrays, FloatArray

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

Prompt: TypeAlias = tuple[str, tuple[float, ...]]
"""Text, and the features given with it."""

_LEAST_VARIANCE = 0.01
_MOST_CORRELATION = 0.95
_MOST_TERMS = 5000


def joint_features(context: FloatArray, arms: FloatArray) -> FloatArray:
    """Return (n, p q) Kronecker products of a context's (p,) features with each arm's (n, q).

    With ``arms`` the identity matrix this is the disjoint model, one parameter vector per arm.

    Example:
        >>> joint_features(np.array([1.0, 2.0]), np.array([[1.0, 3.0]])).tolist()
        [[1.0, 3.0, 2.0, 6.0]]
    """
    return (context[None, :, None] * arms[:, None, :]).reshape(len(arms), -1)


def arm_features(
    numbers: FloatArray, families: Sequence[str], *, identity: bool = True
) -> FloatArray:
    """Return (n, q) features of arms.

    Args:
        numbers: (n, m) numbers such as price and size; each is scaled to [0, 1], a missing one
            becomes the mean.
        families: n family names, "" where unknown; one 0/1 feature per family of two arms or more.
        identity: give each arm a 0/1 feature of its own, so that it can differ from all others;
            else one constant feature.

    Example:
        >>> arm_features(np.array([[1.0], [3.0]]), ("a", "a")).tolist()
        [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0]]
    """
    n = len(families)
    own = np.eye(n) if identity else np.ones((n, 1))
    shared = sorted({name for name in families if name and families.count(name) > 1})
    member = np.array([[float(name == other) for other in shared] for name in families])
    columns = []
    for column in numbers.T:
        known = column[np.isfinite(column)]
        if len(known) and np.ptp(known) > 0:
            filled = np.where(np.isfinite(column), column, known.mean())
            columns.append((filled - known.min()) / np.ptp(known))
    scaled = np.array(columns).T if columns else np.zeros((n, 0))
    return np.hstack([own, scaled, member.reshape(n, -1)])


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

    def fit(self, raw: FloatArray) -> Self:
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
        return {"kept": self.kept, "low": self._low, "range": self._range, "fill": self._fill}

    def restore(self, state: Arrays) -> Self:
        """Replace what was fitted by a ``state``."""
        self.kept, self._low = state["kept"], state["low"]
        self._range, self._fill = state["range"], state["fill"]
        return self

    def _scale(self, raw: FloatArray) -> FloatArray:
        filled = np.where(np.isfinite(raw), raw, self._fill)
        scaled: FloatArray = np.clip((filled - self._low) / self._range, 0.0, 1.0)
        return scaled


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


class TextFeatures:
    """TF-IDF of runs of one to three characters, reduced to a few components of equal variance.

    Characters, spaces included, tell formats apart (``12+34=`` from ``12 + 34 =``) and topics as
    well as words do. Needs scikit-learn (the extra ``preselect``).

    Args:
        n_components: at most so many features, >= 1; fewer where the prompts are few or alike.
        seed: of the decomposition.
    """

    def __init__(self, n_components: int = 16, *, seed: int = 0) -> None:
        if n_components < 1:
            raise ValueError(f"n_components must be at least 1, got {n_components}")
        self.n_components = n_components
        self.seed = seed
        self._vectorizer = _vectorizer()
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

    def restore(self, state: Arrays) -> Self:
        """Replace what was fitted by a ``state``."""
        terms = {str(term): i for i, term in enumerate(state["terms"])}
        self._vectorizer = _vectorizer(vocabulary=terms)
        self._vectorizer.idf_ = state["idf"]
        self._projection = state["projection"].astype(np.float64)
        self._offset = state["offset"]
        return self


def _vectorizer(vocabulary: Mapping[str, int] | None = None) -> TfidfVectorizer:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise ConfigError(
            "features of prompts need scikit-learn: pip install 'bestarm-agent[preselect]', or "
            "give `features` with every prompt"
        ) from None
    return TfidfVectorizer(
        analyzer="char",
        lowercase=True,
        ngram_range=(1, 3),
        max_features=None if vocabulary else _MOST_TERMS,
        sublinear_tf=True,
        vocabulary=vocabulary,
    )


class PromptEncoder:
    """Turn prompts into vectors that begin with a constant 1; fitted once.

    Prompts that do not differ in anything leave the constant alone: then the router learns which
    candidates are best, whatever the prompt.

    Args:
        by_text: make features of texts; else take those that come with the prompts.
        n_components: features made of a text, at most.
        seed: of their making.
    """

    def __init__(self, *, by_text: bool, n_components: int, seed: int) -> None:
        self._by_text, self._n_components, self._seed = by_text, n_components, seed
        self._width = 0  # of given features
        self._inner: TextFeatures | FeatureFilter | None = None

    def check(self, prompt: Prompt) -> None:
        """Check that a prompt has what features are made of; raises ConfigError."""
        text, given = prompt[0], len(prompt[1])
        if self._by_text and not text:
            raise ConfigError("a prompt needs text; or give `features`, and source `given`")
        if not self._by_text and not (given if not self._width else given == self._width):
            expected = self._width or "as many as every prompt has"
            raise ConfigError(f"this router needs `features` ({expected}), got {given}")
        self._width = self._width or given

    def fit(self, prompts: Sequence[Prompt]) -> None:
        """Learn from prompts how to describe prompts."""
        inner = self._blank()
        try:
            if isinstance(inner, TextFeatures):
                inner.fit([text for text, _ in prompts])
            else:
                inner.fit(np.array([given for _, given in prompts]))
        except ValueError:  # they do not differ
            self._inner = None
        else:
            self._inner = inner

    def vector(self, prompt: Prompt) -> FloatArray:
        """Return (p,) features of one prompt, 1 first."""
        if self._inner is None:
            return np.ones(1)
        if isinstance(self._inner, TextFeatures):
            made = self._inner.transform([prompt[0]])[0]
        else:
            made = self._inner.transform(np.array([prompt[1]]))[0]
        return np.concatenate([[1.0], made])

    @property
    def n_features(self) -> int:
        """Length of ``vector``'s result."""
        return 1 if self._inner is None else 1 + self._inner.n_features

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was fitted, as arrays."""
        inner = {} if self._inner is None else self._inner.state()
        return {"width": np.array(self._width), **inner}

    def restore(self, state: Arrays) -> None:
        """Take over what ``state`` gave out."""
        self._width = int(state["width"])
        self._inner = self._blank().restore(state) if len(state) > 1 else None

    def _blank(self) -> TextFeatures | FeatureFilter:
        if self._by_text:
            return TextFeatures(self._n_components, seed=self._seed)
        return FeatureFilter()
