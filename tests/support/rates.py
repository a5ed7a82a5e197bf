"""A binomial test for error rates that are bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

RateCheck: TypeAlias = Callable[[int, int, float], None]


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
