"""Equations in chains behind a border, against the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.selectors.auto import chains
from bestarm_agent.selectors.auto.chains import Chains

Array = NDArray[np.float64]


def whole(parts: Chains) -> Array:
    """Write the matrix out."""
    size, n_border = parts.border.shape
    (m, q), n = parts.groups.shape[:2], len(parts.single)
    matrix = np.zeros((size, size))
    matrix[:, :n_border], matrix[:n_border] = parts.border, parts.border.T
    at = [slice(n_border + q * k, n_border + q * (k + 1)) for k in range(m)]
    for k in range(m):
        matrix[at[k], at[k]] = parts.groups[k]
    for k in range(m - 1):
        matrix[at[k], at[k + 1]] = matrix[at[k + 1], at[k]] = -parts.links[k]
    single = matrix[size - n :, size - n :]
    single += np.diag(parts.single) - np.diag(parts.steps, 1) - np.diag(parts.steps, -1)
    return matrix


def drawn(n_border: int, m: int, q: int, n: int) -> Chains:
    """Draw equations; a large diagonal makes them positive definite."""
    rng, size = np.random.default_rng([n_border, m, q, n]), n_border + m * q + n
    many = float(size)

    def symmetric(count: int, length: int) -> Array:
        half = rng.normal(size=(count, length, length))
        return np.asarray(half + half.transpose(0, 2, 1))

    border = rng.normal(size=(size, n_border))
    border[:n_border] = symmetric(1, n_border)[0] + many * np.eye(n_border) * 2
    return Chains(
        border,
        rng.normal(size=size),
        symmetric(m, q) + many * np.eye(q) * 2,
        symmetric(max(0, m - 1), q),
        rng.random(n) + many,
        rng.normal(size=max(0, n - 1)),
    )


@pytest.mark.parametrize("together", [1, 6, 40])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 0, 1, 7),
        (1, 0, 1, 1),
        (3, 0, 1, 0),
        (3, 4, 3, 5),
        (2, 1, 4, 0),
        (4, 9, 2, 1),
        (2, 2, 7, 3),
    ],
)
def test_solution_and_inverse_are_those_of_the_whole_matrix(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int, int], together: int
) -> None:
    monkeypatch.setattr(chains, "_TOGETHER", together)
    parts = drawn(*shape)
    inverse = np.pad(np.linalg.inv(whole(parts)), (0, 1))  # and an unknown that is 0
    found, covariance = parts.solved()
    every = np.arange(len(found))
    np.testing.assert_allclose(found[:-1], inverse[:-1, :-1] @ parts.target, atol=1e-12)
    assert found[-1] == 0.0
    np.testing.assert_allclose(covariance(every[:, None], every), inverse, atol=1e-12)


def test_two_single_ones_behind_a_border_by_hand() -> None:
    # [[2, 1, 0], [1, 2, -1], [0, -1, 2]] has the determinant 4; its inverse times 4 is
    # [[3, -2, -1], [-2, 4, 2], [-1, 2, 3]]
    none, border = np.empty((0, 1, 1)), np.array([[2.0], [1.0], [0.0]])
    parts = Chains(border, np.array([4.0, 0.0, 4.0]), none, none, np.full(2, 2.0), np.ones(1))
    found, covariance = parts.solved()
    np.testing.assert_allclose(found, [2.0, 0.0, 2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(
        covariance(np.array([0, 0, 1, 2]), np.array([0, 2, 2, 2])) * 4, [3, -1, 2, 3]
    )


@pytest.mark.parametrize("part", ["border", "groups", "single"])
def test_what_is_not_positive_definite_is_refused(part: str) -> None:
    parts = drawn(2, 2, 2, 3)
    size = getattr(parts, part).shape[-1]
    {
        "border": lambda: parts.border[:size].__isub__(100.0 * np.eye(size)),
        "groups": lambda: parts.groups.__isub__(100.0 * np.eye(size)),
        "single": lambda: parts.single.__isub__(100.0),
    }[part]()
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        parts.solved()
