from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm_agent.certification.multiple_testing import bonferroni, e_bh, fixed_sequence
from tests.stats.conftest import RateCheck


def test_a_sequence_ends_at_its_first_failure() -> None:
    def values() -> list[float]:
        return [3.0, 2.31, 2.29, 9.0]  # ln 10 = 2.3026

    assert fixed_sequence(values(), 0.1) == [0, 1]
    assert fixed_sequence([], 0.1) == []
    looked_at = iter(values())
    fixed_sequence(looked_at, 0.1)
    assert next(looked_at) == 9.0  # was not needed


def test_bonferroni_by_hand() -> None:
    assert bonferroni([math.log(40) - 1e-9, math.log(40) + 1e-9, 0.0, 9.0], 0.1) == [1, 3]
    assert bonferroni([], 0.1) == []


def test_e_bh_by_hand() -> None:
    # K = 4, delta = .1: needed for the 1st to 4th largest are 40, 20, 13.3 and 10.
    assert e_bh(np.log([39.0, 12.0, 1.0, 19.0]), 0.1) == []
    assert e_bh(np.log([14.0, 13.5, 1.0, 19.0]), 0.1) == [0, 1, 3]  # the third largest passes
    assert e_bh(np.log([11.0, 11.0, 11.0, 11.0]), 0.1) == [0, 1, 2, 3]
    assert e_bh([], 0.1) == []


def log_e_values(seed: int, n_null: int, n_good: int) -> list[float]:
    """E-values that are 1/p for p uniform times 1/2 (null), and large ones (good)."""
    rng = np.random.default_rng(seed)
    null = np.log(0.5 / np.sqrt(rng.random(n_null)))  # mean 1
    return [*null.tolist(), *rng.uniform(3.0, 8.0, n_good).tolist()]


@pytest.mark.coverage
def test_error_rates(check_rate: RateCheck) -> None:
    # Level 1e-6 each. E-values of mean 1 with a heavy tail for the bad, in the worst order.
    wrong = {"sequence": 0, "bonferroni": 0}
    false_share, runs = 0.0, 4000
    for seed in range(runs):
        values = log_e_values(seed, n_null=5, n_good=5)
        wrong["sequence"] += any(i < 5 for i in fixed_sequence(values, 0.2))
        wrong["bonferroni"] += any(i < 5 for i in bonferroni(values, 0.2))
        found = e_bh(values, 0.2)
        false_share += sum(i < 5 for i in found) / max(1, len(found))
    for count in wrong.values():
        check_rate(count, runs, 0.2)
    assert false_share / runs <= 0.2 + 4.8 * 0.5 / math.sqrt(
        runs
    )  # shares are in [0, 1]: sd <= 1/2
