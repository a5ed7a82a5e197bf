"""The standing of a run, as the display, the report and the Python API show it.

It is worked out from the run's log and from the source of pairs that was fed the same log.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import merge
from typing import Any

import numpy as np

from bestarm_agent.config.study import Constraint, Objective, ObjectiveSpec
from bestarm_agent.domain.spend import Budget, Spend, usd
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.results.new_examples import NewExamples, new_examples
from bestarm_agent.engine.results.notebook import html_table
from bestarm_agent.engine.results.objectives import Finding, ObjectiveTracker, measure_names
from bestarm_agent.engine.results.slices import SliceMeans, slice_means
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Guarantee, IntArray, State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.store.run_state import CandidateTotals, RunState


class Status(StrEnum):
    """The state of a candidate, in the words that people read everywhere."""

    BEST = "best"  # shown to be the best, or as good as any, under the guarantee
    LEADING = "best so far"  # the highest estimate; others may be better
    OPEN = "open"  # not ruled out: it may still be the best
    BEATEN = "beaten"  # shown to be worse, under the guarantee
    BROKEN = "cannot be called"
    BARRED = "breaks a limit"  # shown to break a limit of the objective, such as its price


class LimitState(StrEnum):
    """State of a candidate at a limit."""

    KEPT = "kept"  # shown, under the guarantee
    BROKEN = "broken"  # shown
    OPEN = "open"  # neither is shown yet


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The winner on the examples kept back, which had no say in the choice."""

    label: str
    n: int  # scores
    void: int  # pairs that could not be measured
    mean: Measure  # for new examples of the same kind
    held_back: int  # examples
    confidence: float  # of this, and of what was stated of earlier winners, together

    @property
    def is_complete(self) -> bool:
        """Return whether every example kept back was asked and answered."""
        return self.n + self.void == self.held_back


@dataclass(frozen=True, slots=True)
class RowLimit:
    """A limit of the objective, and a candidate's mean."""

    constraint: Constraint
    mean: Measure  # by what was seen
    state: LimitState


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """A candidate's mean by one of the study's further scorers; no interval is stated for it."""

    name: str
    n: int  # replies that it could score
    mean: float | None  # in [0, 1]; None where there is none


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from sending a request to its complete answer, without waits of our own.

    Only the attempt that was answered counts. A reply from the cache counts with the seconds of
    the call that bought it. Percentiles are measured times (nearest rank).
    """

    n: int  # calls, > 0
    p50: float
    p95: float
    longest: float


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate."""

    index: int  # its row number in the log
    candidate: Candidate
    status: Status
    n: int  # scores seen
    total: float  # sum of the scores seen; the number of right answers where scores are 0 or 1
    pending: int  # pairs in flight
    void: int  # pairs that could not be measured
    failed: int  # pairs on which the candidate itself failed
    estimate: float | None  # of its mean over all examples; None without a score
    lower: float  # lower end of its interval
    upper: float  # upper end
    spend: Spend  # its cost, judging and lost attempts included
    seconds: float  # mean seconds of an answered call, 0 if there was none
    problem: str | None  # why it is broken or barred
    latency: Latency | None = None  # of its answered calls; None without a timed one
    price: Measure | None = None  # dollars of 1,000 calls, where the objective depends on it
    limits: tuple[RowLimit, ...] = ()  # of the objective
    price_source: str | None = None  # where its price comes from, for people
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars
    # mean of its pairs if every void one had scored 0, and 1; None without pairs
    void_bounds: tuple[float, float] | None = None
    output_tokens: float | None = None  # mean of a scored reply; None where no token was counted
    measures: tuple[RowMeasure, ...] = ()  # by name

    def flat(self) -> dict[str, Any]:
        """Return the fields that fit into a table."""
        candidate = self.candidate
        return {
            "candidate": candidate.label,
            "model": f"{candidate.provider}/{candidate.model}",
            "prompt": candidate.prompt.name,
            "params": dict(candidate.params),
            "state": self.status.value,
            "n": self.n,
            "right": self.total,
            "estimate": self.estimate,
            "lower": self.lower,
            "upper": self.upper,
            "void": self.void,
            "failed": self.failed,
            "usd": usd(self.spend.usd_nanos) if self.priced else None,
            "tokens": self.spend.tokens,
            "output_tokens_mean": self.output_tokens,
            **{one.name: one.mean for one in self.measures},
            "p50_seconds": None if self.latency is None else self.latency.p50,
            "p95_seconds": None if self.latency is None else self.latency.p95,
        }

    def could_overtake(self, leader: Row) -> bool:
        """Return whether other outcomes of void pairs could put this candidate's mean ahead."""
        if self.void_bounds is None or leader.void_bounds is None:
            return False
        return bool(self.void or leader.void) and self.void_bounds[1] > leader.void_bounds[0]


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """The answer to an objective with prices or limits."""

    spec: ObjectiveSpec
    answer: Row | None  # the candidate named; None before any score is seen, or if none fits
    established: bool  # whether that is shown at ``confidence``
    margin: float | None  # at most this much below the highest mean, in [0, 1]; None if not said
    confidence: float  # of the whole statement, in (0, 1)


