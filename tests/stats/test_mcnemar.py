from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.stats.mcnemar import mcnemar


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
