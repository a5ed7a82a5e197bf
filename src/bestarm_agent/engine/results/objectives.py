"""Objectives with prices or limits: the answer so far, and which candidates still matter.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time;
so do statements about limits. Elsewhere prices are told apart by their means.

A limit, or a price, is about the mean of a quantity that outcomes tell besides the score: the
price, the seconds or the output tokens of the answered call, or the score by a further scorer. A
candidate's mean is over all N examples, like that of its score: calls differ in length. Retries,
waits and judging belong to the study and not to the candidate, and a reply from the cache counts
with what the call that bought it cost and took.

The intervals of these means are those of scores (``RowIntervals``), of value over bound: a quantity
enters in the order of asking, since slow or expensive calls often come back late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.config.study import (
    LENGTH,
    PRICE,
    SECONDS,
    Constraint,
    LimitsSpec,
    Objective,
    ObjectiveSpec,
    SelectorSpec,
)
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import usd
from bestarm_agent.selectors.answer import RowIntervals
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import expected_costs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Estimates,
    FloatArray,
    Guarantee,
    Pair,
    State,
    Tell,
)
from bestarm_agent.stats.agreement import Measure

_FEWEST_NEW, _SHARE_NEW = 8, 50  # told pairs between reviews: at least 8, and 2 % of all
_CALLS = 1000  # whose price is told
_LONG = 2**20  # tokens of a reply without a limit, which its mean is counted by


@dataclass(frozen=True, slots=True)
class Means:
    """One quantity of K candidates."""

    mean: FloatArray  # (K,) of what was seen; NaN where nothing was
    lower: FloatArray  # (K,) lower ends of the intervals, jointly valid at all times
    upper: FloatArray  # (K,) upper ends; infinite where nothing bounds the quantity

    def of(self, row: int) -> Measure:
        """Return that of one candidate."""
        return Measure(float(self.mean[row]), float(self.lower[row]), float(self.upper[row]))


class MeanTracker:
    """Keeps the mean of one quantity of a run, fed with its events.

    Each value has a bound: of a price what the provider said when the candidate joined, of seconds
    the time-out of a call, of tokens ``max_tokens``, of a measure 1. Without one, or once a value
    was above it, a candidate's interval has no upper end. A reply that failed has no length and no
    measure; like a pair that could not be measured it is counted as either.

    Args:
        name: the quantity, as limits name it: ``PRICE`` (dollars of 1,000 calls), ``SECONDS``,
            ``LENGTH``, or one of the ``measures``.
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
        measures: names of the study's further scorers, in their order.
        timeout: seconds that a call may take.
    """

    def __init__(
        self,
        name: str,
        confidence: float | None,
        *,
        measures: Sequence[str] = (),
        timeout: float = float("inf"),
    ) -> None:
        self._name = name
        self._index = list(measures).index(name) if name in measures else None
        self._timeout = timeout
        self._alpha = None if confidence is None else 1.0 - confidence
        self._table = ScoreTable(0, 0)  # the score of a pair is its value over the bound
        self._bounds = np.empty(0)  # by row
        self._loose = np.empty(0, dtype=np.bool_)  # by row: values may be above the bound
        self._number_of: dict[int, int] = {}  # in the table, by number of a pending ask
        self._intervals: RowIntervals | None = None

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked():
                self._asked(event)
            case Told() if event.seq in self._number_of:
                self._told(self._number_of.pop(event.seq), self._value(event.outcome))
            case CandidatesAdded(candidates=joined):
                costs = event.costs or [None] * len(joined)
                bounds = np.array(list(map(self._bound, joined, costs)))
                loose = ~np.isfinite(bounds)
                bounds[loose] = _LONG if self._name == LENGTH else 0.0
                self._bounds = np.append(self._bounds, bounds)
                self._loose = np.append(self._loose, loose)
                self._table.add_candidates(len(joined))
                self._intervals = None
            case ExamplesAdded():
                self._table.add_examples(len(event.ids))
                self._intervals = None

    def means(self) -> Means:
        """Estimate the means from what was told so far."""
        table = self._table
        mean = np.full(table.n_candidates, np.nan)
        np.divide(table.spent, table.n_scored, out=mean, where=table.n_scored > 0)
        if self._intervals is None:
            self._intervals = RowIntervals(table, self._alpha)
        lower, upper = (end * self._bounds for end in self._intervals.bounds())
        upper[self._loose] = np.inf
        return Means(mean, lower, upper)

    def guesses(self) -> FloatArray:
        """(K,) means; of the unseen what their bounds say, by what those of the others said.

        Infinite where nothing is known.
        """
        mean, unseen = self.means().mean, np.where(self._loose, np.inf, self._bounds)
        if not self._loose.any() and (unseen > 0).any():
            unseen = expected_costs(np.maximum(unseen, unseen.max() * 1e-9), self._table)
        return np.where(np.isnan(mean), unseen, mean)

    def _bound(self, candidate: Candidate, cost: float | None) -> float:
        """Return the most that a value of a candidate can be; infinite if nothing bounds it."""
        if self._name == PRICE:
            return np.inf if cost is None else _CALLS * cost
        if self._name == SECONDS:
            return self._timeout
        if self._name == LENGTH:
            most = candidate.params.get("max_tokens")
            return most if isinstance(most, int) and most > 0 else np.inf
        return 1.0

    def _asked(self, asked: Asked) -> None:
        seq = self._number_of[asked.seq] = self._table.n_asked
        self._table.ask(Ask(seq, Pair(asked.candidate, asked.example), asked.reason))

    def _told(self, seq: int, value: float | None) -> None:
        if value is None:
            self._table.tell(Tell(seq, State.VOID))
            return
        row = int(self._table.candidate[seq])
        bound = float(self._bounds[row])
        self._loose[row] |= value > bound * (1 + 1e-9)
        share = min(1.0, value / bound) if bound else 0.0
        self._table.tell(Tell(seq, State.DONE, share, value))

    def _value(self, outcome: Outcome) -> float | None:
        """Return the quantity; None where it is not known."""
        if self._name == PRICE:
            return None if outcome.usd_nanos is None else _CALLS * usd(outcome.usd_nanos)
        if self._name == SECONDS:
            return outcome.seconds or (0.0 if isinstance(outcome, Scored) else None)
        if not isinstance(outcome, Scored):
            return None
        if self._name == LENGTH:
            return float(outcome.usage.output)
        if self._index is None or self._index >= len(outcome.measures):
            return None
        return outcome.measures[self._index]


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
    names = {one.name for one in spec.constraints} | ({PRICE} if spec.by_price else set())
    trackers = {
        name: MeanTracker(
            name,
            spec.level(chosen.level) if selector.rule.exogenous else None,
            measures=measure_names(config),
            timeout=limits.timeout_seconds,
        )
        for name in names
    }
    return ObjectiveTracker(spec, chosen.level, trackers, stops=chosen.stop_when_separated)


def measure_names(config: Json) -> Sequence[str]:
    """Return the names of a recorded study's further scorers, in the order of their scores."""
    found = config.get("measures") if isinstance(config, Mapping) else None
    return sorted(found) if isinstance(found, Mapping) else []
