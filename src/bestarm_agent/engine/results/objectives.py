"""Objectives with prices or limits: the answer so far, and which candidates still matter.

Statements about scores rest on the selector's joint intervals and margins, and hold at every time;
so do statements about limits. Elsewhere prices are told apart by their means.

A limit, or a price, is about the mean of a quantity that outcomes tell besides the score: the
price, the seconds or the output tokens of the answered call, or the score, of the study or by a
further scorer. A
candidate's mean is over all N examples, like that of its score: calls differ in length. Retries,
waits and judging belong to the study and not to the candidate, and a reply from the cache counts
with what the call that bought it cost and took.

The intervals of these means are those of scores, of value over bound: a quantity enters in
the order of asking, since slow or expensive calls often come back late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.config.goal_specs import (
    LENGTH,
    PRICE,
    SCORE,
    SECONDS,
    Constraint,
    Objective,
    ObjectiveSpec,
    SelectorSpec,
)
from bestarm_agent.config.study import LimitsSpec
from bestarm_agent.domain.spend import NANOS_PER_USD
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.new_examples import SURE
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Estimates, Guarantee
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.betting import MeanIntervals
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.history import Factors
from bestarm_agent.stats.new_examples import chance_of_at_least
from bestarm_agent.store.run_state import RunState

# A review works out all intervals. Made after every pair, the work would grow with the square of
# the number of pairs; made each time that this has grown by 2 %, it grows in proportion to it.
FEWEST_NEW, SHARE_NEW = 8, 50  # told pairs between reviews: at least 8, and 2 % of all
_CALLS = 1000  # whose price is told
# Unit of a quantity without an upper bound, since intervals are for values in [0, 1]. A power of
# two, so that dividing by it and multiplying with it again is exact. Values above it are cut to 1,
# which can only lower a mean: the lower end stays valid, and there is no upper end.
_LONG = 2.0**20


class Means(NamedTuple):
    """One quantity of K candidates."""

    mean: FloatArray  # (K,) of what was seen; NaN where nothing was
    lower: FloatArray  # (K,) lower ends of the intervals, jointly valid at all times
    upper: FloatArray  # (K,) upper ends; infinite where nothing bounds the quantity

    def of(self, row: int) -> Measure:
        """Return that of one candidate."""
        return Measure(*(float(values[row]) for values in self))


class MeanTracker:
    """Keeps the mean of one quantity of a run, up to what its state holds when it is looked at.

    Each value has a bound: of a price what the provider said when the candidate joined, of seconds
    the time-out of a call, of tokens ``max_tokens``, of a measure 1. Without one, or once a value
    was above it, a candidate's interval has no upper end. A reply that failed has no length and no
    measure; like a pair that could not be measured its value is unknown, and the
    interval allows any.

    Args:
        state: the run.
        name: the quantity, as limits name it: ``PRICE`` (dollars of 1,000 calls), ``SECONDS``,
            ``LENGTH``, ``SCORE``, or one of the study's further scorers.
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
        factors: of what past candidates scored; heeded for ``SCORE``.
    """

    def __init__(
        self, state: RunState, name: str, confidence: float | None, factors: Factors | None = None
    ) -> None:
        self._state = state
        self._factors = factors if name == SCORE else None
        self._name = name
        limits = LimitsSpec.model_validate(state.started.config.get("limits", {}))
        self._timeout = limits.timeout_seconds
        self._alpha = None if confidence is None else 1.0 - confidence
        self._join()

    def _join(self) -> None:
        """Begin anew with the candidates that are there: the intervals are joint over all."""
        bounds = list(map(self._bound, self._state.candidates, self._state.costs))
        self._bounds = np.array(bounds, dtype=np.float64)  # infinite where nothing is
        self._until = np.zeros(len(bounds), dtype=np.int64)  # asks before these are in
        self._intervals = MeanIntervals(len(bounds), len(self._state.example_ids), self._alpha)
        self._controls = None
        if self._factors is not None and self._alpha is not None:
            self._controls = Controls(self._factors)

    def means(self) -> Means:
        """Estimate the means from what was told so far."""
        state, k = self._state, len(self._state.candidates)
        if k > len(self._bounds):
            self._join()
        loose = np.isinf(self._bounds)
        units = np.where(loose, _LONG, self._bounds)
        rows, values = state.asks["candidate"], self._values(state.told)
        shares = np.zeros(len(values))
        np.divide(values, units[rows], out=shares, where=units[rows] > 0)
        # Of each candidate only asks before its earliest pending one are taken in. Outcomes come in
        # the order in which calls end, which depends on how long replies are, and so on the very
        # quantity: the first to come would be the short ones. In the order of asking, which knows
        # nothing of the values to come, the intervals hold at all times.
        until = np.full(k, state.n_asked)
        for seq in reversed(state.pending):
            until[rows[seq]] = seq
        seqs = np.arange(state.n_asked)
        fresh = np.flatnonzero((self._until[rows] <= seqs) & (seqs < until[rows]))
        self._until = until
        fresh = fresh[np.argsort(rows[fresh], kind="stable")]
        own, first = np.unique(rows[fresh], return_index=True)
        # an unknown value may be any: the interval takes in both ends
        known = np.minimum(shares[fresh], 1.0)
        ends = (np.split(np.nan_to_num(known, nan=end), first[1:]) for end in (0.0, 1.0))
        if self._controls is None:
            self._intervals.extend_all(zip(own.tolist(), *ends, strict=False))
        else:
            examples = np.split(state.asks["example"][fresh], first[1:])
            self._controls.extend(self._intervals, zip(own.tolist(), examples, *ends, strict=False))
        _, mean = state.means(values)
        # a value above its bound, by more than rounding, shows that the bound is none
        loose[rows[values > units[rows] * (1 + 1e-9)]] = True
        lower, upper = self._intervals.lower * units, self._intervals.upper * units
        return Means(mean, lower, np.where(loose, np.inf, upper))

    def guesses(self) -> FloatArray:
        """Return (K,) means; of unseen candidates their bounds, scaled as seen means are to theirs.

        Infinite where there is neither a value nor a bound.
        """
        mean, bounds = self.means().mean, self._bounds
        # bounds are of one kind for all (the price of the longest reply), so that a ratio of means
        # to bounds seen on some is the best guess for the others
        seen = ~np.isnan(mean) & np.isfinite(bounds)
        scale = mean[seen].sum() / (bounds[seen].sum() or 1.0) or 1.0
        return np.where(np.isnan(mean), scale * bounds, mean)

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

    def _values(self, told: NDArray[np.void]) -> FloatArray:
        """Return the quantity of some outcomes; NaN where it is not known."""
        is_scored = told["output"] >= 0
        if self._name == SCORE:
            return np.asarray(told["score"])
        if self._name == PRICE:
            return np.asarray(_CALLS * (told["price"] / NANOS_PER_USD))
        if self._name == SECONDS:
            return np.where(is_scored | (told["seconds"] > 0), told["seconds"], np.nan)
        if self._name == LENGTH:
            return np.where(is_scored, told["output"], np.nan)
        return np.asarray(told["measures"][:, self._state.started.measures.index(self._name)])


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
    spec: ObjectiveSpec, selector: Pairs, findings: Sequence[Finding], prices: FloatArray
) -> ObjectiveState:
    """Say what is known about an objective.

    Args:
        spec: the objective.
        selector: what is known of the scores.
        findings: what is known of each limit.
        prices: (K,) prices as far as they are known; of equally good ones the cheapest is named.
    """
    estimates = selector.answer.estimates()
    if not (estimates.n > 0).any():
        return ObjectiveState(None)
    if spec.at_least is not None:
        return _cheapest_at_least(findings[0], selector, prices, estimates)
    if spec.name is not Objective.CHEAPEST:
        return _best_within(selector, tuple(findings), estimates, prices)
    return _cheapest(spec, selector, prices, estimates)


def _best_within(
    selector: Pairs, findings: tuple[Finding, ...], estimates: Estimates, prices: FloatArray
) -> ObjectiveState:
    """Name the best that is not shown to break a limit, if possible one that seems to keep all.

    Of equal ones it is the cheapest: the rule's own order leaves equals to chance.
    """
    infeasible = {
        int(i): f"{finding.constraint.text} is not kept"
        for finding in reversed(findings)
        for i in np.flatnonzero(finding.broken)
    }
    possible = [i for i in selector.answer.ranking() if i not in infeasible and estimates.n[i] > 0]
    kept = [i for i in possible if all(finding.seems_kept[i] for finding in findings)]
    if not possible or selector.answer.barred.all():
        nobody = len(infeasible) == len(estimates.n)  # keeps the limits, which is an answer
        return ObjectiveState(None, established=nobody, infeasible=infeasible, findings=findings)
    first, means = (kept or possible)[0], estimates.mean
    level = [i for i in kept or possible if means[i] == means[first]]
    answer = _cheapest_of(np.isin(np.arange(len(means)), level), prices, means)
    pending = infeasible.keys() - {int(i) for i in np.flatnonzero(selector.answer.barred)}
    verdict = selector.answer.best()
    apart = verdict.separated and verdict.guarantee is not Guarantee.HEURISTIC and not pending
    worth = None
    if apart:  # what is left to show is that the best one keeps the limits
        worth = np.arange(len(estimates.n)) == verdict.best
    is_feasible = all(finding.kept[answer] for finding in findings)
    return ObjectiveState(
        answer=answer,
        established=apart and verdict.best == first and is_feasible,
        margin=None if verdict.guarantee is Guarantee.HEURISTIC else selector.answer.margin(answer),
        infeasible=infeasible,
        worth=worth,
        findings=findings,
    )


def _cheapest_at_least(
    finding: Finding, selector: Pairs, prices: FloatArray, estimates: Estimates
) -> ObjectiveState:
    """Name the cheapest that is shown to score enough; nobody, if none is.

    As long as none is, those are asked that cost no more than the cheapest that probably does: once
    it is shown to, a dearer one could not be named any more.
    """
    means, kept = estimates.mean, finding.kept & ~selector.answer.barred
    answer, worth = None, ~finding.broken & ~selector.answer.barred
    if kept.any():
        answer = _cheapest_of(kept, prices, means)
        worth &= prices < prices[answer]
    elif (likely := worth & (_chances(finding.constraint.limit, estimates) >= SURE)).any():
        worth &= prices <= prices[_cheapest_of(likely, prices, means)]
    why = f"{finding.constraint.text} is not kept"
    return ObjectiveState(
        answer=answer,
        established=not worth.any(),
        infeasible={int(i): why for i in np.flatnonzero(finding.broken)},
        worth=worth,
        findings=(finding,),
    )


def _chances(bar: float, estimates: Estimates) -> FloatArray:
    """(K,) probabilities that a candidate's mean score is at least ``bar``; 0 if not asked."""
    seen = zip(estimates.mean.tolist(), estimates.n.tolist(), strict=True)
    return np.array([chance_of_at_least(bar, mean, n) if n else 0.0 for mean, n in seen])


