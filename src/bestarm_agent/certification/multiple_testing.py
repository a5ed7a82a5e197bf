"""Statements about many candidates at once.

Each rule takes the candidates' e-values (highest wealths; present ones for e-BH) and returns the
certified ones. The candidates may share examples and depend on each other in any way.
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
    candidate of the sequence to pass, which has probability at most ``delta`` (Bauer 1991). Return
    the places 0, 1, ... up to the first failure.
    """
    certified: list[int] = []
    for place, log_e in enumerate(log_e_values):
        if log_e < -math.log(delta):
            break
        certified.append(place)
    return certified


def bonferroni(log_e_values: Sequence[float], delta: float) -> list[int]:
    """Certify all candidates whose wealth reached K / ``delta``; none is bad at 1 - delta."""
    enough = math.log(len(log_e_values) / delta) if log_e_values else 0.0
    return [place for place, log_e in enumerate(log_e_values) if log_e >= enough]


def e_bh(log_e_values: ArrayLike, delta: float) -> list[int]:
    """Certify the k largest e-values for the largest k with the k-th at least K / (k ``delta``).

    The expected share of bad candidates among those certified is at most ``delta`` (Wang and Ramdas
    2022): weaker than the other rules, and easier to reach with many candidates. Needs wealths at
    one stopping time, not the highest ones.

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
