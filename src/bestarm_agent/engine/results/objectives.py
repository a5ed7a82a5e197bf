"""Objectives with prices or limits: the answer so far, and which candidates still matter.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time;
so do statements about limits. Elsewhere prices are told apart by their means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.config.study.objective import Objective, ObjectiveSpec
from bestarm_agent.config.study.run_options import SelectorSpec
from bestarm_agent.domain.events import Event
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.call_prices import Prices, PriceTracker
from bestarm_agent.engine.results.constraint_trackers import (
    ConstraintTracker,
    Finding,
    price_finding,
)
from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Estimates, FloatArray, Guarantee, State

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
    # candidates shown to break a limit, with the reason
    infeasible: Mapping[int, str] = field(default_factory=dict)
    worth: BoolArray | None = None  # (K,) candidates that it is worth asking; None means all
    findings: tuple[Finding, ...] = ()  # what is known of each limit


def rule(
    spec: ObjectiveSpec,
    selector: PairSource,
    prices: Prices | None,
    limits: Sequence[Finding] = (),
) -> ObjectiveState:
    """Say what is known about an objective.

    Args:
        spec: the objective.
        selector: what is known of the scores.
        prices: needed where the objective depends on them.
        limits: what is known of the limits, but for that of the price.
    """
    estimates = selector.estimates()
    if not (estimates.n > 0).any():
        return ObjectiveState(None)
    if spec.name in (Objective.BEST, Objective.BEST_UNDER_USD):
        return _best_within(selector, _in_order(spec, prices, limits), estimates)
    if prices is None:
        raise ValueError(f"objective {spec.name} needs prices")
    if spec.name is Objective.CHEAPEST:
        return _cheapest(spec, selector, prices, estimates)
    return _pareto(prices, estimates)


def _in_order(
    spec: ObjectiveSpec, prices: Prices | None, limits: Sequence[Finding]
) -> tuple[Finding, ...]:
    """Return what is known of each of the spec's constraints."""
    by_name = {one.constraint.name: one for one in limits}
    for constraint in spec.constraints:
        if constraint.of == "price" and prices is not None:
            by_name[constraint.name] = price_finding(constraint, prices)
    return tuple(by_name[constraint.name] for constraint in spec.constraints)


def _best_within(
    selector: PairSource, findings: tuple[Finding, ...], estimates: Estimates
) -> ObjectiveState:
    """Name the best that is not shown to break a limit, if possible one that seems to keep all."""
    infeasible = {
        int(i): f"{one.constraint.text} is not kept"
        for one in reversed(findings)
        for i in np.flatnonzero(one.broken)
    }
    left = [i for i in selector.ranking() if i not in infeasible and estimates.n[i] > 0]
    kept = [i for i in left if all(one.seems_kept[i] for one in findings)]
    if not left:
        nobody = len(infeasible) == len(estimates.n)  # keeps the limits, which is an answer
        return ObjectiveState(None, established=nobody, infeasible=infeasible, findings=findings)
    answer = (kept or left)[0]
    pending = infeasible.keys() - {int(i) for i in np.flatnonzero(selector.barred)}
    verdict = selector.best()
    apart = verdict.separated and verdict.guarantee is not Guarantee.HEURISTIC and not pending
    worth = None
    if apart:  # what is left to show is that the best one keeps the limits
        worth = np.arange(len(estimates.n)) == verdict.best
    is_feasible = all(one.kept[answer] for one in findings)
    return ObjectiveState(
        answer=answer,
        chosen=(answer,),
        established=apart and answer == verdict.best and is_feasible,
        margin=None if verdict.guarantee is Guarantee.HEURISTIC else selector.margin(answer),
        infeasible=infeasible,
        worth=worth,
        findings=findings,
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
    """An objective pursued by a run: reviewed as scores come in, not after every single one.

    ``prices`` are kept where the objective depends on them, ``limits`` for all other constraints.
    """

    def __init__(
        self,
        spec: ObjectiveSpec,
        confidence: float,
        *,
        stops: bool,
        prices: PriceTracker | None,
        limits: Sequence[ConstraintTracker] = (),
    ) -> None:
        self.spec = spec
        self.confidence = confidence
        self.price_tracker = prices
        self._limits = tuple(limits)
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

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        for tracker in (
            *self._limits,
            *((self.price_tracker,) if self.price_tracker is not None else ()),
        ):
            tracker.take(event)

    def state(self, selector: PairSource) -> ObjectiveState:
        """Work out what is known now."""
        prices = None if self.price_tracker is None else self.price_tracker.prices()
        return rule(self.spec, selector, prices, [tracker.finding() for tracker in self._limits])

    def is_behind(self, selector: PairSource) -> bool:
        """Return whether something was told since the last review."""
        return self._seen < _told(selector)

    def review(self, selector: PairSource, *, now: bool = False) -> Mapping[int, str]:
        """Look at what is told; return who is now shown to break a limit, with the reason."""
        n_told = _told(selector)
        worth = self._state.worth
        grown = worth is not None and len(worth) < selector.table.n_candidates
        if n_told < self._next and not grown and not now:
            return {}
        self._seen = n_told
        self._next = n_told + max(_FEWEST_NEW, n_told // _SHARE_NEW)
        self._state = self.state(selector)
        barred = selector.barred
        fresh = {i: why for i, why in self._state.infeasible.items() if not barred[i]}
        if fresh:
            self._next = n_told  # the next review is without them
        return fresh


def _told(selector: PairSource) -> int:
    return selector.table.n_asked - int(selector.table.count(State.PENDING).sum())


def track_objective(
    spec: ObjectiveSpec,
    chosen: SelectorSpec,
    measures: Sequence[str],
    selector: PairSource,
) -> ObjectiveTracker | None:
    """Return the objective of a run, fed with no event yet; None if it is simply the best.

    ``measures`` are the names of the study's, in their order.
    """
    if spec.is_plain or not isinstance(selector, Selector | RulePairs):
        return None
    level = spec.level(chosen.level) if selector.exogenous else None
    held = len(selector.held) if isinstance(selector, RulePairs) else 0
    return ObjectiveTracker(
        spec,
        chosen.level,
        stops=chosen.stop_when_separated,
        prices=PriceTracker(level, selector.odds_of, held) if spec.by_price else None,
        limits=[
            ConstraintTracker(one, measures, level, selector.odds_of, held)
            for one in spec.constraints
            if one.of != "price"
        ],
    )
