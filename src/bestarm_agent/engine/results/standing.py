"""The standing of a run, as the display, the report, ``--json`` and the Python API show it.

It is worked out from the run's log and from the source of pairs that was fed the same log.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import escape

import numpy as np

from bestarm_agent.config.study import Constraint, Objective, ObjectiveSpec
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Candidate, Failure
from bestarm_agent.engine.limits.waiting import Wait
from bestarm_agent.engine.results.new_examples import NewExamples, new_examples
from bestarm_agent.engine.results.objectives import Finding, ObjectiveTracker, measure_names
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Guarantee, State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.run_state import RunState

_SHOWN_ROWS = 60  # in a notebook


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
    lower: float  # lower end of its interval, at the joint confidence
    upper: float  # upper end
    spend: Spend  # its cost, judging and lost attempts included
    problem: str | None  # why it is broken or barred
    p50_seconds: float | None = None  # half of its answered calls took at most this, waits apart
    p95_seconds: float | None = None  # 95 % of them did; None without a timed one
    price: Measure | None = None  # dollars of 1,000 calls, where the objective depends on it
    limits: tuple[RowLimit, ...] = ()  # of the objective
    price_source: str | None = None  # where its price comes from, for people
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars
    output_tokens: float | None = None  # mean of a scored reply; None where no token was counted
    measures: tuple[RowMeasure, ...] = ()  # by name

    @property
    def void_bounds(self) -> tuple[float, float]:
        """Return the mean of its pairs if every void one had scored 0, and 1."""
        measured = self.n + self.void
        if not measured:
            return 0.0, 1.0
        return self.total / measured, (self.total + self.void) / measured


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """The answer to an objective with prices or limits."""

    spec: ObjectiveSpec
    answer: int | None  # row number of the candidate named; None before a score, or if none fits
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
    """All candidates, best first, and the state of the run."""

    name: str  # of the study
    run_id: str  # in the store
    rows: tuple[Row, ...]  # the candidates, best first
    separated: bool  # whether the leading one beats all others at ``confidence``
    # at ``confidence`` the leading one's mean is at most this much below the highest, in [0, 1]; 0
    # if it is the best, None where nothing is guaranteed
    margin: float | None
    confidence: float  # joint level of the intervals, in (0, 1)
    guarantee: Guarantee  # what the intervals rest on
    selector: str  # name of the selection rule
    n_examples: int  # that the choice rests on; those kept back are not among them
    asked: int  # pairs asked
    told: int  # pairs with an outcome
    in_flight: int  # pairs under way
    waits: tuple[Wait, ...]  # why calls wait
    spent: Spend  # by the whole run
    budget: Budget  # the caps
    seconds: float  # wall-clock seconds of all sessions
    end: str | None  # why the last session ended; None while it runs
    latest_failure: str = ""  # the message of the latest failed or void pair
    graded: bool = False  # whether some scores lie between 0 and 1
    # whether the run may end as those that are open are nearer to the leading one than the examples
    # can tell apart
    level: bool = False
    # what holds for examples drawn like these; None before a score, where examples do not come in
    # one random order, and where the rule has another aim
    new_examples: NewExamples | None = None
    for_new: bool = False  # whether the best on new examples is asked for
    within: float = 0.0  # how far below the highest mean is good enough, in [0, 1)
    objective: ObjectiveResult | None = None  # None if that is simply the best
    costs: tuple[CostLine, ...] = ()  # where ``spent`` went
    cached_tokens: int = 0  # of candidates' prompts, read from providers' prompt caches
    confirmation: Confirmation | None = None  # None until the winner answered what was kept back
    # those scored, with their texts, of a run whose store is gone with it: of ``find_best``
    answers: tuple[PairOutcome, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"<Standing of {self._summary}>"

    def _repr_html_(self) -> str:
        """Show the ranking in a notebook."""
        heads = ("candidate", "scores", "estimate", "interval", "state")
        lines = ["".join(f"<th>{head}</th>" for head in heads)]
        for row in self.rows[:_SHOWN_ROWS]:
            seen, ends = f"{row.total:.4g} of {row.n:,}", f"[{row.lower:.3f}, {row.upper:.3f}]"
            mean = "" if row.estimate is None else f"{row.estimate:.3f}"
            cells = (row.candidate.label, seen, mean, ends, row.status.value)
            lines.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        more = len(self.rows) - _SHOWN_ROWS
        note = f"<p>... and {more:,} more</p>" if more > 0 else ""
        return f"<p>{escape(self._summary)}</p><table>{table}</table>{note}"

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
    def priced(self) -> bool:
        """Return whether the price of every candidate is known."""
        return all(row.priced for row in self.rows)

    @property
    def unseen(self) -> int:
        """Number of candidates without a score; a rule may have an estimate of them."""
        return sum(not row.n for row in self.rows)

    @property
    def rivals_by_voids(self) -> tuple[Row, ...]:
        """The candidates that could win if void pairs had been measured."""
        winner = self.winner
        if winner is None or (self.established and self.guarantee is not Guarantee.HEURISTIC):
            return ()
        return tuple(
            row
            for row in self.rows
            if row.index != winner.index
            and row.status is not Status.BARRED
            and (row.void or (winner.void and row.n))
            and row.void_bounds[1] > winner.void_bounds[0]
        )

    @property
    def is_provisional(self) -> bool:
        """Return whether missing scores, or missing rivals, leave the winner open."""
        return len(self.rows) == 1 or self.unseen > 0 or bool(self.rivals_by_voids)

    @property
    def winner(self) -> Row | None:
        """The candidate that answers the objective; None before any score, or if none does."""
        if self.objective is None:
            return self.best
        answer = self.objective.answer
        return next((row for row in self.rows if row.index == answer), None)

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


@asynccontextmanager
async def followed_by_cell(current: Callable[[], object]) -> AsyncIterator[None]:
    """Show an object in the notebook cell that runs, updated each second; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")  # a notebook's kernel has imported it
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        yield  # a terminal
        return
    handle = ipython.display.DisplayHandle()
    handle.display(current())

    async def update() -> None:
        while True:
            await asyncio.sleep(1.0)
            handle.update(current())

    updating = asyncio.create_task(update())
    try:
        yield
    finally:
        updating.cancel()
        handle.update(current())


