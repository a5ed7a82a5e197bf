"""Objectives that depend on prices: the answer so far, and which candidates still matter.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time.
Prices are told apart by their means; only ``best-under-usd`` rests on their intervals too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.study.objective import Objective, ObjectiveSpec
from bestarm_agent.config.study.run_options import SelectorSpec
from bestarm_agent.domain.events import Event
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.call_prices import PriceBook, Prices
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Estimates, FloatArray, Guarantee, State

_CALLS = 1000
_FEWEST_NEW, _SHARE_NEW = 8, 50  # told pairs between reviews: at least 8, and 2 % of all


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """An objective's answer at one moment."""

    answer: int | None  # the candidate named, or None before any score is seen
    # the candidates asked for, cheapest first: the Pareto set, or the answer alone
    chosen: tuple[int, ...] = ()
    established: bool = False  # whether that is shown at the asked confidence
    # the answer's mean is shown to be at most this much below the highest one that counts, in [0,
    # 1]; None where that is not said
    margin: float | None = None
    too_expensive: tuple[int, ...] = ()  # candidates shown to cost more than allowed
    worth: BoolArray | None = None  # (K,) candidates that it is worth asking; None means all


def rule(spec: ObjectiveSpec, selector: PairSource, prices: Prices) -> ObjectiveState:
    """Say what is known about an objective that depends on prices."""
    estimates = selector.estimates()
    if not (estimates.n > 0).any():
        return ObjectiveState(None)
    if spec.name is Objective.BEST_UNDER_USD:
        return _best_under(spec, selector, prices, estimates)
    if spec.name is Objective.CHEAPEST:
        return _cheapest(spec, selector, prices, estimates)
    return _pareto(prices, estimates)


def _best_under(
    spec: ObjectiveSpec, selector: PairSource, prices: Prices, estimates: Estimates
) -> ObjectiveState:
    cap = (spec.usd_per_1k_calls or 0.0) / _CALLS
    too_expensive = tuple(int(i) for i in np.flatnonzero(prices.lower > cap))
    left = [i for i in selector.ranking() if i not in too_expensive and estimates.n[i] > 0]
    answer = next((i for i in left if prices.mean[i] <= cap), None)
    if answer is None:
        return ObjectiveState(None, too_expensive=too_expensive)
    pending = set(too_expensive) - {int(i) for i in np.flatnonzero(selector.barred)}
    verdict = selector.best()
    apart = verdict.separated and verdict.guarantee is not Guarantee.HEURISTIC and not pending
    worth = None
    if apart:  # what is left to show is that the best one is cheap enough
        worth = np.arange(len(estimates.n)) == verdict.best
    return ObjectiveState(
        answer=answer,
        chosen=(answer,),
        established=apart and answer == verdict.best and bool(prices.upper[answer] <= cap),
        margin=None if verdict.guarantee is Guarantee.HEURISTIC else selector.margin(answer),
        too_expensive=too_expensive,
        worth=worth,
    )


def _cheapest(
    spec: ObjectiveSpec, selector: PairSource, prices: Prices, estimates: Estimates
) -> ObjectiveState:
    means = _means(estimates)
    guess = _cheapest_of(means >= means.max() - spec.epsilon, prices.guess, means)
    if estimates.guarantee is Guarantee.HEURISTIC:
        return ObjectiveState(guess, (guess,))
    # the others are shown to be more than epsilon below some candidate, by the joint intervals
    left: BoolArray = estimates.upper >= estimates.lower.max() - spec.epsilon
    first = _cheapest_of(left, prices.guess, means)
    margin = selector.margin(first)
    if margin <= spec.epsilon:
        return ObjectiveState(first, (first,), established=True, margin=margin, worth=left)
    margin = selector.margin(guess)
    if margin <= spec.epsilon:  # it is good enough: left to see is who of the cheaper ones is too
        left &= prices.guess < prices.guess[guess]
        left[selector.ranking()[0]] = True
    return ObjectiveState(guess, (guess,), margin=margin, worth=left)


