"""Numbers of examples that tests at all times need: simulated, as no formula is near enough."""

from __future__ import annotations

import numpy as np

from bestarm_agent.stats.intervals.betting_bounds import bet_grid, wealth_paths

_CELLS, _FEWEST, _MOST = 200_000, 20, 200  # examples over all worlds; numbers of worlds


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
        255
    """
    rng = np.random.default_rng(0)
    worlds = int(np.clip(_CELLS // n_examples, _FEWEST, _MOST))
    better, worse = (round(n_examples * (disagree + d) / 2) for d in (difference, -difference))
    values = np.full(n_examples, 0.5)
    values[:better] = 1.0
    values[better : better + worse] = 0.0
    drawn = rng.permuted(np.broadcast_to(values, (worlds, n_examples)), axis=1)
    shown = wealth_paths(drawn, 0.5, bet_grid(n_examples, alpha), n_examples) >= 1.0 / alpha
    first = np.where(shown.any(axis=1), shown.argmax(axis=1) + 1, n_examples)
    return int(np.quantile(first, power, method="higher"))
