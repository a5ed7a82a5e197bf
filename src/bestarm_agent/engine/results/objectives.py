"""Objectives with prices or limits: the answer so far, and which candidates still matter.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time;
so do statements about limits. Elsewhere prices are told apart by their means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.config.study.objective import PRICE, Constraint, Objective, ObjectiveSpec
from bestarm_agent.config.study.run_options import LimitsSpec, SelectorSpec
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event
from bestarm_agent.engine.results.means import Means, MeanTracker
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import BoolArray, Estimates, FloatArray, Guarantee, State

_FEWEST_NEW, _SHARE_NEW = 8, 50  # told pairs between reviews: at least 8, and 2 % of all


@dataclass(frozen=True, slots=True)
class Finding:
    """The evidence on one limit for K candidates."""

    constraint: Constraint
    means: Means

    @property
    def kept(self) -> BoolArray:
        """(K,) candidates that are shown to keep it."""
        return self._keeps(self.means.upper, self.means.lower)

    @property
    def seems_kept(self) -> BoolArray:
        """(K,) candidates whose mean so far keeps it."""
        return self._keeps(self.means.mean, self.means.mean)

    @property
    def broken(self) -> BoolArray:
        """(K,) candidates that are shown to break it."""
        return ~self._keeps(self.means.lower, self.means.upper)

    def _keeps(self, most: FloatArray, least: FloatArray) -> BoolArray:
        limit = self.constraint.limit
        return np.asarray(most <= limit if self.constraint.at_most else least >= limit)


@dataclass(frozen=True, slots=True)
class ObjectiveState:
    """An objective's answer at one moment."""

    answer: int | None  # the candidate named, or None before any score is seen
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
    selector: Pairs,
    findings: Sequence[Finding],
    prices: FloatArray | None = None,
) -> ObjectiveState:
    """Say what is known about an objective.

    Args:
        spec: the objective.
        selector: what is known of the scores.
        findings: what is known of each limit.
        prices: (K,) prices as far as they are known, for ``cheapest-within-epsilon``.
    """
    estimates = selector.estimates()
    if not (estimates.n > 0).any():
        return ObjectiveState(None)
    if spec.name is not Objective.CHEAPEST:
        return _best_within(selector, tuple(findings), estimates)
    if prices is None:
        raise ValueError(f"objective {spec.name} needs prices")
    return _cheapest(spec, selector, prices, estimates)


def _best_within(
    selector: Pairs, findings: tuple[Finding, ...], estimates: Estimates
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
        established=apart and answer == verdict.best and is_feasible,
        margin=None if verdict.guarantee is Guarantee.HEURISTIC else selector.margin(answer),
        infeasible=infeasible,
        worth=worth,
        findings=findings,
    )


def _cheapest(
    spec: ObjectiveSpec, selector: Pairs, prices: FloatArray, estimates: Estimates
) -> ObjectiveState:
    means = np.nan_to_num(estimates.mean, nan=-1.0)
    guess = _cheapest_of(means >= means.max() - spec.epsilon, prices, means)
    if estimates.guarantee is Guarantee.HEURISTIC:
        return ObjectiveState(guess)
    # the others are shown to be more than epsilon below some candidate, by the joint intervals
    left: BoolArray = estimates.upper >= estimates.lower.max() - spec.epsilon
    first = _cheapest_of(left, prices, means)
    margin = selector.margin(first)
    if margin <= spec.epsilon:
        return ObjectiveState(first, established=True, margin=margin, worth=left)
    margin = selector.margin(guess)
    if margin <= spec.epsilon:  # it is good enough: left to see is who of the cheaper ones is too
        left &= prices < prices[guess]
        left[selector.ranking()[0]] = True
    return ObjectiveState(guess, margin=margin, worth=left)


def _cheapest_of(mask: BoolArray, prices: FloatArray, means: FloatArray) -> int:
    """Return the cheapest candidate of a mask; of equally cheap ones the best."""
    rows = np.flatnonzero(mask)
    order = np.lexsort((-means[rows], prices[rows]))
    return int(rows[order[0]])


class ObjectiveTracker:
    """An objective pursued by a run: reviewed as scores come in, not after every single one.

    ``trackers`` keep what its limits are about, by name, and the prices that it depends on.
    """

    def __init__(
        self,
        spec: ObjectiveSpec,
        confidence: float,
        trackers: Mapping[str, MeanTracker],
        *,
        stops: bool,
    ) -> None:
        self.spec = spec
        self.confidence = confidence
        self._trackers = trackers
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
        for tracker in self._trackers.values():
            tracker.take(event)

    def prices(self) -> Means | None:
        """Return the prices of 1,000 calls so far; None if the objective does not need them."""
        return self._trackers[PRICE].means() if PRICE in self._trackers else None

    def state(self, selector: Pairs) -> ObjectiveState:
        """Work out what is known now."""
        findings = [Finding(one, self._trackers[one.name].means()) for one in self.spec.constraints]
        cheapest = self.spec.name is Objective.CHEAPEST
        prices = self._trackers[PRICE].guesses() if cheapest else None
        return rule(self.spec, selector, findings, prices)

    def is_behind(self, selector: Pairs) -> bool:
        """Return whether something was told since the last review."""
        return self._seen < _told(selector)

    def review(self, selector: Pairs, *, now: bool = False) -> Mapping[int, str]:
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


def _told(selector: Pairs) -> int:
    return selector.table.n_asked - int(selector.table.count(State.PENDING).sum())


def track_objective(config: Json, selector: Pairs) -> ObjectiveTracker | None:
    """Return the objective of a run with a recorded configuration, fed with no event yet.

    None if it is simply the best.
    """
    sections = config if isinstance(config, Mapping) else {}
    spec = ObjectiveSpec.model_validate(sections.get("objective", {}))
    if spec.is_plain or not selector.rule.seeks_best:
        return None
    chosen = SelectorSpec.model_validate(sections.get("selector", {}))
    limits = LimitsSpec.model_validate(sections.get("limits", {}))
    measures = sections.get("measures")
    names = {one.name for one in spec.constraints} | ({PRICE} if spec.by_price else set())
    trackers = {
        name: MeanTracker(
            name,
            spec.level(chosen.level) if selector.rule.exogenous else None,
            selector.rule.odds_of,
            measures=sorted(measures) if isinstance(measures, Mapping) else (),
            timeout=limits.timeout_seconds,
        )
        for name in names
    }
    return ObjectiveTracker(spec, chosen.level, trackers, stops=chosen.stop_when_separated)
