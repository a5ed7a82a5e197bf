from __future__ import annotations

from collections.abc import Callable

import pytest

RateCheck = Callable[[int, int, float], None]


@pytest.fixture
def check_rate() -> RateCheck:
    """Fail if so many misses in so many independent runs have probability below 1e-6 at ``rate``.

    So a correct bound fails such a test once in a million seeds at most (the seeds are fixed), and
    a bound that misses twice too often fails it surely at the numbers of runs used here.
    """
    from scipy.stats import binom

    def check(misses: int, runs: int, rate: float) -> None:
        p_value = float(binom.sf(misses - 1, runs, rate))
        assert p_value >= 1e-6, f"{misses} misses in {runs} runs, at most {rate:.2%} are allowed"

    return check


def test_rate_check_has_teeth(check_rate: RateCheck) -> None:
    check_rate(110, 1000, 0.1)
    with pytest.raises(AssertionError, match="160 misses in 1000 runs"):
        check_rate(160, 1000, 0.1)
