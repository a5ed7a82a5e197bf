"""Rules that sample evenly: all candidates, or those that may still be the best.

``uniform`` is the baseline of best-arm identification. Racing (Maron & Moore 1994, "Hoeffding
Races: Accelerating Model Selection Search for Classification and Function Approximation") leaves
out who is shown to be worse; there Hoeffding intervals tell, here candidates are compared in pairs
by betting, which holds at every time and needs far fewer examples. It is made for a confidence
rather than a budget: it stops early where it can, and spends evenly on close candidates.

In flight: a pending pair counts as seen.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Choice, Pair
from bestarm_agent.stats.arrays import BoolArray


class Uniform(Rule):
    """The candidate with the fewest pulls is next (ties at random), on a random unseen example.

    With costs, n_i is proportional to 1 / sqrt(c_i).

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("uniform", Problem(n_candidates=3, n_examples=20))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "uniform"

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick by the number of pulls, each counted by its weight."""
        counted = np.where(allowed, self.table.n_trials * self.weights, np.inf)
        fewest = np.flatnonzero(counted == counted.min())
        candidate = int(fewest[rng.integers(len(fewest))])
        example = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), self.name)


class Racing(Uniform):
    """The leader and those that it is not shown to beat, on one random example, then on the next.

    A candidate that is out comes back if another one leads which is not shown to beat it. If none
    of the race may be asked, or the race is decided and the run goes on, the others are asked.
    Without intervals (``Problem.track_intervals``) no candidate is ever out. Comparisons rest on
    the scores told up to the first pending one of each candidate.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("racing", Problem(n_candidates=3, n_examples=20))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "racing"
    common_examples: bool = True
    heeds_costs: bool = False

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick evenly from the leader and its rivals; from all once there are none."""
        # A run that goes on once the race is decided has pulls to spend: they go to the others, who
        # may come back.
        race = allowed & self.answer.contenders(1)
        return super().choose(race if race.any() else allowed, rng)
