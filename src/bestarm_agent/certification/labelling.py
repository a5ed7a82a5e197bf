"""Which example to label next: where the autoevaluators are likely to be wrong.

A label is worth most where the residual (loss minus guess) may be large: the variance of a weighted
draw is smallest with chances in proportion to its root mean square. That is learnt here from the
labels so far, in groups of examples with similar guesses. A share of the chances stays uniform,
which bounds the weights, and so the range of the observations, whatever was learnt.

Beyond the paper (its appendix A calls it orthogonal). Source of the rule: Zrnic and Candes (2024),
"Active statistical inference", section 4.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.certification.priors import FloatArray

_GROUPS = 5
_PRIOR_WEIGHT = 4.0  # labels that the guess of a calibrated autoevaluator counts for


class ResidualChances:
    """Learns how wrong guesses are, and turns it into chances.

    Args:
        guesses: (A, N) guesses; their mean per example says which group it is in.
        uniform: share in (0, 1] of the chances that stays uniform.

    Raises:
        ValueError: ``uniform`` is out of range.

    Example:
        >>> chances = ResidualChances(np.array([[0.0, 1.0]]))
        >>> for _ in range(50):
        ...     chances.learn(0, loss=0.0)
        ...     chances.learn(1, loss=0.5)
        >>> low, high = chances.of(np.arange(2))
        >>> bool(high > low)
        True
    """

    def __init__(self, guesses: FloatArray, uniform: float = 0.5) -> None:
        if not 0.0 < uniform <= 1.0:
            raise ValueError(f"uniform must be in (0, 1], got {uniform}")
        self._means = guesses.mean(axis=0) if len(guesses) else np.full(guesses.shape[1], 0.5)
        self._uniform = uniform
        groups = np.minimum((self._means * _GROUPS).astype(int), _GROUPS - 1)
        self._groups = groups
        calibrated = self._means * (1.0 - self._means) + 0.01
        sizes = np.bincount(groups, minlength=_GROUPS)
        sums = np.bincount(groups, weights=calibrated, minlength=_GROUPS)
        self._squares = _PRIOR_WEIGHT * sums / np.maximum(sizes, 1)
        self._counts = np.full(_GROUPS, _PRIOR_WEIGHT)

    def learn(self, example: int, loss: float) -> None:
        """Take note of a label."""
        group = self._groups[example]
        self._squares[group] += (loss - self._means[example]) ** 2
        self._counts[group] += 1.0

    def of(self, examples: np.ndarray[tuple[int], np.dtype[np.intp]]) -> FloatArray:
        """(n,) chances of the examples of these indices; they sum to 1."""
        spreads = np.sqrt(self._squares / self._counts)[self._groups[examples]]
        chances: FloatArray = self._uniform / len(examples) + (1.0 - self._uniform) * (
            spreads / spreads.sum()
        )
        return chances
