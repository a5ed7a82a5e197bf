"""Paired top-two on a model of examples: the rule to use when there is no reason for another.

All candidates take their examples from one random order, so they are compared on common ones, and
a one-factor Gaussian posterior (``stats.one_factor``) says how sure every *difference* is. A pull
goes to the leader or to somebody who may still overtake it, whichever has seen less (top-two
sampling: Russo 2016; with the variance of the difference: Qin & You 2023). A quarter of the pulls
keeps the candidate of rank r at 1 / r of the leader's examples, as Successive Rejects would
(Audibert & Bubeck 2010), but drops nobody for good: where the model is wrong, this finds out.

A known budget narrows the field: after the share x of it the leader effectively has at most
K^(1 - x) challengers, the pace of Sequential Halving (Karnin, Koren & Somekh 2013), but softly and
by the posterior; the floor then reaches ranks up to twice as many. Both are reckoned anew at every
fit, so whoever fell out may come back. Without a budget the chances alone decide, and the rule is
anytime.

History says beforehand how hard and how noisy examples are. Those that tell good candidates apart
then come early in the order, more likely in proportion to the spread of a good candidate's score
(Neyman's allocation), and the model knows about the rest. The order is still drawn without regard
to the scores of this run, with known chances, by which the intervals are weighed.

Only allocation and the answer rest on the model. A run is stopped by the betting intervals and the
paired comparisons of ``PairedIntervals`` alone, which hold whatever the scores are like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.contest import Contest, chance_of_being_best
from bestarm_agent.selectors.order import SharedOrder
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Tell,
    Verdict,
)
from bestarm_agent.stats.betting import Odds
from bestarm_agent.stats.factors import Factors
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.stats.keyed import KeyedRandom
from bestarm_agent.stats.one_factor import OneFactor
from bestarm_agent.stats.outlook import Outlook
from bestarm_agent.stats.profiles import Profile

_DRAWS = 512  # of all means, for the probability that the best is the best
_PENDING, _VOID = int(State.PENDING), int(State.VOID)
_FIRST_SWEEPS, _SWEEPS = 8, 2
_FEWEST_NEW, _SHARE_NEW = 4, 0.02  # scores between two fits: a number, a share of all
_SHARE_ALL = 1.125  # growth of the scores between two fits of all candidates


class Auto(Selector):
    """Top-two sampling on common examples, with a rank floor.

    Warm-up: the first ``warm_up`` examples of the order on every candidate, also on those that join
    later. Then the model is fitted again whenever 2 % more scores are in (at least 4 more).

    In flight: a pending pull counts as seen, at the score that the model expects, when choosing
    what to ask; it moves no estimate. So concurrent asks spread out. Void pulls likewise. A
    candidate that may not be asked leaves its turn to its opponent, then to whoever has the highest
    estimate plus twice its standard deviation.

    Costs: a challenger is drawn by its squared chance to overtake for the price of the pair, the
    rank floor counts the square root of the price as rank, and a budget goes by what was spent of
    it. The more prices go with quality the less they count (``contest.weighed``). Of the
    two of a pair the one that has seen less is pulled, whatever it costs, since what one has seen
    alone says little about their difference. Equal costs change nothing.

    Args:
        problem: K, N, seed and the rest.
        top_k: size of the set to find, >= 1: leaders and challengers then stand on the two sides
            of its border.
        warm_up: common examples of every candidate before the model is used, >= 1.
        floor: share in [0, 1] of the pulls that keep the candidate of rank r at 1 / r.
        narrow: whether to narrow the field as the budget goes, where one is known.
        history: what was learned from past candidates on the same examples, in the same order; the
            examples may go on. It is left aside unless predictions of candidates that were held out
            were strong (``Foresight.is_strong``).

    Raises:
        ValueError: a parameter is out of range, or the history is of more examples than there are.

    Example:
        >>> selector = Auto(Problem(n_candidates=3, n_examples=10))
        >>> asks = selector.ask(3)
        >>> len({ask.pair.example for ask in asks}), len({ask.pair.candidate for ask in asks})
        (1, 3)
    """

    name: ClassVar[str] = "auto"
    common_examples: bool = True

    def __init__(
        self,
        problem: Problem,
        *,
        top_k: int = 1,
        warm_up: int = 1,
        floor: float = 0.25,
        narrow: bool = True,
        history: Lesson | None = None,
    ) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if warm_up < 1:
            raise ValueError(f"warm_up must be at least 1, got {warm_up}")
        if not 0 <= floor <= 1:
            raise ValueError(f"floor must be in [0, 1], got {floor}")
        super().__init__(problem)
        self.top_k = top_k
        self.warm_up = warm_up
        self.floor = floor
        self.narrow = narrow
        self.anytime = problem.budget is None or not narrow
        self._profile = Profile.plain(problem.n_examples)
        self._order = SharedOrder(self.table, problem.seed)
        if history is not None and history.foresight.is_strong:
            self._profile = Profile.of(_factors_of_all(history, problem.n_examples))
            weights, purpose = self._profile.weights(), f"shared-order {history.factors.digest}"
            self._order = SharedOrder(self.table, problem.seed, weights, purpose)
        self._posterior = KeyedRandom(problem.seed, "posterior")
        self._n_told = 0
        self._contest: Contest | None = None  # None until the warm-up is told
        self._latest: Outlook | None = None  # of the scores up to the `_answered_at`-th
        self._answered_at, self._next_fit, self._next_fit_of_all = -1, 0, 0
        self._begin()

    @property
    def uses_history(self) -> bool:
        """Whether the past says which examples to ask first."""
        return not self._order.is_even

    def odds_of(self, example: int) -> Odds:
        """How an example that was asked was drawn: contested ones are likelier with history."""
        return self._order.odds_of(example)

    def best(self) -> Verdict:
        """Also say how probable the model thinks it that the best is the best."""
        verdict = super().best()
        outlook = self._answer()
        if outlook is None:
            return verdict
        n = len(outlook.active)
        draws = self._posterior.at(0).standard_normal((_DRAWS, n))
        chance = chance_of_being_best(outlook, verdict.best, draws, self.barred)
        return replace(verdict, probability=chance)

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        candidate, reason = self._pick(allowed, rng)
        example, propensity = self._order.draw(candidate)
        return Choice(Pair(candidate, example), propensity, reason)

    def _pick(self, allowed: BoolArray, rng: np.random.Generator) -> tuple[int, str]:
        n_trials = self.table.n_trials
        fewest = int(n_trials[allowed].min())
        if self._contest is None or fewest < self.warm_up:
            ties = np.flatnonzero(allowed & (n_trials == fewest))
            return int(ties[rng.integers(len(ties))]), "warm-up"
        if rng.random() < self.floor:
            return self._contest.least_loaded(allowed, n_trials), "floor"
        return self._contest.draw(allowed, n_trials, rng), "duel"

    def _means(self) -> FloatArray:
        """Posterior means; what is seen where the model was never fitted or a row is complete."""
        table = self.table
        n_scored, seen = table.n_scored, table.mean()
        outlook = self._answer()
        if outlook is None:  # one lucky score makes nobody the best
            centre = float(table.total.sum()) / max(1, int(n_scored.sum()))
            means = (table.total + centre) / (n_scored + 1)
        else:
            complete = n_scored + table.count(State.VOID) == table.n_examples
            least = table.total / table.n_examples  # the model may expect what cannot be
            most = least + 1.0 - n_scored / table.n_examples
            means = np.where(complete, seen, np.clip(outlook.mean, least, most))
        return np.where(n_scored > 0, means, np.nan)

    def _answer(self) -> Outlook | None:
        """What the model expects with all that is told so far."""
        if self._contest is not None and self._answered_at != self._n_told:
            self._answered_at = self._n_told
            self._latest = self._model.peek()
        return self._latest

    def _stands_apart(self) -> bool:
        """Look at the leader of the last fit first: asking the model anew takes longer."""
        if self._contest is not None:
            order = self._contest.order
            for one in order[: self.top_k].tolist():
                if self._contenders(one)[order[self.top_k :]].any():
                    return False
        return super()._stands_apart()

    def _asked(self, ask: Ask) -> None:
        self._model.open(ask.pair.candidate, int(self._order.places[ask.pair.example]))

    def _told(self, tell: Tell) -> None:
        self._n_told += 1
        self._put(tell.seq)
        if self._n_told >= self._next_fit:
            self._fit()

    def _put(self, seq: int) -> None:
        table = self.table
        if table.state[seq] not in (_PENDING, _VOID):
            place = int(self._order.places[table.example[seq]])
            self._model.put(int(table.candidate[seq]), place, float(table.score[seq]))

    def _fit(self) -> None:
        everybody = self._n_told >= self._next_fit_of_all
        sweeps = _FIRST_SWEEPS if self._contest is None else _SWEEPS
        self._latest = self._model.fit(sweeps, everybody=everybody)
        self._answered_at = self._n_told
        self._contest = Contest.of(
            self._latest,
            self.top_k,
            self._tie_ranks,
            out=self.barred,
            price=self.expected_costs(),
            field=self._field(),
        )
        self._next_fit = self._n_told + max(_FEWEST_NEW, int(_SHARE_NEW * self._n_told))
        if everybody:
            self._next_fit_of_all = int(_SHARE_ALL * self._n_told)

    def _field(self) -> float | None:
        """K^(1 - x) after the share x of the budget; None without one."""
        budget = self.problem.budget
        if self.anytime or budget is None:
            return None
        table = self.table
        budget = min(budget, table.n_candidates * table.n_examples)
        if self.problem.costs is None:
            used = self._n_told / budget
        else:  # a budget in pairs then stands for what they cost at the mean price
            used = float(table.spent.sum()) / (budget * float(np.mean(self.problem.costs)))
        return float(table.n_candidates ** max(0.0, 1.0 - used))

    def _left_race(self, candidates: Sequence[int]) -> None:
        if self._contest is not None:
            self._fit()

    def _grown(self) -> None:
        """Put all scores into the order anew: examples that join fall anywhere in it."""
        began = self._contest is not None
        self._order.grow()
        self._profile = self._profile.joined_by(self.table.n_examples - len(self._profile.mean))
        self._begin()
        if began:
            self._fit()

    def _begin(self) -> None:
        table = self.table
        self._model = OneFactor(self._profile.at(self._order.examples), table.n_candidates)
        places = self._order.places[table.example]
        for seq in range(table.n_asked):
            self._model.open(int(table.candidate[seq]), int(places[seq]))
            self._put(seq)
        self._contest = None
        self._latest = None
        self._answered_at = -1
        self._next_fit = table.n_candidates * self.warm_up
        self._next_fit_of_all = 0


def _factors_of_all(history: Lesson, n_examples: int) -> Factors:
    """What was learned of each example; later ones are taken to be average."""
    known = history.factors.n_examples
    if known > n_examples:
        raise ValueError(
            f"history has factors of {known} examples, the problem has only {n_examples};"
            " align the history with the problem's examples"
        )
    columns = np.arange(n_examples)
    return history.factors.at(np.where(columns < known, columns, -1))
