"""Which examples are labelled, in which order, and which are only guessed beside each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DEFAULT_RATIO = 3  # unlabelled examples per label, where nothing says how many

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A plan of n rounds, the same for all candidates: one label serves them all.

    Attributes:
        labelled: (n,) examples to label, in a uniformly random order.
        others: (n, r) examples that are only guessed, none of them twice.
    """

    labelled: Indices
    others: Indices

    @property
    def width(self) -> int:
        """How many examples a round has: 1 + r."""
        return 1 + int(self.others.shape[1])

    @property
    def sequence(self) -> Indices:
        """(n (1 + r),) examples, round after round, the labelled one first."""
        return np.column_stack([self.labelled, self.others]).ravel()

    def is_label(self, place: int) -> bool:
        """Whether the example at this place of the sequence is to be labelled."""
        return place % self.width == 0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A plan for a finite pool of N examples, the same for all candidates.

    Attributes:
        labelled: (n,) examples to label, in a uniformly random order.
        others: (N - n,) the rest of the pool, only guessed.
    """

    labelled: Indices
    others: Indices

    @property
    def sequence(self) -> Indices:
        """(N,) the whole pool, the labelled ones first."""
        return np.concatenate([self.labelled, self.others])

    def is_label(self, place: int) -> bool:
        """Whether the example at this place of the sequence is to be labelled."""
        return place < len(self.labelled)


def plan_pool(
    labelled: Indices,
    unlabelled: Indices,
    rng: np.random.Generator,
    *,
    max_labels: int | None = None,
) -> PoolPlan:
    """Plan a certification of exactly these examples.

    The labelled ones must be a uniformly random part of the pool (or all of it): their random order
    is then the beginning of a random order of the pool.

    Args:
        labelled: examples that have a label, or can get one.
        unlabelled: examples that cannot.
        rng: puts the labelled ones into a random order.
        max_labels: most labels that may be used, >= 1.

    Raises:
        ValueError: no example has a label.

    Example:
        >>> plan = plan_pool(np.arange(4), np.arange(4, 9), np.random.default_rng(0), max_labels=3)
        >>> len(plan.labelled), sorted(plan.sequence.tolist()) == list(range(9))
        (3, True)
    """
    if not len(labelled):
        raise ValueError("no example has a label")
    labelled = rng.permutation(labelled)
    n = len(labelled) if max_labels is None else max_labels
    return PoolPlan(labelled[:n], np.concatenate([labelled[n:], unlabelled]))


def plan_rounds(
    labelled: Indices,
    unlabelled: Indices,
    rng: np.random.Generator,
    *,
    ratio: int | None = None,
    max_labels: int | None = None,
) -> Rounds:
    """Plan the rounds of a certification.

    Args:
        labelled: examples that have a label, or can get one.
        unlabelled: examples that cannot.
        rng: puts both into a random order.
        ratio: r >= 1; None: as many as there are, 3 if all examples are labelled. Where the
            unlabelled ones do not suffice, labelled ones are used without their labels.
        max_labels: most labels that may be used, >= 1.

    Raises:
        ValueError: there are too few examples.

    Example:
        >>> rounds = plan_rounds(np.arange(4), np.arange(4, 12), np.random.default_rng(0))
        >>> rounds.labelled.shape, rounds.others.shape
        ((4,), (4, 2))
    """
    if not len(labelled):
        raise ValueError("no example has a label")
    most = len(labelled) if max_labels is None else min(max_labels, len(labelled))
    if ratio is None:
        ratio = len(unlabelled) // most or _DEFAULT_RATIO
    n = min(most, (len(labelled) + len(unlabelled)) // (1 + ratio))
    if n < 1:
        raise ValueError(
            f"{len(labelled) + len(unlabelled)} examples are too few for {ratio} unlabelled ones "
            f"per label; lower the ratio"
        )
    labelled = rng.permutation(labelled)
    others = rng.permutation(unlabelled)
    if len(others) < ratio * n:
        others = np.concatenate([others, labelled[n:]])
    return Rounds(labelled[:n], others[: ratio * n].reshape(n, ratio))
