"""What the scores and prices so far say about what was asked for, and whom it is worth asking.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time.
Prices are told apart by their means; only ``best-under-usd`` rests on their intervals too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.objective import Objective, ObjectiveSpec
from bestarm_agent.config.running import SelectorSpec
from bestarm_agent.domain.events import Event
from bestarm_agent.pricing import PriceBook, Prices
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Estimates, FloatArray, Guarantee, State

_CALLS = 1000
_FEWEST_NEW, _SHARE_NEW = 8, 50  # told pairs between reviews: at least 8, and 2 % of all


@dataclass(frozen=True, slots=True)
class Ruling:
    """An objective's answer at one moment.

    Attributes:
        answer: the candidate named, or None before any score is seen.
        chosen: the candidates asked for, cheapest first: the Pareto set, or the answer alone.
        established: whether that is shown at the asked confidence.
        margin: the answer's mean is shown to be at most this much below the highest one that
            counts, in [0, 1]; None where that is not said.
        too_dear: candidates shown to cost more than allowed.
        worth: (K,) candidates that it is worth asking; None means all.
    """

    answer: int | None
    chosen: tuple[int, ...] = ()
    established: bool = False
    margin: float | None = None
    too_dear: tuple[int, ...] = ()
    worth: BoolArray | None = None


def rule(spec: ObjectiveSpec, selector: Selector, prices: Prices) -> Ruling:
    """Say what is known about an objective that depends on prices.

    Args:
        spec: the objective, not ``best``.
        selector: all scores so far.
        prices: of the same candidates.
    """
    estimates = selector.estimates()
    if not (estimates.n > 0).any():
        return Ruling(None)
    if spec.name is Objective.BEST_UNDER_USD:
        return _best_under(spec, selector, prices, estimates)
    if spec.name is Objective.CHEAPEST:
        return _cheapest(spec, selector, prices, estimates)
    return _pareto(prices, estimates)


def _best_under(
    spec: ObjectiveSpec, selector: Selector, prices: Prices, estimates: Estimates
) -> Ruling:
    cap = (spec.usd_per_1k_calls or 0.0) / _CALLS
    too_dear = tuple(int(i) for i in np.flatnonzero(prices.lower > cap))
    left = [i for i in selector.ranking() if i not in too_dear and estimates.n[i] > 0]
    answer = next((i for i in left if prices.mean[i] <= cap), None)
    if answer is None:
        return Ruling(None, too_dear=too_dear)
    pending = set(too_dear) - {int(i) for i in np.flatnonzero(selector.barred)}
    verdict = selector.best()
    apart = verdict.separated and verdict.guarantee is not Guarantee.HEURISTIC and not pending
    worth = None
    if apart:  # what is left to show is that the best one is cheap enough
        worth = np.arange(len(estimates.n)) == verdict.best
    return Ruling(
        answer=answer,
        chosen=(answer,),
        established=apart and answer == verdict.best and bool(prices.upper[answer] <= cap),
        margin=None if verdict.guarantee is Guarantee.HEURISTIC else selector.margin(answer),
        too_dear=too_dear,
        worth=worth,
    )


def _cheapest(
    spec: ObjectiveSpec, selector: Selector, prices: Prices, estimates: Estimates
) -> Ruling:
    means = _means(estimates)
    guess = _cheapest_of(means >= means.max() - spec.epsilon, prices.guess, means)
    if estimates.guarantee is Guarantee.HEURISTIC:
        return Ruling(guess, (guess,))
    # the others are shown to be more than epsilon below some candidate, by the joint intervals
    left: BoolArray = estimates.upper >= estimates.lower.max() - spec.epsilon
    first = _cheapest_of(left, prices.guess, means)
    margin = selector.margin(first)
    if margin <= spec.epsilon:
        return Ruling(first, (first,), established=True, margin=margin, worth=left)
    margin = selector.margin(guess)
    if margin <= spec.epsilon:  # it is good enough: left to see is who of the cheaper ones is too
        left &= prices.guess < prices.guess[guess]
        left[selector.ranking()[0]] = True
    return Ruling(guess, (guess,), margin=margin, worth=left)


def _pareto(prices: Prices, estimates: Estimates) -> Ruling:
    means, guess = _means(estimates), prices.guess
    place = np.argsort(np.lexsort((-means, guess)))  # cheapest first; of equals the better one
    cheaper = place[None, :] < place[:, None]  # [i, j]: j is no dearer than i
    lower, upper = estimates.lower, estimates.upper
    beaten: BoolArray = np.logical_or.reduce(cheaper & (lower[None, :] >= upper[:, None]), axis=1)
    rivals = cheaper & ~beaten[None, :] & ~(lower[:, None] > upper[None, :])
    is_open: BoolArray = ~beaten & np.logical_or.reduce(rivals, axis=1)
    worth: BoolArray = is_open | np.logical_or.reduce(rivals & is_open[:, None], axis=0)
    ahead = np.where(cheaper, means[None, :], -1.0).max(axis=1, initial=-1.0)
    members = [int(i) for i in np.flatnonzero((means > ahead) & (means >= 0))]
    members.sort(key=lambda i: int(place[i]))
    return Ruling(
        answer=int(means.argmax()),
        chosen=tuple(members),
        established=not is_open.any() and estimates.guarantee is not Guarantee.HEURISTIC,
        worth=worth,
    )


def _means(estimates: Estimates) -> FloatArray:
    """(K,) means; -1 where nothing is known."""
    return np.nan_to_num(estimates.mean, nan=-1.0)


def _cheapest_of(mask: BoolArray, guess: FloatArray, means: FloatArray) -> int:
    """The cheapest of some candidates; of equally cheap ones the best."""
    rows = np.flatnonzero(mask)
    order = np.lexsort((-means[rows], guess[rows]))
    return int(rows[order[0]])


class Aim:
    """An objective pursued by a run: reviewed as scores come in, not after every single one.

    Args:
        spec: the objective, not ``best``.
        book: the run's prices; fed by others.
        confidence: of the whole answer, in (0, 1).
        stops: whether the run is to stop once the answer is established.
    """

    def __init__(
        self, spec: ObjectiveSpec, book: PriceBook, confidence: float, *, stops: bool
    ) -> None:
        self.spec = spec
        self.book = book
        self.confidence = confidence
        self._stops = stops
        self._ruling = Ruling(None)
        self._next = 0  # number of told pairs from which it is worked out again
        self._seen = 0  # number of those that it rests on

    @property
    def is_reached(self) -> bool:
        """Whether the run may stop, since what was asked for is established."""
        return self._stops and self._ruling.established

    @property
    def worth(self) -> BoolArray | None:
        """(K,) candidates that it is worth asking; None means all."""
        return self._ruling.worth

    def ruling(self, selector: Selector) -> Ruling:
        """What is known now, worked out anew."""
        return rule(self.spec, selector, self.book.prices())

    def is_behind(self, selector: Selector) -> bool:
        """Whether something was told since the last review."""
        return self._seen < _told(selector)

    def review(self, selector: Selector, *, now: bool = False) -> tuple[int, ...]:
        """Look at what is told; return the candidates that are now shown to be too dear.

        Args:
            selector: all scores so far.
            now: look even if little was told since the last time.
        """
        n_told = _told(selector)
        worth = self._ruling.worth
        grown = worth is not None and len(worth) < selector.table.n_candidates
        if n_told < self._next and not grown and not now:
            return ()
        self._seen = n_told
        self._next = n_told + max(_FEWEST_NEW, n_told // _SHARE_NEW)
        self._ruling = self.ruling(selector)
        fresh = tuple(i for i in self._ruling.too_dear if not selector.barred[i])
        if fresh:
            self._next = n_told  # the next review is without them
        return fresh


def _told(selector: Selector) -> int:
    return selector.table.n_asked - int(selector.table.count(State.PENDING).sum())


def aim_of(
    spec: ObjectiveSpec, chosen: SelectorSpec, selector: Selector, events: Iterable[Event]
) -> Aim | None:
    """Take a run's objective up where its log ends; None for ``best``, which needs no prices."""
    if not spec.by_price:
        return None
    level = spec.level(chosen.level) if selector.exogenous else None
    book = PriceBook(level, selector.odds_of)
    for event in events:
        book.take(event)
    return Aim(spec, book, chosen.level, stops=chosen.stop_when_separated)