def build_standing(
    state: RunState,
    pairs: Pairs,
    run_id: str,
    objective: ObjectiveTracker | None = None,
    *,
    budget: Budget | None = None,
    spent: Spend | None = None,
    seconds: float | None = None,
    broken: Mapping[str, str] | None = None,
    in_flight: int = 0,
    waits: tuple[Wait, ...] = (),
) -> Standing:
    """Build the standing of a run; what is not given is as the log has it.

    Args:
        state: what the log amounts to.
        pairs: the source of pairs, fed the same log.
        run_id: the run's id.
        objective: the objective, fed the same log; None if it is simply the best.
        budget: the caps.
        spent: the cost so far, of pairs under way as well.
        seconds: wall-clock seconds of all sessions.
        broken: labels of the candidates that cannot be called any more, with the reason.
        in_flight: pairs under way.
        waits: why calls wait.
    """
    spent = state.spend + state.pending_spend if spent is None else spent
    broken = state.broken if broken is None else broken
    estimates = pairs.estimates()
    order = pairs.ranking() if state.candidates else []
    statuses = _statuses(state, pairs, order, broken)
    seen = bool(order) and estimates.n[order[0]] > 0
    separated = seen and all(statuses[i] in (Status.BEATEN, Status.BARRED) for i in order[1:])
    margin = None
    if order and estimates.guarantee is not Guarantee.HEURISTIC:
        # before a score, one that has no rival is not shown to be good for anything either
        margin = pairs.margin() if seen else 1.0
    is_best = margin is not None and (separated or margin == 0)
    if is_best and statuses[order[0]] is Status.LEADING:
        statuses[order[0]] = Status.BEST
    ruling, result = None if objective is None else objective.state(), None
    if objective is not None and ruling is not None:
        shown = ruling.answer, ruling.established, ruling.margin
        result = ObjectiveResult(objective.spec, *shown, objective.confidence)
    latest = state.told["failure"][state.failed()[-1:]]
    standing = Standing(
        name=state.name,
        run_id=run_id,
        rows=_rows(state, pairs, statuses, broken, objective, ruling.findings if ruling else ()),
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
        budget=state.budget if budget is None else budget,
        seconds=state.seconds + state.elapsed if seconds is None else seconds,
        graded=bool(np.any((pairs.table.score > 0) & (pairs.table.score < 1))),
        end=state.end,
        latest_failure="".join(state.failures[number].message for number in latest),
        objective=result,
        costs=cost_breakdown(state, spent),
        cached_tokens=state.cached_tokens,
    )
    dataset = state.started.config.get("dataset")
    clustered = isinstance(dataset, Mapping) and dataset.get("cluster") is not None
    unit = "cluster" if clustered else "example"
    return replace(standing, new_examples=_on_new(standing, pairs, unit))


def _on_new(standing: Standing, pairs: Pairs, unit: str) -> NewExamples | None:
    winner, objective = standing.winner, standing.objective
    if winner is None or winner.estimate is None or not winner.n:
        return None
    is_cheapest = objective is not None and objective.spec.name is Objective.CHEAPEST
    within = objective.spec.epsilon if objective and is_cheapest else standing.within
    labels = {row.index: row.candidate.label for row in standing.rows}
    found = new_examples(pairs, winner.index, labels, winner.estimate, within=within, unit=unit)
    # missing scores could make another one the best
    is_known = not standing.is_provisional and objective is None
    return found if found is None or is_known else replace(found, probability=None)