def _cheapest(
    spec: ObjectiveSpec, selector: Pairs, prices: FloatArray, estimates: Estimates
) -> ObjectiveState:
    # Two statements make an answer final. Either the cheapest of all that may still be within
    # epsilon is itself proved to be within it: then no cheaper one can be, and it is established.
    # Or the cheapest that probably is (``guess``) is proved to be within it: then it may be named,
    # and only cheaper ones are still worth asking, beside the leader, whom they are compared with.
    means = np.nan_to_num(estimates.mean, nan=-1.0)
    guess = _cheapest_of(_probably_within(spec.epsilon, selector, prices), prices, means)
    if estimates.guarantee is Guarantee.HEURISTIC:
        return ObjectiveState(guess)
    # the others are shown to be more than epsilon below some candidate, by the joint intervals
    possible: BoolArray = estimates.upper >= estimates.lower.max() - spec.epsilon
    first = _cheapest_of(possible, prices, means)
    margin = selector.answer.margin(first)
    if margin <= spec.epsilon:
        return ObjectiveState(first, established=True, margin=margin, worth=possible)
    margin = selector.answer.margin(guess)
    if margin <= spec.epsilon:  # it is good enough: left to see is who of the cheaper ones is too
        possible &= prices < prices[guess]
        possible[selector.answer.ranking()[0]] = True
    return ObjectiveState(guess, margin=margin, worth=possible)


