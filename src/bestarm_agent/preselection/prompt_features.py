"""Features of prompts, whether made of their text or given with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.features.embeddings import EmbeddingFeatures
from bestarm_agent.preselection.features.tfidf import TextFeatures
from bestarm_agent.preselection.rules.joint_features import FeatureFilter
from bestarm_agent.preselection.rules.types import FloatArray
from bestarm_agent.preselection.settings import RouterSettings

Prompt = tuple[str, tuple[float, ...]]
"""Text, and the features given with it: its embedding, where a model makes one."""

Inner = TextFeatures | FeatureFilter | EmbeddingFeatures


class PromptEncoder:
    """Turn prompts into vectors that begin with a constant 1; fitted once.

    Prompts that do not differ in anything leave the constant alone: then the router learns which
    candidates are best, whatever the prompt.
    """

    def __init__(self, settings: RouterSettings) -> None:
        self.fitted = False
        self._by_text = settings.source == "text"
        self._width = 0  # of given features
        self._inner: Inner | None = None
        self._settings = settings

    def check(self, prompt: Prompt) -> None:
        """Check that a prompt has what features are made of; raises ConfigError."""
        given = len(prompt[1])
        if self._by_text and not prompt[0]:
            raise ConfigError("a prompt needs text; or give `features`, and source `given`")
        if not self._by_text and not (given if not self._width else given == self._width):
            expected = self._width or "as many as every prompt has"
            raise ConfigError(f"this router needs `features` ({expected}), got {given}")
        if self._settings.source == "embedding" and not np.isfinite(prompt[1]).all():
            raise ConfigError(
                "an embedding lacks a number; only source `given` fills in missing features"
            )
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
        self.fitted = True

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
        if self._inner is None:
            return {"empty": np.array(1)}
        return {**self._inner.state(), "width": np.array(self._width)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what ``state`` gave out."""
        self.fitted = True
        if "empty" not in state:
            self._inner = self._blank().restore(state)
            self._width = int(state["width"])

    def _blank(self) -> Inner:
        settings = self._settings
        if settings.source == "given":
            return FeatureFilter()
        if settings.source == "embedding":
            return EmbeddingFeatures(settings.n_components)
        return TextFeatures(settings.n_components, analyzer=settings.analyzer, seed=settings.seed)