def _statuses(
    state: RunState, pairs: Pairs, order: Sequence[int], broken: Mapping[str, str]
) -> dict[int, Status]:
    """Return the states of the candidates by row; nobody is called the best yet."""
    n, found = pairs.table.n_scored, {}
    rivals = frozenset(pairs.answer.tied(order[0])) if order else ()
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
            found[i] = Status.OPEN if i in rivals else Status.BEATEN
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
    table, estimates = pairs.table, pairs.estimates()
    failed, void = table.count(State.FAILED), table.count(State.VOID)
    prices = None if objective is None else objective.prices()
    columns = zip(measure_names(state), state.told["measures"].T, strict=False)
    means = [(name, *state.means(column)) for name, column in columns]
    output = state.told["output"]
    _, length = state.means(np.where(output >= 0, output, np.nan))
    spends, latencies = state.spends(), state.latencies()
    any_score = bool(estimates.n.any())  # else there are mere priors
    found = []
    for i, status in statuses.items():
        candidate, mean = state.candidates[i], float(estimates.mean[i])
        found.append(
            Row(
                index=i,
                candidate=candidate,
                status=status,
                n=int(estimates.n[i]),
                total=float(table.total[i]),
                pending=int(estimates.pending[i]),
                void=int(void[i]),
                failed=int(failed[i]),
                estimate=_known(mean) if any_score else None,
                lower=float(estimates.lower[i]),
                upper=float(estimates.upper[i]),
                spend=spends[i],
                problem=broken.get(candidate.label, state.barred.get(i)),
                p50_seconds=percentile(latencies[i], 50),
                p95_seconds=percentile(latencies[i], 95),
                price=None if prices is None else prices.of(i),
                limits=tuple(_limit(i, one) for one in findings),
                price_source=state.prices[i],
                priced=state.costs[i] is not None and state.started.judge_priced,
                output_tokens=_known(length[i]) or None,
                measures=tuple(RowMeasure(name, int(n[i]), _known(k[i])) for name, n, k in means),
            )
        )
    return tuple(found)


def _known(mean: float) -> float | None:
    return None if math.isnan(mean) else float(mean)


def _limit(row: int, found: Finding) -> RowLimit:
    state = LimitState.OPEN
    if found.kept[row] or found.broken[row]:
        state = LimitState.KEPT if found.kept[row] else LimitState.BROKEN
    return RowLimit(found.constraint, found.means.of(row), state)


def percentile(seconds: Sequence[float], percent: int) -> float | None:
    """Return one of sorted times, by nearest rank; None if there are none.

    Example:
        >>> percentile([0.5, 0.6, 0.7, 9.0], 50), percentile([], 95)
        (0.6, None)
    """
    return seconds[math.ceil(percent * len(seconds) / 100) - 1] if seconds else None


def cost_breakdown(state: RunState, spent: Spend) -> tuple[CostLine, ...]:
    """Part a run's spend: each provider's calls with and without an answer, judging, proposing."""
    parts, unpriced = defaultdict[str, Spend](Spend), set[str]()
    for i, (candidate, spend) in enumerate(zip(state.candidates, state.spends(), strict=True)):
        answered = f"{candidate.provider}: answered calls of candidates"
        lost = f"{candidate.provider}: attempts that brought no answer"
        parts[answered] += spend - state.judging[i] - state.lost[i]
        parts[lost] += state.lost[i]
        if state.costs[i] is None:
            unpriced |= {answered, lost, "pairs that are not told yet"}
    parts["judging"] = sum(state.judging, Spend())
    parts["proposing prompts"] = state.proposer_spend
    parts["pairs that are not told yet"] = spent - state.spend
    if not state.started.judge_priced:
        unpriced |= {"judging", "pairs that are not told yet"}
    if not all(call.priced for call in state.proposer_calls.values()):
        unpriced.add("proposing prompts")
    return tuple(
        CostLine(what, spend, what not in unpriced)
        for what, spend in parts.items()  # sums of seconds are not exact
        if replace(spend, gpu_seconds=0.0) != Spend() or abs(spend.gpu_seconds) >= 1e-6
    )


@dataclass(frozen=True, slots=True)
class FailureLine:
    """The count of one kind of failure of one candidate."""

    label: str  # the candidate's label
    count: int  # how often
    last: Failure


def failures_of(state: RunState) -> list[FailureLine]:
    """Count failures by candidate and kind, most frequent first."""
    found = defaultdict[tuple[int, FailureKind, Blame], list[Failure]](list)
    seqs = state.failed()
    rows, numbers = state.asks["candidate"][seqs].tolist(), state.told["failure"][seqs].tolist()
    for row, number in zip(rows, numbers, strict=True):
        failure = state.failures[number]
        found[row, failure.kind, failure.blame].append(failure)
    labels = [candidate.label for candidate in state.candidates]
    lines = [FailureLine(labels[row], len(of), of[-1]) for (row, *_), of in found.items()]
    return sorted(lines, key=lambda line: -line.count)
