"""Plans of a certification: the examples to label, and those that are only guessed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DEFAULT_RATIO = 3  # unlabelled examples per label, where nothing says how many

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A plan of n rounds, the same for all candidates."""

    labelled: Indices  # (n,) examples to label, in a uniformly random order
    others: Indices  # (n, r) examples that are only guessed, none of them twice

    @property
    def width(self) -> int:
        """Return the number of examples of a round: 1 + r."""
        return 1 + int(self.others.shape[1])

    @property
    def sequence(self) -> Indices:
        """Return the (n (1 + r),) examples, round after round, the labelled one first."""
        return np.column_stack([self.labelled, self.others]).ravel()

    def is_label(self, place: int) -> bool:
        """Return whether the example at this place of the sequence is to be labelled."""
        return place % self.width == 0


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A plan for a finite pool of N examples, the same for all candidates."""

    labelled: Indices  # (n,) examples to label, in a uniformly random order
    others: Indices  # (N - n,) the rest of the pool, only guessed

    @property
    def sequence(self) -> Indices:
        """Return the (N,) whole pool, the labelled ones first."""
        return np.concatenate([self.labelled, self.others])

    def is_label(self, place: int) -> bool:
        """Return whether the example at this place of the sequence is to be labelled."""
        return place < len(self.labelled)


def plan_pool(
    labelled: Indices,
    unlabelled: Indices,
    rng: np.random.Generator,
    *,
    max_labels: int | None = None,
) -> PoolPlan:
    """Plan a certification of exactly these examples.

    The ``labelled`` ones, which have a label or can get one, must be all of the pool, or a
    uniformly random part of it. Raises ValueError if there is none.
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

    A round has ``ratio`` >= 0 examples that are only guessed; None: as many as there are, 3 if all
    examples are labelled. Where the ``unlabelled`` ones do not suffice, labelled ones are used
    without their labels. Raises ValueError if there are too few examples.
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