@dataclass(frozen=True, slots=True)
class CostLine:
    """One thing that money went into."""

    what: str  # for people
    spend: Spend  # what it cost; pairs are counted where candidates were called
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars


@dataclass(frozen=True, slots=True)
class Standing:
    """All candidates, best first, and the state of the run.

    Attributes:
        margin: at ``confidence`` the leading one's mean is at most this much below the highest, in
            [0, 1]; 0 if it is the best, None where nothing is guaranteed.
        level: whether the run may end as those that are open are nearer to the leading one than the
            examples can tell apart.
        new_examples: what holds for examples drawn like these; None before a score, where examples
            do not come in one random order, and where the rule has another aim.
    """

    name: str
    run_id: str
    rows: tuple[Row, ...]
    separated: bool  # whether the leading one beats all others at ``confidence``
    margin: float | None
    confidence: float  # joint level of the intervals, in (0, 1)
    guarantee: Guarantee  # what the intervals rest on
    selector: str  # name of the selection rule
    n_examples: int  # that the choice rests on; those kept back are not among them
    asked: int  # pairs asked
    told: int  # pairs with an outcome
    in_flight: int  # pairs under way
    waits: tuple[Wait, ...]  # why calls wait
    spent: Spend
    budget: Budget
    seconds: float  # wall-clock seconds of all sessions
    end: str | None  # why the last session ended; None while it runs
    latest_failure: str = ""  # the message of the latest failed or void pair
    graded: bool = False  # whether some scores lie between 0 and 1
    level: bool = False
    new_examples: NewExamples | None = None
    for_new: bool = False  # whether the best on new examples is asked for
    within: float = 0.0  # how far below the highest mean is good enough, in [0, 1)
    objective: ObjectiveResult | None = None  # None if that is simply the best
    costs: tuple[CostLine, ...] = ()  # where ``spent`` went
    confirmation: Confirmation | None = None  # None until the winner answered what was kept back
    slices: tuple[SliceMeans, ...] = ()  # filled while no pair is in flight

    def __repr__(self) -> str:
        return f"<Standing of {self._summary}>"

    def _repr_html_(self) -> str:
        """Show the ranking in a notebook."""
        return html_table(self._summary, ("candidate", "scores", "estimate", "interval", "state"), (
            (
                row.candidate.label,
                f"{row.total:.4g} of {row.n:,}",
                "" if row.estimate is None else f"{row.estimate:.3f}",
                f"[{row.lower:.3f}, {row.upper:.3f}]",
                row.status.value,
            )
            for row in self.rows
        ))  # fmt: skip

    @property
    def _summary(self) -> str:
        counts = f"{self.asked:,} of {self.grid:,} pairs"
        if self.best is None:
            return f"run {self.run_id}: no score yet; {counts}"
        word = Status.BEST if self.established else Status.LEADING
        return f"run {self.run_id}: {word} {self.best.candidate.label!r}; {counts}"

    @property
    def established(self) -> bool:
        """Return whether what was asked for is shown at the stated confidence."""
        if self.objective is not None:
            return self.objective.established
        if self.for_new:
            return self.new_examples is not None and self.new_examples.shown
        return self.separated or (self.margin is not None and self.margin <= self.within)

    @property
    def is_best(self) -> bool:
        """Return whether no other candidate is better, at the stated confidence."""
        return self.separated or self.margin == 0

    @property
    def priced(self) -> bool:
        """Return whether the price of every candidate is known."""
        return all(row.priced for row in self.rows)

    @property
    def unseen(self) -> int:
        """Number of candidates without a score.

        A rule that knows their axes may have an estimate of them.
        """
        return sum(not row.n for row in self.rows)

    @property
    def rivals_by_voids(self) -> tuple[Row, ...]:
        """The candidates that could win if void pairs had been measured."""
        winner = self.winner
        if winner is None or (self.established and self.guarantee is not Guarantee.HEURISTIC):
            return ()
        others = (row for row in self.rows if row.index != winner.index)
        return tuple(
            row for row in others if row.status is not Status.BARRED and row.could_overtake(winner)
        )

    @property
    def is_provisional(self) -> bool:
        """Return whether missing scores, or missing rivals, leave the winner open."""
        return len(self.rows) == 1 or self.unseen > 0 or bool(self.rivals_by_voids)

    @property
    def winner(self) -> Row | None:
        """The candidate that answers the objective; None before any score is seen."""
        return self.best if self.objective is None else self.objective.answer

    @property
    def grid(self) -> int:
        """Number of pairs in the full K x N grid."""
        return len(self.rows) * self.n_examples

    @property
    def share(self) -> float:
        """Share of the full grid that was asked, in [0, 1]."""
        return self.asked / self.grid if self.grid else 0.0

    @property
    def best(self) -> Row | None:
        """The candidate with the highest estimate; None before any score is seen."""
        return self.rows[0] if self.rows and self.rows[0].estimate is not None else None

    @property
    def runner_up(self) -> Row | None:
        """The candidate with the second highest estimate, if it has one."""
        return self.rows[1] if len(self.rows) > 1 and self.rows[1].estimate is not None else None

    @property
    def rivals(self) -> tuple[Row, ...]:
        """The other candidates that are not ruled out."""
        return tuple(row for row in self.rows[1:] if row.status is not Status.BEATEN)


