"""What passes between a preselector and whoever runs the arms that it chose."""

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
    """What a preselector is made for.

    Attributes:
        n_arms: arms that can be chosen, >= 2.
        n_features: length d of an arm's context vector, >= 1.
        seed: of all random choices, >= 0.
    """

    n_arms: int
    n_features: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the rules given above; raises ValueError."""
        if self.n_arms < 2:
            raise ValueError(f"n_arms must be at least 2, got {self.n_arms}")
        if self.n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {self.n_features}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")


@dataclass(frozen=True, slots=True)
class Feedback:
    """What became of the arms that were run for one context.

    Winner feedback has ``n_ranked`` 1, a complete ranking of what was run ``n_ranked`` equal to
    the number of arms run; anything between is a ranking whose tail is not told apart.

    Attributes:
        contexts: (n, d) context vectors of all arms, finite.
        order: (s,) distinct arms that were run, s >= 2: the ranked ones first, best first, then
            the others in any order.
        n_ranked: how many of them are ranked, 1 <= n_ranked <= s.
        scores: (s,) their scores in the order of ``order``, or None where only the order is known.
    """

    contexts: FloatArray
    order: IntArray
    n_ranked: int = 1
    scores: FloatArray | None = None

    def __post_init__(self) -> None:
        """Check the rules given above; raises ValueError."""
        n, s = len(self.contexts), len(self.order)
        if s < 2:
            raise ValueError(f"feedback needs at least 2 arms that were run, got {s}")
        if len(set(self.order.tolist())) != s or self.order.min() < 0 or self.order.max() >= n:
            raise ValueError(
                f"order must hold distinct arms in 0..{n - 1}, got {self.order.tolist()}"
            )
        if not 1 <= self.n_ranked <= s:
            raise ValueError(f"n_ranked must be in 1..{s}, got {self.n_ranked}")
        if self.scores is not None and self.scores.shape != (s,):
            raise ValueError(f"{s} arms were run, got scores of shape {self.scores.shape}")

    @property
    def ordered(self) -> FloatArray:
        """(s, d) context vectors of the arms that were run, in their order."""
        return self.contexts[self.order]


def winner_feedback(contexts: FloatArray, shown: Sequence[int], winner: int) -> Feedback:
    """Feedback that names the best of the arms that were run.

    Raises:
        ValueError: the winner is not among ``shown``, or a rule of ``Feedback`` is broken.

    Example:
        >>> winner_feedback(np.eye(3), [0, 2], winner=2).order.tolist()
        [2, 0]
    """
    if winner not in shown:
        raise ValueError(f"the winner {winner} is not among the arms shown, {list(shown)}")
    others = [arm for arm in shown if arm != winner]
    return Feedback(contexts, np.array([winner, *others], dtype=np.intp))


def score_feedback(
    contexts: FloatArray, shown: Sequence[int], scores: FloatArray, rng: np.random.Generator
) -> Feedback | None:
    """Turn the scores of the arms that were run into a ranking.

    Arms that share the lowest score stay unranked, which is exact; other ties are broken at
    random.

    Args:
        contexts: (n, d) context vectors of all arms.
        shown: s arms that were run.
        scores: (s,) their scores or utilities, higher is better.
        rng: breaks ties.

    Returns:
        The feedback, or None if all scores are equal: then they say nothing about who is better.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> feedback = score_feedback(np.eye(3), [0, 1, 2], np.array([0.0, 1.0, 0.0]), rng)
        >>> int(feedback.order[0]), feedback.n_ranked
        (1, 1)
    """
    if scores.shape != (len(shown),) or not np.isfinite(scores).all():
        raise ValueError(f"{len(shown)} arms need as many finite scores, got {scores.tolist()}")
    above = int((scores > scores.min()).sum())
    if above == 0:
        return None
    by_score = np.lexsort((rng.random(len(scores)), -scores))
    order = np.asarray(shown, dtype=np.intp)[by_score]
    # the last arm is known to be last, so ranking it too adds nothing to the likelihood
    return Feedback(contexts, order, above, np.asarray(scores, dtype=np.float64)[by_score])
