"""Values that pass between a preselector and its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PreselectionProblem:
    """The size of a preselection problem, and its seed."""

    n_arms: int  # arms that can be chosen, >= 2
    n_features: int  # length d of an arm's context vector, >= 1
    seed: int = 0  # of all random choices, >= 0

    def __post_init__(self) -> None:
        if self.n_arms < 2:
            raise ValueError(f"n_arms must be at least 2, got {self.n_arms}")
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {self.n_features}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")


@dataclass(frozen=True, slots=True)
class Feedback:
    """The result of running some arms for one context.

    Winner feedback has ``n_ranked`` 1, a complete ranking has ``n_ranked`` s; anything between is a
    ranking whose tail is unordered. ``n_ranked`` 0 is a tie of all.
    """

    contexts: FloatArray  # (n, d) context vectors of all arms, finite
    # (s,) distinct arms that were run, s >= 2: the ranked ones, best first, then the others
    order: IntArray
    n_ranked: int = 1  # 0 <= n_ranked <= s
    # (s,) in the order of ``order``; None where only that is known
    scores: FloatArray | None = None

    def __post_init__(self) -> None:
        n, s = len(self.contexts), len(self.order)
        if s < 2:
            raise ValueError(f"feedback needs at least 2 arms that were run, got {s}")
        if len(set(self.order.tolist())) != s or self.order.min() < 0 or self.order.max() >= n:
            raise ValueError(
                f"order must hold distinct arms in 0..{n - 1}, got {self.order.tolist()}"
            )
        if not 0 <= self.n_ranked <= s:
            raise ValueError(f"n_ranked must be in 0..{s}, got {self.n_ranked}")
        if self.scores is not None and self.scores.shape != (s,):
            raise ValueError(f"{s} arms were run, got scores of shape {self.scores.shape}")

    @property
    def ordered(self) -> FloatArray:
        """Return the (s, d) context vectors of the arms that were run, in their order."""
        return self.contexts[self.order]


def score_feedback(
    contexts: FloatArray, shown: Sequence[int], scores: FloatArray, rng: np.random.Generator
) -> Feedback:
    """Turn the scores of the s arms that were run into a ranking; higher is better.

    Arms that share the lowest score stay unranked, all of them if all scores are equal; other ties
    are broken at random. ``contexts`` (n, d) are those of all arms.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> feedback = score_feedback(np.eye(3), [0, 1, 2], np.array([0.0, 1.0, 0.0]), rng)
        >>> int(feedback.order[0]), feedback.n_ranked
        (1, 1)
    """
    if scores.shape != (len(shown),) or not np.isfinite(scores).all():
        raise ValueError(f"{len(shown)} arms need as many finite scores, got {scores.tolist()}")
    above = int((scores > scores.min()).sum())
    by_score = np.lexsort((rng.random(len(scores)), -scores))
    order = np.asarray(shown, dtype=np.intp)[by_score]
    # the last arm is known to be last, so ranking it too adds nothing to the likelihood
    return Feedback(contexts, order, above, np.asarray(scores, dtype=np.float64)[by_score])
