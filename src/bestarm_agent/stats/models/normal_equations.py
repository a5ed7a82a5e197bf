"""Many small least-squares problems at once, given by their normal equations.

Each item and each member of an ensemble has r equations in r factors. Arrays are laid out
[item][rank][member]; symmetric matrices keep the entries a <= b, in the order of ``pair_names``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray

_NEGLIGIBLE = 1e-12


def pair_names(rank: int) -> list[tuple[int, int]]:
    """Return the kept entries of a symmetric (rank, rank) matrix, in order.

    Example:
        >>> pair_names(2)
        [(0, 0), (0, 1), (1, 1)]
    """
    return [(a, b) for a in range(rank) for b in range(a, rank)]


def pairs(factors: FloatArray, *, twice: bool = False) -> FloatArray:
    """Return (n, r (r + 1) / 2, K_ens) products of factors a <= b, a < b doubled if ``twice``."""
    products = [
        factors[:, a] * factors[:, b] * (2.0 if twice and a != b else 1.0)
        for a, b in pair_names(factors.shape[1])
    ]
    return np.stack(products, axis=1)


def solutions(gram: FloatArray, right: FloatArray, ridge: float) -> FloatArray:
    """Solve all normal equations; return the (n, r, K_ens) factors.

    Args:
        gram: (n, r (r + 1) / 2, K_ens) matrices, as ``pairs`` lays them out, summed over cells.
        right: (n, r, K_ens) right-hand sides.
        ridge: added to their diagonals, >= 0. Without one, what the equations leave undetermined
            is settled by the smallest factors, and an item of which a member knows nothing gets
            that member's mean factors of the others.
    """
    rank = right.shape[1]
    if rank == 1:
        known = gram + ridge > _NEGLIGIBLE
        solved = np.divide(right, gram + ridge, out=np.zeros_like(right), where=known)
        known = known[:, 0]
    else:
        solved, known = _solved_jointly(gram, right, ridge)
    return solved if ridge > 0 else _averages_for_unknown(solved, known)


def _solved_jointly(
    gram: FloatArray, right: FloatArray, ridge: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    n, rank, n_members = right.shape
    matrix = np.empty((n, n_members, rank, rank))
    for place, (a, b) in enumerate(pair_names(rank)):
        matrix[:, :, a, b] = matrix[:, :, b, a] = gram[:, place]
    size = np.trace(matrix, axis1=2, axis2=3)
    known = size + ridge > _NEGLIGIBLE
    jitter = np.where(known, ridge + _NEGLIGIBLE * size, 1.0)  # smallest factors where undetermined
    matrix += jitter[:, :, None, None] * np.eye(rank)
    solved = np.linalg.solve(matrix, right.transpose(0, 2, 1)[..., None])[..., 0]
    factors: FloatArray = np.asarray(solved, dtype=np.float64).transpose(0, 2, 1)
    return factors, np.asarray(known, dtype=bool)


def _averages_for_unknown(solved: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """Give items of which a member knows nothing the mean factors of those it knows."""
    if known.all():
        return solved
    masked = np.where(known[:, None], solved, 0.0)
    average = masked.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known[:, None], solved, average)
