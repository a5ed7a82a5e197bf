"""A run's standing, drawn from its log and from the pairs that was fed the same log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bestarm_agent.domain.outcome import Failed
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.results.cost_breakdown import cost_breakdown
from bestarm_agent.engine.results.objectives import Finding, ObjectiveState, ObjectiveTracker
from bestarm_agent.engine.results.reply_measures import (
    latency_of,
    mean_length,
    measure_names,
    row_measures,
)
from bestarm_agent.engine.results.slice_means import slice_means
from bestarm_agent.engine.results.standing import (
    LimitState,
    ObjectiveResult,
    Row,
    RowLimit,
    RowPrice,
    Standing,
    Status,
)
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Estimates, Guarantee, State, Verdict
from bestarm_agent.store.run_state import RunState

_NOT_BEST = (Status.BEATEN, Status.BARRED)


@dataclass(frozen=True, slots=True)
class LiveState:
    """Values that only a live run knows."""

    in_flight: int  # pairs under way
    waits: tuple[Wait, ...]  # why calls wait
    seconds: float  # wall-clock seconds of all sessions
    # labels of the candidates that cannot be called any more, with the reason
    broken: Mapping[str, str]


def build_standing(
    state: RunState,
    pairs: Pairs,
    *,
    run_id: str,
    budget: Budget,
    spent: Spend,
    live: LiveState,
    objective: ObjectiveTracker | None = None,
) -> Standing:
    """Build the standing of a run."""
    estimates = pairs.estimates()
    verdict = pairs.best() if state.candidates else None
    rows = () if verdict is None else _rows(state, pairs, verdict, estimates, live, objective)
    ruling = None if objective is None else objective.state(pairs)
    if ruling is not None:
        rows = _with_limits(rows, ruling.findings)
    separated = len(rows) > 0 and all(row.status in _NOT_BEST for row in rows[1:])
    margin = _margin(pairs, estimates.guarantee)
    if margin is not None and (separated or margin == 0):
        rows = _with_best(rows)
    standing = Standing(
        name=state.name,
        run_id=run_id,
        rows=rows,
        separated=separated,
        margin=margin,
        within=pairs.problem.within or 0.0,
        probability=None if verdict is None else verdict.probability,
        confidence=estimates.confidence,
        guarantee=estimates.guarantee,
        selector=pairs.name,
        n_examples=pairs.table.n_examples,
        asked=pairs.table.n_asked,
        told=len(state.told),
        in_flight=live.in_flight,
        waits=live.waits,
        spent=spent,
        budget=budget,
        seconds=live.seconds,
        graded=bool(np.any((pairs.table.score > 0) & (pairs.table.score < 1))),
        end=state.end,
        latest_failure=_latest_failure(state),
        objective=_result(objective, ruling, rows),
        costs=cost_breakdown(state, spent),
        reservations=state.reservations,
    )
    if standing.is_provisional:
        standing = replace(standing, probability=None)
    if state.slices and not live.in_flight:
        ranking = [row.index for row in rows]
        found = slice_means(state, pairs, ranking, standing.confidence)
        standing = replace(standing, slices=found)
    return standing


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
        live=LiveState(0, (), seconds=state.seconds + state.elapsed, broken=state.broken),
        objective=objective,
    )


def _latest_failure(state: RunState) -> str:
    seq = state.told.last_failed
    outcome = None if seq is None else state.told[seq].outcome
    return outcome.message if isinstance(outcome, Failed) else ""


def _prices(objective: ObjectiveTracker | None) -> Sequence[RowPrice] | None:
    prices = None if objective is None else objective.prices()
    if prices is None:
        return None
    columns = prices.mean, prices.lower, prices.upper
    return [
        RowPrice(None if np.isnan(mean) else mean, lower, upper)
        for mean, lower, upper in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _with_limits(rows: Sequence[Row], findings: Sequence[Finding]) -> tuple[Row, ...]:
    return tuple(
        replace(row, limits=tuple(_limit(row.index, one) for one in findings)) for row in rows
    )


def _limit(row: int, found: Finding) -> RowLimit:
    mean = float(found.means.mean[row])
    state = LimitState.OPEN
    if found.kept[row] or found.broken[row]:
        state = LimitState.KEPT if found.kept[row] else LimitState.BROKEN
    ends = float(found.means.lower[row]), float(found.means.upper[row])
    return RowLimit(found.constraint, None if np.isnan(mean) else mean, *ends, state)


def _result(
    objective: ObjectiveTracker | None, state: ObjectiveState | None, rows: Sequence[Row]
) -> ObjectiveResult | None:
    if objective is None or state is None or not rows:
        return None
    by_index = {row.index: row for row in rows}
    return ObjectiveResult(
        spec=objective.spec,
        answer=None if state.answer is None else by_index[state.answer],
        established=state.established,
        margin=state.margin,
        confidence=objective.confidence,
    )


def _margin(pairs: Pairs, guarantee: Guarantee) -> float | None:
    if guarantee is Guarantee.HEURISTIC or pairs.table.n_candidates == 0:
        return None
    return pairs.margin()


def _rows(
    state: RunState,
    pairs: Pairs,
    verdict: Verdict,
    estimates: Estimates,
    live: LiveState,
    objective: ObjectiveTracker | None,
) -> tuple[Row, ...]:
    failed, prices = pairs.table.count(State.FAILED), _prices(objective)
    judge_priced = state.started is None or state.started.judge_priced
    measures = measure_names(state)
    labels = [candidate.label for candidate in state.candidates]
    problems = {**{labels[i]: why for i, why in state.barred.items()}, **live.broken}
    tied, totals = frozenset(verdict.tied), state.totals
    means = estimates.mean if estimates.n.any() else np.full(len(labels), np.nan)  # no mere priors
    order = [verdict.best] + [i for i in pairs.ranking() if i != verdict.best]
    return tuple(
        Row(
            index=i,
            candidate=state.candidates[i],
            status=_status(i, state, verdict.best, tied, estimates, live),
            n=int(estimates.n[i]),
            total=float(pairs.table.total[i]),
            pending=int(estimates.pending[i]),
            void=int(estimates.void[i]),
            failed=int(failed[i]),
            estimate=None if np.isnan(means[i]) else float(means[i]),
            lower=float(estimates.lower[i]),
            upper=float(estimates.upper[i]),
            spend=totals[i].spend,
            latency=latency_of(totals[i].latencies),
            seconds=totals[i].seconds / max(1, int(estimates.n[i])),
            problem=problems.get(labels[i]),
            price=None if prices is None else prices[i],
            price_source=state.prices[i],
            priced=state.costs[i] is not None and judge_priced,
            void_bounds=_void_bounds(pairs.table, i),
            output_tokens=mean_length(totals[i]),
            measures=row_measures(totals[i], measures),
        )
        for i in order
    )


def _with_best(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Call the leading candidate the best."""
    first, *others = rows
    shown = replace(first, status=Status.BEST) if first.status is Status.LEADING else first
    return (shown, *others)


def _void_bounds(table: ScoreTable, row: int) -> tuple[float, float] | None:
    void = int(table.count(State.VOID)[row])
    n = int(table.n_scored[row]) + void
    total = float(table.total[row])
    return (total / n, (total + void) / n) if n else None


def _status(
    i: int,
    state: RunState,
    best: int,
    tied: Collection[int],
    estimates: Estimates,
    live: LiveState,
) -> Status:
    if i in state.barred:
        return Status.BARRED
    if state.candidates[i].label in live.broken:
        return Status.BROKEN
    if estimates.n[i] == 0:
        return Status.OPEN
    if i == best:
        return Status.LEADING
    return Status.OPEN if i in tied else Status.BEATEN
