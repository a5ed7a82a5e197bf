from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm_agent.stats.agreement import agreement, difference, kappa, mean, share
from tests.support.rates import RateCheck


def test_clopper_pearson_by_hand() -> None:
    assert share(0, 10, 0.05) == pytest.approx((0.0, 0.0, 1 - 0.025 ** (1 / 10)))
    assert share(10, 10, 0.05) == pytest.approx((1.0, 0.025 ** (1 / 10), 1.0))


def test_kappa_by_hand() -> None:
    """20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no: .7 observed, .5 by chance."""
    one = [1] * 25 + [0] * 25
    other = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    found = kappa(one, other, 0.05)
    assert found.value == pytest.approx(0.4)
    # Fleiss, Cohen and Everitt: diagonal .4 (1 - 1.1 * .6)^2 + .3 (1 - .9 * .6)^2; off it
    # .6^2 (.1 (.6 + .5)^2 ... ) with p_.i + p_j. for (yes, no) and (no, yes)
    diagonal = 0.4 * (1 - 1.1 * 0.6) ** 2 + 0.3 * (1 - 0.9 * 0.6) ** 2
    off = 0.36 * (0.1 * (0.6 + 0.5) ** 2 + 0.2 * (0.4 + 0.5) ** 2)
    error = math.sqrt((diagonal + off - (0.4 - 0.5 * 0.6) ** 2) / 50) / 0.5
    assert found.upper - 0.4 == pytest.approx(1.959964 * error, rel=1e-5)


def test_what_is_not_known() -> None:
    nothing = share(0, 0, 0.05), kappa([1, 1], [1, 1], 0.05), difference([], [0.5], -1, 1, 0.1)
    assert all(math.isnan(found.value) for found in nothing)
    assert [found[1:] for found in nothing] == [(0.0, 1.0), (-1.0, 1.0), (-2.0, 2.0)]
    found = agreement([1] * 11 + [0] * 11, [1] * 11 + [0] * 11, 0.05)  # few, and all agree
    assert found.kappa.value == 1.0
    assert found.kappa.lower == pytest.approx(2 * found.agreement.lower - 1, abs=1e-3)
    assert found.kappa.lower < 0.75


def test_agreement_by_hand() -> None:
    found = agreement([1, 0.75, 0.5, 0.25, 0, 1], [1, 1, 0.5, 0, 1, 0], 0.1)
    assert found.agreement.value == pytest.approx(4 / 6)
    assert found.bias.value == pytest.approx((0 - 0.25 + 0 + 0.25 - 1 + 1) / 6)
    assert found.sensitivity.value == pytest.approx(3 / 4)
    assert found.specificity.value == pytest.approx(1 / 2)
    assert found.n == 6


@pytest.mark.parametrize(
    ("judged", "gold"), [([], []), ([1], [1, 0]), ([1.5], [1]), ([float("nan")], [1])]
)
def test_scores_are_checked(judged: list[float], gold: list[float]) -> None:
    with pytest.raises(ValueError, match=r"scores"):
        agreement(judged, gold, 0.05)


@pytest.mark.coverage
@pytest.mark.parametrize(("n", "p"), [(10, 0.5), (25, 0.9), (60, 0.02)])
def test_exact_intervals_cover(n: int, p: float, check_rate: RateCheck) -> None:
    # 4,000 samples of n at alpha = .2
    rng = np.random.default_rng(0)
    found = [share(int(k), n, 0.2) for k in rng.binomial(n, p, 4000)]
    check_rate(sum(not f.lower <= p <= f.upper for f in found), 4000, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
def test_betting_intervals_of_a_bias_cover(check_rate: RateCheck) -> None:
    # 200 samples of 60 skewed differences in [-1, 1], mean .16, and of their halves, at alpha = .2
    rng = np.random.default_rng(1)
    samples = rng.choice([-1.0, 0.0, 0.2, 1.0], p=[0.05, 0.7, 0.05, 0.2], size=(200, 60))
    missed = [mean(sample, -1, 1, 0.2) for sample in samples]
    check_rate(sum(not f.lower <= 0.16 <= f.upper for f in missed), 200, 0.2)
    halves = [difference(sample[:30], sample[30:], -1, 1, 0.2) for sample in samples]
    check_rate(sum(not f.lower <= 0 <= f.upper for f in halves), 200, 0.2)


@pytest.mark.coverage
@pytest.mark.parametrize("n", [100, 400])
def test_kappas_interval_covers_nearly(n: int, check_rate: RateCheck) -> None:
    # 1,000 samples: gold is good with .6, the judge agrees with .85. It is asymptotic: at
    # alpha = .1 it may miss up to .13.
    rng = np.random.default_rng(2)
    same = 0.85
    both = 0.6 * same + 0.4 * (1 - same)
    chance = 0.6 * both + 0.4 * (1 - both)
    truth = (same - chance) / (1 - chance)
    missed = 0
    for _ in range(1000):
        gold = rng.random(n) < 0.6
        judged = np.where(rng.random(n) < same, gold, ~gold)
        found = kappa(judged.astype(int), gold.astype(int), 0.1)
        missed += not found.lower <= truth <= found.upper
    check_rate(missed, 1000, 0.13)