_NOT_BEST = (Status.BEATEN, Status.BARRED)


def build_standing(
    state: RunState,
    pairs: Pairs,
    *,
    run_id: str,
    budget: Budget,
    spent: Spend,
    seconds: float,
    broken: Mapping[str, str],
    in_flight: int = 0,
    waits: tuple[Wait, ...] = (),
    objective: ObjectiveTracker | None = None,
) -> Standing:
    """Build the standing of a run.

    Args:
        state: what the log amounts to.
        pairs: the source of pairs, fed the same log.
        run_id: the run's id.
        budget: the caps.
        spent: the cost so far, of pairs under way as well.
        seconds: wall-clock seconds of all sessions.
        broken: labels of the candidates that cannot be called any more, with the reason.
        in_flight: pairs under way.
        waits: why calls wait.
        objective: the objective, fed the same log; None if it is simply the best.
    """
    estimates = pairs.estimates()
    verdict = pairs.best() if state.candidates else None
    order: list[int] = []
    if verdict is not None:
        order = [verdict.best, *(i for i in pairs.ranking() if i != verdict.best)]
    statuses = _statuses(state, order, () if verdict is None else verdict.tied, estimates.n, broken)
    seen = bool(order) and estimates.n[order[0]] > 0
    separated = seen and all(statuses[i] in _NOT_BEST for i in order[1:])
    margin = None
    if order and estimates.guarantee is not Guarantee.HEURISTIC:
        # before a score, one that has no rival is not shown to be good for anything either
        margin = pairs.margin() if seen else 1.0
    is_best = margin is not None and (separated or margin == 0)
    if is_best and statuses[order[0]] is Status.LEADING:
        statuses[order[0]] = Status.BEST
    ruling = None if objective is None else objective.state()
    findings = () if ruling is None else ruling.findings
    rows = _rows(state, pairs, statuses, broken, objective, findings)
    result = None
    if objective is not None and ruling is not None and rows:
        result = ObjectiveResult(
            spec=objective.spec,
            answer=None if ruling.answer is None else rows[order.index(ruling.answer)],
            established=ruling.established,
            margin=ruling.margin,
            confidence=objective.confidence,
        )
    standing = Standing(
        name=state.name,
        run_id=run_id,
        rows=rows,
        separated=separated,
        margin=margin,
        within=pairs.problem.within or 0.0,
        level=pairs.answer.is_level,
        for_new=pairs.problem.for_new,
        confidence=estimates.confidence,
        guarantee=estimates.guarantee,
        selector=pairs.name,
        n_examples=pairs.table.n_examples,
        asked=pairs.table.n_asked,
        told=state.n_told,
        in_flight=in_flight,
        waits=waits,
        spent=spent,
        budget=budget,
        seconds=seconds,
        graded=bool(np.any((pairs.table.score > 0) & (pairs.table.score < 1))),
        end=state.end,
        latest_failure=_latest_failure(state),
        objective=result,
        costs=cost_breakdown(state, spent),
        slices=() if in_flight else slice_means(state, pairs, order, estimates.confidence),
    )
    return replace(standing, new_examples=_on_new(standing, pairs, order))