def _pareto(prices: Prices, estimates: Estimates) -> ObjectiveState:
    means, guess = _means(estimates), prices.guess
    place = np.argsort(np.lexsort((-means, guess)))  # cheapest first; of equals the better one
    cheaper = place[None, :] < place[:, None]  # [i, j]: j is no more expensive than i
    lower, upper = estimates.lower, estimates.upper
    beaten: BoolArray = np.logical_or.reduce(cheaper & (lower[None, :] >= upper[:, None]), axis=1)
    rivals = cheaper & ~beaten[None, :] & ~(lower[:, None] > upper[None, :])
    is_open: BoolArray = ~beaten & np.logical_or.reduce(rivals, axis=1)
    worth: BoolArray = is_open | np.logical_or.reduce(rivals & is_open[:, None], axis=0)
    ahead = np.where(cheaper, means[None, :], -1.0).max(axis=1, initial=-1.0)
    members = [int(i) for i in np.flatnonzero((means > ahead) & (means >= 0))]
    members.sort(key=lambda i: int(place[i]))
    return ObjectiveState(
        answer=int(means.argmax()),
        chosen=tuple(members),
        established=not is_open.any() and estimates.guarantee is not Guarantee.HEURISTIC,
        worth=worth,
    )


def _means(estimates: Estimates) -> FloatArray:
    return np.nan_to_num(estimates.mean, nan=-1.0)


def _cheapest_of(mask: BoolArray, guess: FloatArray, means: FloatArray) -> int:
    """Return the cheapest candidate of a mask; of equally cheap ones the best."""
    rows = np.flatnonzero(mask)
    order = np.lexsort((-means[rows], guess[rows]))
    return int(rows[order[0]])


class ObjectiveTracker:
    """An objective pursued by a run: reviewed as scores come in, not after every single one."""

    def __init__(
        self, spec: ObjectiveSpec, book: PriceBook, confidence: float, *, stops: bool
    ) -> None:
        self.spec = spec
        self.book = book
        self.confidence = confidence
        self._stops = stops
        self._state = ObjectiveState(None)
        self._next = 0  # number of told pairs from which it is worked out again
        self._seen = 0  # number of those that it rests on

    @property
    def is_reached(self) -> bool:
        """Return whether the run may stop, since what was asked for is established."""
        return self._stops and self._state.established

    @property
    def worth(self) -> BoolArray | None:
        """(K,) candidates that it is worth asking; None means all."""
        return self._state.worth

    def state(self, selector: PairSource) -> ObjectiveState:
        """Work out what is known now."""
        return rule(self.spec, selector, self.book.prices())

    def is_behind(self, selector: PairSource) -> bool:
        """Return whether something was told since the last review."""
        return self._seen < _told(selector)

    def review(self, selector: PairSource, *, now: bool = False) -> tuple[int, ...]:
        """Look at what is told; return the candidates that are now shown to be too expensive."""
        n_told = _told(selector)
        worth = self._state.worth
        grown = worth is not None and len(worth) < selector.table.n_candidates
        if n_told < self._next and not grown and not now:
            return ()
        self._seen = n_told
        self._next = n_told + max(_FEWEST_NEW, n_told // _SHARE_NEW)
        self._state = self.state(selector)
        fresh = tuple(i for i in self._state.too_expensive if not selector.barred[i])
        if fresh:
            self._next = n_told  # the next review is without them
        return fresh


def _told(selector: PairSource) -> int:
    return selector.table.n_asked - int(selector.table.count(State.PENDING).sum())


def track_objective(
    spec: ObjectiveSpec, chosen: SelectorSpec, selector: PairSource, events: Iterable[Event]
) -> ObjectiveTracker | None:
    """Return the objective of a run where its log ends; None if it does not depend on prices."""
    if not spec.by_price or not isinstance(selector, Selector):
        return None
    level = spec.level(chosen.level) if selector.exogenous else None
    book = PriceBook(level, selector.odds_of)
    for event in events:
        book.take(event)
    return ObjectiveTracker(spec, book, chosen.level, stops=chosen.stop_when_separated)
