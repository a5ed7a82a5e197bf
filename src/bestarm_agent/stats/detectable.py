"""Numbers of examples that tests at all times need: simulated, as no formula is near enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.betting import Bets, Wealth
from bestarm_agent.stats.paired_sequences import pair_bets

_CELLS, _FEWEST, _MOST = 200_000, 20, 200  # examples over all worlds; numbers of worlds
_BLOCK = 1024  # draws that are looked at together


def examples_to_part(
    difference: float,
    disagree: float,
    *,
    n_examples: int,
    alpha: float,
    power: float = 0.8,
) -> int:
    """Return after how many common examples the better of two candidates is shown to be better.

    Tested after every example, by betting on the differences (``paired_sequences``). Where the test
    needs more than there are, that is all of them: then both means are known.

    Args:
        difference: of the two accuracies, in (0, ``disagree``].
        disagree: share of the examples on which exactly one of the two is right, in (0, 1].
        n_examples: N >= 1, drawn from without replacement.
        alpha: probability with which the other way round is ever shown, in (0, 1).
        power: probability of an answer by then, in (0, 1).

    Example:
        >>> examples_to_part(0.1, 0.2, n_examples=2000, alpha=0.025)
        240
    """
    rng = np.random.default_rng(0)
    better, worse = (round(n_examples * (disagree + d) / 2) for d in (difference, -difference))
    halves = np.full(n_examples, 1, dtype=np.int8)  # twice the value of each example
    halves[:better] = 2
    halves[better : better + worse] = 0
    bets = pair_bets(n_examples, alpha)
    worlds = int(np.clip(_CELLS // n_examples, _FEWEST, _MOST))
    first = [_shown_after(rng.permutation(halves), bets, alpha) for _ in range(worlds)]
    return int(np.quantile(first, power, method="higher"))


def _shown_after(drawn: NDArray[np.int8], bets: Bets, alpha: float) -> int:
    """Return after how many of the draws the bets are won; all if they are not before the end."""
    wealth = Wealth(1, 0.5, bets, len(drawn))
    for start in range(0, len(drawn), _BLOCK):
        shown = wealth.extend(drawn[None, start : start + _BLOCK] / 2) >= 1.0 / alpha
        if shown.any():
            return start + int(shown.argmax()) + 1
    return len(drawn)
