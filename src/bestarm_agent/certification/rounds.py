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