def _on_new(standing: Standing, pairs: Pairs, order: Sequence[int]) -> NewExamples | None:
    winner = standing.winner
    if winner is None or winner.estimate is None or not winner.n:
        return None
    within = standing.within
    if standing.objective is not None and standing.objective.spec.name is Objective.CHEAPEST:
        within = standing.objective.spec.epsilon
    labels = {row.index: row.candidate.label for row in standing.rows}
    found = new_examples(pairs, winner.index, order, labels, winner.estimate, within=within)
    # missing scores could make another one the best
    is_known = not standing.is_provisional and standing.objective is None
    return found if found is None or is_known else replace(found, probability=None)


def recorded_standing(
    state: RunState, pairs: Pairs, run_id: str, objective: ObjectiveTracker | None
) -> Standing:
    """Work out where a run stands by its log alone."""
    return build_standing(
        state,
        pairs,
        run_id=run_id,
        budget=state.budget,
        spent=state.spend + state.pending_spend,
        seconds=state.seconds + state.elapsed,
        broken=state.broken,
        objective=objective,
    )


def _statuses(
    state: RunState,
    order: Sequence[int],
    tied: Sequence[int],
    n: IntArray,
    broken: Mapping[str, str],
) -> dict[int, Status]:
    """Return the states of the candidates by row; nobody is called the best yet."""
    found, open_rows = {}, frozenset(tied)
    for i in order:
        if i in state.barred:
            found[i] = Status.BARRED
        elif state.candidates[i].label in broken:
            found[i] = Status.BROKEN
        elif n[i] == 0:
            found[i] = Status.OPEN
        elif i == order[0]:
            found[i] = Status.LEADING
        else:
            found[i] = Status.OPEN if i in open_rows else Status.BEATEN
    return found


def _rows(
    state: RunState,
    pairs: Pairs,
    statuses: Mapping[int, Status],
    broken: Mapping[str, str],
    objective: ObjectiveTracker | None,
    findings: Sequence[Finding],
) -> tuple[Row, ...]:
    """Return the rows in the order of ``statuses``."""
    table, estimates, totals = pairs.table, pairs.estimates(), state.totals
    failed, void = table.count(State.FAILED), table.count(State.VOID)
    prices = None if objective is None else objective.prices()
    judge_priced = state.started is None or state.started.judge_priced
    names = measure_names(None if state.started is None else state.started.config)
    any_score = bool(estimates.n.any())  # else there are mere priors
    found = []
    for i, status in statuses.items():
        candidate, of_row, n = state.candidates[i], totals[i], int(estimates.n[i])
        mean, total, n_void = float(estimates.mean[i]), float(table.total[i]), int(void[i])
        measured = n + n_void
        found.append(
            Row(
                index=i,
                candidate=candidate,
                status=status,
                n=n,
                total=total,
                pending=int(estimates.pending[i]),
                void=n_void,
                failed=int(failed[i]),
                estimate=mean if any_score and not math.isnan(mean) else None,
                lower=float(estimates.lower[i]),
                upper=float(estimates.upper[i]),
                spend=of_row.spend,
                seconds=of_row.seconds / max(1, n),
                problem=broken.get(candidate.label, state.barred.get(i)),
                latency=latency_of(of_row.latencies),
                price=None if prices is None else prices.of(i),
                limits=tuple(_limit(i, one) for one in findings),
                price_source=state.prices[i],
                priced=state.costs[i] is not None and judge_priced,
                void_bounds=(total / measured, (total + n_void) / measured) if measured else None,
                output_tokens=of_row.output_tokens / of_row.replies
                if of_row.output_tokens
                else None,
                measures=row_measures(of_row, names),
            )
        )
    return tuple(found)


