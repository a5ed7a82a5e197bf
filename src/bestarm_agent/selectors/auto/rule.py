"""Paired top-two on a model of examples: the rule to use when there is no reason for another.

All candidates take their examples from one random order, so they are compared on common ones, and
a Gaussian posterior (``axes_model``) says how sure every difference is.

Allocation. Most pulls go to duels: the leader against a challenger, drawn by its chance to overtake
(derived in ``duels``). A quarter goes to a floor that keeps the candidate of rank r at 1 / r
of the leader's examples, as Successive Rejects would (Audibert & Bubeck 2010), but drops none for
good: where the model is wrong, this finds out. A known budget narrows the choice: after the share x
of it the leader effectively has at most K^(1 - x) challengers, the pace of Sequential Halving
(Karnin, Koren & Somekh 2013). They are found anew at every fit, so a candidate may come back.
Without a budget the rule is anytime.

History says beforehand how hard examples are for good candidates. The model is told each score less
what history expects of that example beyond the average one, so a mean that rests on easy examples
is not taken for a high one. The run's own scores decide whether history is believed: of one
candidate, they should rise with what is expected of the examples. If their slope is surely below
1/2, where predictions add variance, history is dropped.

A run that stops once the best is established needs more than the model's opinion. When no
challenger has a chance of 1 in 20, the one with the fewest examples is pulled, of the leader and
those whom it is not proved to beat. Duels would go on with the closest challenger alone. Where no
cap ends the run, this also replaces a pull that would be the first at a place of the order while
scores of the place before are pending: the leader that all others meet there is chosen by then.

Candidates that share levels of axes (model, prompt, parameters) are not all tried: the model learns
what levels share.

Only allocation and the answer rest on the model. A run is stopped by the betting intervals and the
paired comparisons of ``Answer`` alone, which hold whatever the scores are like.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.auto.axes_model import CrossedEffects, Posterior
from bestarm_agent.selectors.auto.duels import Duels
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Belief, Choice, Pair, Problem, State, Tell
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.history import HistoryModel

_PENDING, _VOID = int(State.PENDING), int(State.VOID)
_UNLIKELY = 0.05  # chance of a challenger below which the leader is taken to be the best
_FIRST_SWEEPS, _SWEEPS = 8, 2
_FEWEST_NEW, _SHARE_NEW = 4, 0.02  # scores between two fits: a number, a share of all
_FIRST_FIT = 20  # scores before the first fit of a grid
_SHARE_NEW_OF_GRID = 0.05  # scores between two fits of a grid: a share of all
_FLOOR = 0.25  # share of the pulls that keep the candidate of rank r at 1 / r
_LARGE_GRID = 1000  # candidates
_POWER_OF_LARGE = 2.0  # of chances to overtake there
_FEWEST_EXAMPLES = 20  # before history is judged by them
_FEWEST_CALLS = 1.5  # in the budget for each candidate; with fewer, not all are tried


class Auto(Rule):
    """Top-two sampling on common examples, with a rank floor.

    Warm-up: the first example of the order on every candidate, also on those that join later; with
    axes, one example of twenty candidates. Of a budget below 1.5 calls a candidate a random part of
    them is tried (``n_tried``). Then the model is fitted again whenever 2 % more scores are in (at
    least 4 more), 5 % with axes.

    In flight: a pending or void pull counts as seen, at the score that the model expects, when
    choosing what to ask; so concurrent asks spread out. A candidate that may not be asked leaves
    its turn to its opponent, then to the one with the fewest examples.

    Costs: duels count for the price of the pair, and the floor counts the square root of the price
    as rank (``duels``). A budget goes by the money spent. Equal costs change nothing.

    Args:
        history: what was learned from past candidates on the same examples, in the same order.
            Ignored unless predictions of held-out candidates were strong
            (``Validation.is_strong``).

    Attributes:
        uses_history: whether history is used, and no score of this run speaks against it.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("auto", Problem(n_candidates=3, n_examples=20))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "auto"
    common_examples: bool = True

    def __init__(self, problem: Problem, *, history: HistoryModel | None = None) -> None:
        super().__init__(problem)
        self.anytime = problem.budget is None
        self.uses_history = history is not None and history.validation.is_strong
        self._history = history
        self.answer.learn(history)
        self._duels: Duels | None  # None until the warm-up is told
        self._latest: Posterior | None  # of the scores up to the `_answered_at`-th
        self._answered_at: int
        self._begin()

    @property
    def n_tried(self) -> int:
        """Return half of a budget below 1.5 calls a candidate, at least 2; else all candidates.

        Several scores of few candidates tell more than one of each, unless axes tell of the others.
        """
        budget, n_rows = self.problem.budget, self.table.n_candidates
        if self._has_axes or budget is None or budget >= _FEWEST_CALLS * n_rows:
            return n_rows
        return min(n_rows, max(2, budget // 2))

    @property
    def _tried(self) -> BoolArray:
        """(K,) candidates that are tried; where they cannot all be, drawn at random."""
        luck = np.where(self.answer.barred, np.inf, self.answer.tie_ranks)
        tried = np.full(len(luck), self.n_tried == len(luck))
        tried[np.argsort(luck)[: self.n_tried]] = True
        return tried

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick a candidate, on its next example of the order."""
        if self.n_tried < len(allowed):
            tried = allowed & self._tried
            allowed = tried if tried.any() else allowed
        candidate, reason = self._pick(allowed, rng)
        return Choice(Pair(candidate, self.order.next_of(candidate)), reason)

    def _pick(self, allowed: BoolArray, rng: np.random.Generator) -> tuple[int, str]:
        n_trials = self.table.n_trials
        fewest = int(n_trials[allowed].min())
        if self._duels is None or (fewest == 0 and not self._has_axes):
            ties = np.flatnonzero(allowed & (n_trials == fewest))
            return int(ties[rng.integers(len(ties))]), "warm-up"
        # Three cases. No proof is sought, or a challenger still has a chance: a duel. A duel whose
        # pull would commit a leader while scores of the place before are pending: a proof pull
        # instead, if no cap ends the run. No challenger has a chance: a proof pull. Where no
        # candidate is left for a proof pull, a duel after all.
        problem, drawn = self.problem, None
        if not (problem.seeks_proof and self._duels.likeliest < _UNLIKELY):
            drawn = self._draw(self._duels, allowed, rng)
            is_capped = not (problem.seeks_proof and problem.open_ended)
            if is_capped or not self._leads_blindly(drawn[0]):
                return drawn
        contenders = allowed & self.answer.contenders(1)
        if contenders.any():
            return self._duels.behind(contenders, n_trials), "proof"
        return drawn or self._draw(self._duels, allowed, rng)

    def _leads_blindly(self, candidate: int) -> bool:
        """Return whether nobody has more trials, and some trials of those with as many pend."""
        front = self.table.n_trials == self.table.n_trials.max()
        return bool(front[candidate] and self.table.count(State.PENDING)[front].any())

    def _draw(self, duels: Duels, allowed: BoolArray, rng: np.random.Generator) -> tuple[int, str]:
        n_trials = self.table.n_trials
        if rng.random() < _FLOOR:  # of candidates not tried yet, the most promising is first
            return duels.below_floor(allowed, n_trials + self._has_axes), "floor"
        return duels.draw(allowed, n_trials, rng), "duel"

    def belief(self) -> Belief:
        """Return posterior means; the mean seen where the model was never fitted or all is seen."""
        table = self.table
        n_scored, seen = table.n_scored, table.mean()
        # The model is fitted seldom, but what is said now should rest on all scores: a
        # copy of the model is fitted, from the variances of the last fit. The model itself stays at
        # the last fit, or what is asked next would depend on how often somebody looked.
        if self._duels is not None and self._answered_at != self.table.n_told:
            self._answered_at = self.table.n_told
            self._latest = self._model.peek(*self._seen())
        posterior = self._latest
        if posterior is None:  # one lucky score makes no candidate the best
            centre = float(table.total.sum()) / max(1, int(n_scored.sum()))
            means = (table.total + centre) / (n_scored + 1)
            return Belief(np.where(n_scored > 0, means, np.nan))
        # A row that is complete needs no model, and the others' means are cut to what the scores
        # seen leave possible.
        complete = n_scored + table.count(State.VOID) == table.n_examples
        # the model may expect what cannot be
        means = np.where(complete, seen, np.clip(posterior.mean, *table.certain()))
        if self._has_axes:  # they tell of those without a score, too, which rank last
            return Belief(means, tier=(n_scored == 0).astype(np.int64))
        return Belief(np.where(n_scored > 0, means, np.nan))

    def told(self, tell: Tell) -> None:
        """Fit the model if it is time to."""
        if self.until_look <= 0:
            self._fit()

    @property
    def until_look(self) -> int:
        """Number of outcomes until the next fit."""
        return self._next_fit - self.table.n_told

    def _seen(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return what the model is fitted to: rows, places and scores of all pairs asked."""
        table = self.table
        has_none = (table.state == _PENDING) | (table.state == _VOID)
        scores = np.where(has_none, np.nan, table.score - self._ease[table.example])
        return table.candidate.astype(np.int64), self.order.places[table.example], scores

    def _fit(self) -> None:
        # History shifts every score that the model has, so without it the model is made anew.
        if self.uses_history and self._history_misleads():
            self.uses_history = False
            self._make_model()
        sweeps = _FIRST_SWEEPS if self._duels is None else _SWEEPS
        self._latest = self._model.fit(*self._seen(), sweeps)
        self._answered_at = self.table.n_told
        void = self.table.count(State.VOID)
        is_large = self._has_axes and self.table.n_candidates >= _LARGE_GRID
        self._duels = Duels(
            self._latest,
            self.answer.tie_ranks,
            out=self.answer.barred | ~self._tried,
            void_share=void / np.maximum(1, void + self.table.n_scored),
            price=self.expected_costs(),
            most_challengers=self._most_challengers(),
            power=_POWER_OF_LARGE if is_large else 1.0,
        )
        self.answer.presumed_order = self._duels.order
        share = _SHARE_NEW_OF_GRID if self._has_axes else _SHARE_NEW
        # By the number of outcomes and not by time: a resumed run fits at the same scores.
        self._next_fit = self.table.n_told + max(_FEWEST_NEW, int(share * self.table.n_told))

    def _most_challengers(self) -> float | None:
        """Return K^(1 - x) after the share x of the budget; None without one."""
        budget, costs, table = self.problem.budget, self.problem.costs, self.table
        if budget is None:
            return None
        # What was spent, where pulls differ in cost: the budget in pairs is that of a run at the
        # mean price.
        spent, price = float(table.n_told), 1.0
        if costs is not None:
            spent, price = float(table.spent.sum()), float(np.mean(costs))
        used = spent / (min(budget, table.n_candidates * table.n_examples) * price)
        return float(self.n_tried ** max(0.0, 1.0 - used))

    def changed(self) -> None:
        """Fit anew, a larger model if candidates joined."""
        began = self._duels is not None
        if self.table.n_candidates != len(self._model.effects.of_row):
            self._begin()
        if began:
            self._fit()

    def _begin(self) -> None:
        self._make_model()
        self.answer.presumed_order = self._duels = self._latest = None
        self._answered_at = -1
        self._next_fit = min(self.n_tried, _FIRST_FIT) if self._has_axes else self.n_tried

    def _make_model(self) -> None:
        """Make the model, with nothing learned yet."""
        axes, n_examples = self.problem.axes, self.table.n_examples
        # (N,) by how much good past candidates score higher on an example than on the average one
        self._ease: FloatArray = np.zeros(n_examples)
        if self._history is not None and self.uses_history:
            expected = self._history.factors.of(n_examples).expected()
            self._ease = expected - expected.mean()
        alone = np.full((self.table.n_candidates, 1), -1)
        self._model = CrossedEffects(alone if axes is None else axes, n_examples)
        self._has_axes = bool(self._model.effects.families)  # rows share levels

    def _history_misleads(self) -> bool:
        """Return whether the scores rise by less than half of what history expects.

        Regresses them on the expected ones, both less the candidate's mean, over at least 20
        examples. Two standard errors, for which the scores of one example count as one, are allowed
        for.
        """
        table = self.table
        scored = (table.state != _PENDING) & (table.state != _VOID)
        row, example = table.candidate[scored], table.example[scored]
        counts = np.maximum(np.bincount(row), 1)

        def centred(values: FloatArray) -> FloatArray:
            return np.asarray(values - (np.bincount(row, values) / counts)[row])

        expected, seen = centred(self._ease[example]), centred(table.score[scored])
        square = float(expected @ expected)
        if len(np.unique(example)) < _FEWEST_EXAMPLES or not square > 0.0:
            return False
        slope = float(expected @ seen) / square
        # The residuals of one example depend on each other, since it is hard for all candidates at
        # once. They are summed before they are squared (a variance by clusters).
        of_examples = np.bincount(example, expected * (seen - slope * expected))
        return slope + 2.0 * float(np.sqrt(of_examples @ of_examples)) / square < 0.5
