"""A floor under the calls that any rule needs to name the best candidate of a known matrix."""

from __future__ import annotations

from math import log

import numpy as np

from bestarm_agent.simulation.curves import TARGET
from bestarm_agent.simulation.score_matrices import FloatArray, ScoreMatrix
from bestarm_agent.stats.ranking import within_gap

# kl(.95, .05), in nats: evidence that a rule must collect to be right with this probability
# (Kaufmann, Cappe & Garivier 2016, "On the Complexity of Best-Arm Identification", Lemma 1).
_NATS = (2 * TARGET - 1) * log(TARGET / (1 - TARGET))


def information_floor(matrix: ScoreMatrix, *, per_cost: bool = False) -> float:
    """Return the least share, in (0, 1], of all calls (or of their cost) that names the best.

    A rule that is right in 95 % of the shuffles of the rows must tell the matrix from the one in
    which the best has changed places with candidate j. An example that both have answered tells
    them apart by KL_j nats, so n_j = 2.65 / KL_j common examples are needed, fewer where they are
    drawn from N without replacement: n_j / (1 + n_j / N). The floor is the sum of the n_j and, for
    the best itself, their maximum. Candidates that are equal to the best count for nothing.
    Answers of third candidates may tell something too; that is not counted.

    Requires costs if ``per_cost``.
    """
    means = matrix.means
    best = int(np.argmax(means))
    rivals = ~within_gap(means, 0.0)
    needed = np.where(rivals, _examples_needed(matrix.scores - matrix.scores[best]), 0.0)
    needed[best] = max(1.0, needed.max())
    costs = np.ones(len(means))
    if per_cost:
        assert matrix.costs is not None
        costs = matrix.costs
    return float(needed @ costs / (costs.sum() * matrix.scores.shape[1]))


def _examples_needed(behind: FloatArray) -> FloatArray:
    """(K,) common examples with the best, given (K, N) differences to it; NaN where unknown."""
    n_common = np.isfinite(behind).sum(axis=1)
    with np.errstate(divide="ignore"):
        needed = _NATS / _nats_of_one(behind)  # infinite where nothing tells the two apart
        without_replacement: FloatArray = 1.0 / (1.0 / needed + 1.0 / np.maximum(n_common, 1))
    return np.maximum(1.0, without_replacement)


def _nats_of_one(behind: FloatArray) -> FloatArray:
    """(K,) Kullback-Leibler divergence between one difference and its opposite."""
    n_common = np.isfinite(behind).sum(axis=1)
    if not np.isin(behind[np.isfinite(behind)], (-1, 0, 1)).all():
        # Normal differences of mean d and variance s^2: 2 d^2 / s^2
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio: FloatArray = np.nanmean(behind, axis=1) ** 2 / np.nanvar(behind, axis=1)
        return np.nan_to_num(2 * ratio)
    # Won, lost or equal, with half an example added to the first two: (w - l) log(w / l)
    won = ((behind < 0).sum(axis=1) + 0.5) / (n_common + 1)
    lost = ((behind > 0).sum(axis=1) + 0.5) / (n_common + 1)
    nats: FloatArray = (won - lost) * np.log(won / lost)
    return nats
