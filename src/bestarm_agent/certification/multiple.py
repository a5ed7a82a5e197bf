"""Many candidates, one statement: which of them are good enough, all at once.

Each rule takes the candidates' e-values (highest wealths, or present ones for e-BH) and says which
are certified. The candidates may share examples and depend on each other in any way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

CORRECTIONS = ("sequence", "bonferroni", "e-bh")


def fixed_sequence(log_e_values: Iterable[float], delta: float) -> list[int]:
    """Certify candidates in an order given beforehand, until the first that is not certified.

    All are tested at level ``delta`` without correction: a false certification needs the first bad
    candidate of the sequence to pass, so some bad one is certified with probability <= ``delta``
    (Bauer 1991). Nothing after the first failure needs to be looked at.

    Args:
        log_e_values: logarithms of the highest wealths, in the order of the sequence.
        delta: error probability in (0, 1).

    Returns:
        The places of those certified: 0, 1, ... up to the first failure.

    Example:
        >>> fixed_sequence([5.0, 4.0, 1.0, 9.0], delta=0.1)
        [0, 1]
    """
    certified: list[int] = []
    for place, log_e in enumerate(log_e_values):
        if log_e < -math.log(delta):
            break
        certified.append(place)
    return certified


def bonferroni(log_e_values: Sequence[float], delta: float) -> list[int]:
    """Certify every candidate whose wealth reached K / ``delta``; none is bad at 1 - delta.

    Example:
        >>> bonferroni([5.0, 4.0, 1.0], delta=0.1)  # ln 30 = 3.4
        [0, 1]
    """
    enough = math.log(len(log_e_values) / delta) if log_e_values else 0.0
    return [place for place, log_e in enumerate(log_e_values) if log_e >= enough]


def e_bh(log_e_values: ArrayLike, delta: float) -> list[int]:
    """Certify the k largest e-values for the largest k with the k-th at least K / (k ``delta``).

    The expected share of bad candidates among those certified is at most ``delta`` (Wang and Ramdas
    2022), a weaker promise than the other rules give and cheaper to keep with many candidates. It
    needs wealths at one stopping time, not the highest ones on the way.

    Example:
        >>> e_bh([2.9, 0.1, 3.0, 2.8], delta=0.1)  # third largest: ln(4 / 0.3) = 2.6
        [0, 2, 3]
    """
    logs = np.asarray(log_e_values, dtype=float)
    if not len(logs):
        return []
    order = np.argsort(-logs, kind="stable")
    needed = np.log(len(logs) / (np.arange(1, len(logs) + 1) * delta))
    passed = np.flatnonzero(logs[order] >= needed)
    count = int(passed[-1]) + 1 if len(passed) else 0
    return sorted(int(i) for i in order[:count])