def _limit(row: int, found: Finding) -> RowLimit:
    state = LimitState.OPEN
    if found.kept[row] or found.broken[row]:
        state = LimitState.KEPT if found.kept[row] else LimitState.BROKEN
    return RowLimit(found.constraint, found.means.of(row), state)


def row_measures(totals: CandidateTotals, names: Sequence[str]) -> tuple[RowMeasure, ...]:
    """Return the mean by each further scorer."""
    sums, counts = totals.measures or [0.0] * len(names), totals.measured or [0] * len(names)
    return tuple(
        RowMeasure(name, n, total / n if n else None)
        for name, total, n in zip(names, sums, counts, strict=True)
    )


def latency_of(seconds: Sequence[float]) -> Latency | None:
    """Summarise sorted seconds; None if there are none.

    Example:
        >>> latency_of([0.5, 0.6, 0.7, 9.0])
        Latency(n=4, p50=0.6, p95=9.0, longest=9.0)
    """
    if not seconds:
        return None
    p50, p95 = (seconds[math.ceil(p * len(seconds) / 100) - 1] for p in (50, 95))
    return Latency(len(seconds), p50, p95, seconds[-1])


def latency_by_model(state: RunState) -> list[tuple[str, Latency]]:
    """Return the models that answered with their latencies, slowest median first."""
    seconds: dict[str, list[list[float]]] = {}
    for candidate, totals in zip(state.candidates, state.totals, strict=True):
        seconds.setdefault(f"{candidate.provider}/{candidate.model}", []).append(totals.latencies)
    found = ((model, latency_of(list(merge(*lists)))) for model, lists in seconds.items())
    timed = [(model, one) for model, one in found if one is not None]
    return sorted(timed, key=lambda item: -item[1].p50)


def cost_breakdown(state: RunState, spent: Spend) -> tuple[CostLine, ...]:
    """Part a run's spend: each provider's calls with and without an answer, judging, proposing."""
    answered, lost, judging = (
        defaultdict[str, Spend](Spend),
        defaultdict[str, Spend](Spend),
        Spend(),
    )
    unpriced = set()
    for candidate, totals, cost in zip(state.candidates, state.totals, state.costs, strict=True):
        provider = candidate.provider
        judging += totals.judge_spend
        lost[provider] += totals.lost_spend
        answered[provider] += totals.spend - totals.judge_spend - totals.lost_spend
        if cost is None:
            unpriced.add(provider)
    judge_priced = state.started is None or state.started.judge_priced
    proposer_priced = all(call.priced for call in state.proposer_calls.values())
    pending = spent - state.spend
    lines = [
        *(
            CostLine(f"{provider}: {what}", spends[provider], provider not in unpriced)
            for what, spends in (
                ("answered calls of candidates", answered),
                ("attempts that brought no answer", lost),
            )
            for provider in sorted(spends)
        ),
        CostLine("judging", judging, judge_priced),
        CostLine("proposing prompts", state.proposer_spend, proposer_priced),
        CostLine("pairs that are not told yet", pending, judge_priced and not unpriced),
    ]
    return tuple(line for line in lines if not _is_nothing(line.spend))


def _is_nothing(spend: Spend) -> bool:
    """Sums of seconds are not exact."""
    return replace(spend, gpu_seconds=0.0) == Spend() and abs(spend.gpu_seconds) < 1e-6


@dataclass(frozen=True, slots=True)
class FailureLine:
    """The count of one kind of failure of one candidate."""

    label: str  # the candidate's label
    kind: str  # what went wrong
    blame: str  # whose doing it was
    count: int  # how often
    message: str  # the last message


def failures_of(state: RunState) -> list[FailureLine]:
    """Count failures by candidate and kind, most frequent first."""
    count: Counter[tuple[int, str, str]] = Counter()
    last: dict[tuple[int, str, str], str] = {}
    seqs = state.failed()
    rows, numbers = state.asks["candidate"][seqs].tolist(), state.told["failure"][seqs].tolist()
    for row, number in zip(rows, numbers, strict=True):
        failure = state.failures[number]
        key = (row, failure.kind.value, failure.blame.value)
        count[key] += 1
        last[key] = failure.message
    return [
        FailureLine(state.candidates[row].label, kind, blame, n, last[row, kind, blame])
        for (row, kind, blame), n in count.most_common()
    ]


def _latest_failure(state: RunState) -> str:
    seqs = state.failed()
    return state.failures[state.told["failure"][seqs[-1]]].message if len(seqs) else ""
