"""A run's standing, drawn from its log and from the pairs that was fed the same log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.cost_breakdown import cost_breakdown
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.standing import ObjectiveResult, Row, RowPrice, Standing, Status
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Estimates, Guarantee, State, Verdict
from bestarm_agent.store.run_state import RunState

_NOT_BEST = (Status.BEATEN, Status.BARRED)
_CALLS = 1000


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
    pairs: PairSource,
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
    standing = Standing(
        name=state.name,
        run_id=run_id,
        rows=rows,
        separated=len(rows) > 0 and all(row.status in _NOT_BEST for row in rows[1:]),
        margin=_margin(pairs, estimates.guarantee),
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
        objective=_result(objective, pairs, rows),
        costs=cost_breakdown(state, spent),
        books=state.books,
    )
    return replace(standing, probability=None) if standing.is_provisional else standing


def _prices(objective: ObjectiveTracker | None) -> Sequence[RowPrice] | None:
    if objective is None:
        return None
    prices = objective.book.prices()
    columns = (_CALLS * prices.mean, _CALLS * prices.lower, _CALLS * prices.upper)
    return [
        RowPrice(None if np.isnan(mean) else mean, lower, upper)
        for mean, lower, upper in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _result(
    objective: ObjectiveTracker | None, pairs: PairSource, rows: Sequence[Row]
) -> ObjectiveResult | None:
    if objective is None or not rows:
        return None
    state = objective.state(pairs)
    by_index = {row.index: row for row in rows}
    return ObjectiveResult(
        spec=objective.spec,
        answer=None if state.answer is None else by_index[state.answer],
        chosen=tuple(by_index[i] for i in state.chosen),
        established=state.established,
        margin=state.margin,
        confidence=objective.confidence,
    )


def _margin(pairs: PairSource, guarantee: Guarantee) -> float | None:
    if guarantee is Guarantee.HEURISTIC or pairs.table.n_candidates == 0:
        return None
    return pairs.margin()


def _rows(
    state: RunState,
    pairs: PairSource,
    verdict: Verdict,
    estimates: Estimates,
    live: LiveState,
    objective: ObjectiveTracker | None,
) -> tuple[Row, ...]:
    failed, prices = pairs.table.count(State.FAILED), _prices(objective)
    judge_priced = state.started is None or state.started.judge_priced
    labels = [candidate.label for candidate in state.candidates]
    problems = {**{labels[i]: why for i, why in state.barred.items()}, **live.broken}
    tied = frozenset(verdict.tied)
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
            estimate=None if np.isnan(estimates.mean[i]) else float(estimates.mean[i]),
            lower=float(estimates.lower[i]),
            upper=float(estimates.upper[i]),
            spend=state.spend_of[i],
            seconds=state.seconds_of[i] / max(1, int(estimates.n[i])),
            problem=problems.get(labels[i]),
            price=None if prices is None else prices[i],
            price_source=state.prices[i],
            priced=state.costs[i] is not None and judge_priced,
            void_bounds=_void_bounds(pairs.table, i),
        )
        for i in order
    )


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
        return Status.BEST
    return Status.OPEN if i in tied else Status.BEATEN
