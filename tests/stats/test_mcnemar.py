from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.stats.mcnemar import examples_needed, mcnemar


def test_by_hand() -> None:
    # Binomial(7, 1/2): P(X <= 1) = 8/128.
    assert mcnemar(1, 6) == pytest.approx(16 / 128)
    assert mcnemar(6, 1) == mcnemar(1, 6)


def test_no_evidence_either_way() -> None:
    assert mcnemar(4, 4) == 1.0
    assert mcnemar(0, 0) == 1.0


def test_agrees_with_the_binomial_test_on_a_grid() -> None:
    from scipy.stats import binomtest

    a, b = np.meshgrid(np.arange(0, 30, 3), np.arange(1, 40, 4))
    expected = [binomtest(int(x), int(x + y)).pvalue for x, y in zip(a.flat, b.flat, strict=True)]
    np.testing.assert_allclose(mcnemar(a, b).ravel(), expected)
    assert float(mcnemar(5000, 5300)) == pytest.approx(binomtest(5000, 10300).pvalue)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_exact_test_keeps_its_level_at_every_number_of_examples(alpha: float) -> None:
    # Exact, not simulated: the probability of rejection under the hypothesis, summed over outcomes.
    from scipy.stats import binom

    for n in range(1, 80):
        k = np.arange(n + 1)
        size = binom.pmf(k, n, 0.5) @ (mcnemar(k, n - k) <= alpha)
        assert size <= alpha + 1e-12


@pytest.mark.parametrize("bad", [-1, 0.5, [3, -2]])
def test_counts_are_checked(bad: object) -> None:
    with pytest.raises(ValueError, match="only_b must be integers >= 0"):
        mcnemar(3, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("difference", "disagree", "power"), [(0.03, 0.1, 0.8), (0.05, 0.3, 0.9), (0.04, 0.2, 0.8)]
)
def test_so_many_examples_find_a_difference_with_the_power_asked_for(
    difference: float, disagree: float, power: float
) -> None:
    """By simulation, with McNemar's test without correction, which the formula is for."""
    n, runs = examples_needed(difference, disagree, power=power), 20_000
    shares = [(disagree + difference) / 2, (disagree - difference) / 2, 1 - disagree]
    only_a, only_b, _ = np.random.default_rng(7).multinomial(n, shares, size=runs).T
    found = (only_a - only_b) ** 2 > 1.959964**2 * (only_a + only_b)
    # four standard errors (level 6e-5), and .01 for the normal approximation
    assert abs(found.mean() - power) < 4 * np.sqrt(power * (1 - power) / runs) + 0.01


@pytest.mark.parametrize(("difference", "disagree"), [(0, 0.1), (0.2, 0.1), (0.2, 1.1)])
def test_differences_that_cannot_be_are_refused(difference: float, disagree: float) -> None:
    with pytest.raises(ValueError, match="0 < difference <= disagree <= 1"):
        examples_needed(difference, disagree)