def _probably_within(epsilon: float, selector: Pairs, prices: FloatArray) -> BoolArray:
    """(K,) mask of those that are at most ``epsilon`` behind the leading one, 9 in 10.

    On new examples, by what was seen on common ones. Only cheaper ones are looked at: of those in
    the mask the cheapest is named.
    """
    seen, leader = selector.table.n_scored > 0, selector.answer.ranking()[0]
    is_within: BoolArray = np.arange(len(seen)) == leader
    others = np.flatnonzero(seen & ~is_within)
    leads, cheaper = (
        selector.answer.on_new.leads_over(leader, others.tolist()),
        prices < prices[leader],
    )
    is_within[others] = (leads.most(SURE) <= epsilon) & cheaper[others]
    return is_within


def _cheapest_of(mask: BoolArray, prices: FloatArray, means: FloatArray) -> int:
    """Return the cheapest candidate of a mask; of equally cheap ones the best."""
    rows = np.flatnonzero(mask)
    order = np.lexsort((-means[rows], prices[rows]))  # by its last key first
    return int(rows[order[0]])


class ObjectiveTracker:
    """An objective pursued by a run: reviewed as scores come in, not after every single one.

    Args:
        spec: the objective.
        confidence: of the whole statement, in (0, 1).
        state: the run.
        pairs: what was asked and told, fed the same log.
        stops: whether the run ends once the answer is established.
    """

    def __init__(
        self, spec: ObjectiveSpec, confidence: float, state: RunState, pairs: Pairs, *, stops: bool
    ) -> None:
        self.spec = spec
        self.confidence = confidence
        of_each = spec.confidence_of_each(confidence) if pairs.rule.exogenous else None
        # Intervals of prices and lengths hold where examples are chosen without regard to scores.
        # For any other rule none are stated, which also saves working them out.
        names = {limit.name for limit in spec.constraints} | ({PRICE} if spec.by_price else set())
        factors = pairs.answer.factors
        self._means = {name: MeanTracker(state, name, of_each, factors) for name in names}
        self._run, self._pairs = state, pairs
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

    def prices(self) -> Means | None:
        """Return the prices of 1,000 calls so far; None if the objective does not need them."""
        return self._means[PRICE].means() if PRICE in self._means else None

    def state(self) -> ObjectiveState:
        """Work out what is known now."""
        findings = [Finding(c, self._means[c.name].means()) for c in self.spec.constraints]
        prices = self._run.means(self._run.told["price"])[1]
        if PRICE in self._means:
            prices = self._means[PRICE].guesses()
        return rule(self.spec, self._pairs, findings, prices)

    def is_behind(self) -> bool:
        """Return whether something was told since the last review."""
        return self._seen < self._run.n_told

    def review(self, *, now: bool = False) -> Mapping[int, str]:
        """Look at what is told; return who is now shown to break a limit, with the reason."""
        n_told, worth = self._run.n_told, self._state.worth
        grown = worth is not None and len(worth) < self._pairs.table.n_candidates
        if n_told < self._next and not grown and not now:
            return {}
        self._seen = n_told
        self._next = n_told + max(FEWEST_NEW, n_told // SHARE_NEW)
        self._state = self.state()
        barred = self._pairs.answer.barred
        fresh = {i: why for i, why in self._state.infeasible.items() if not barred[i]}
        if fresh:
            self._next = n_told  # the next review is without them
        return fresh


def track_objective(state: RunState, pairs: Pairs) -> ObjectiveTracker | None:
    """Return the objective that a run's configuration records; None if it is simply the best."""
    spec = ObjectiveSpec.model_validate(state.started.config.get("objective", {}))
    if spec.is_plain or not pairs.rule.seeks_best:
        return None
    chosen = SelectorSpec.model_validate(state.started.config.get("selector", {}))
    return ObjectiveTracker(spec, chosen.level, state, pairs, stops=chosen.stop_when_separated)
