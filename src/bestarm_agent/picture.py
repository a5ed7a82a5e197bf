"""A run's standing, drawn from its log and from the selector that was fed the same log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.accounts import accounts
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.objectives import Aim
from bestarm_agent.schedule.waits import Wait
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Estimates, Guarantee, State
from bestarm_agent.standing import Finding, Row, RowPrice, Standing, Status
from bestarm_agent.store.fold import RunState

_NOT_BEST = (Status.BEATEN, Status.BARRED)
_CALLS = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """What only a live run knows.

    Attributes:
        in_flight: pairs under way.
        waits: why calls wait.
        seconds: wall-clock seconds of all sittings.
        broken: labels of the candidates that cannot be called any more, with the reason.
    """

    in_flight: int
    waits: tuple[Wait, ...]
    seconds: float
    broken: Mapping[str, str]


def picture(
    state: RunState,
    selector: Selector,
    *,
    run_id: str,
    budget: Budget,
    spent: Spend,
    moment: Moment,
    aim: Aim | None = None,
) -> Standing:
    """Draw the standing from the folded log and the selector that was fed the same log.

    Args:
        state: the folded log.
        selector: was fed the same log.
        run_id: the run's id.
        budget: its caps.
        spent: what it has spent.
        moment: what only a live run knows.
        aim: its objective, if that depends on prices.
    """
    estimates = selector.estimates()
    rows = _rows(state, selector, estimates, moment.broken, _prices(aim))
    return Standing(
        name=state.name,
        run_id=run_id,
        rows=rows,
        separated=len(rows) > 0 and all(row.status in _NOT_BEST for row in rows[1:]),
        margin=_margin(selector, estimates.guarantee),
        probability=selector.best().probability if rows else None,
        confidence=estimates.confidence,
        guarantee=estimates.guarantee,
        selector=selector.name,
        n_examples=selector.table.n_examples,
        asked=selector.table.n_asked,
        told=len(state.told),
        in_flight=moment.in_flight,
        waits=moment.waits,
        spent=spent,
        budget=budget,
        seconds=moment.seconds,
        end=state.end,
        finding=None if aim is None or not rows else _finding(aim, selector, rows),
        accounts=accounts(state, spent),
        books=state.books,
    )


def _prices(aim: Aim | None) -> Sequence[RowPrice] | None:
    if aim is None:
        return None
    prices = aim.book.prices()
    columns = (_CALLS * prices.mean, _CALLS * prices.lower, _CALLS * prices.upper)
    return [
        RowPrice(None if np.isnan(mean) else mean, lower, upper)
        for mean, lower, upper in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _finding(aim: Aim, selector: Selector, rows: Sequence[Row]) -> Finding:
    ruling = aim.ruling(selector)
    by_index = {row.index: row for row in rows}
    return Finding(
        spec=aim.spec,
        answer=None if ruling.answer is None else by_index[ruling.answer],
        chosen=tuple(by_index[i] for i in ruling.chosen),
        established=ruling.established,
        margin=ruling.margin,
        confidence=aim.confidence,
    )


def _margin(selector: Selector, guarantee: Guarantee) -> float | None:
    if guarantee is Guarantee.HEURISTIC or selector.table.n_candidates == 0:
        return None
    return selector.margin()


def _rows(
    state: RunState,
    selector: Selector,
    estimates: Estimates,
    broken: Mapping[str, str],
    prices: Sequence[RowPrice] | None,
) -> tuple[Row, ...]:
    if not state.candidates:
        return ()
    verdict = selector.best()
    tied = frozenset(verdict.tied)
    failed = selector.table.count(State.FAILED)
    out = {state.candidates[i].label: why for i, why in state.barred.items()}
    order = [verdict.best] + [i for i in selector.ranking() if i != verdict.best]
    return tuple(
        Row(
            index=i,
            candidate=state.candidates[i],
            status=Status.BARRED
            if i in state.barred
            else _status(i, verdict.best, tied, estimates, broken.get(state.candidates[i].label)),
            n=int(estimates.n[i]),
            pending=int(estimates.pending[i]),
            void=int(estimates.void[i]),
            failed=int(failed[i]),
            mean=None if np.isnan(estimates.mean[i]) else float(estimates.mean[i]),
            lower=float(estimates.lower[i]),
            upper=float(estimates.upper[i]),
            spend=state.spend_of[i],
            seconds=state.seconds_of[i] / max(1, int(estimates.n[i])),
            problem={**out, **broken}.get(state.candidates[i].label),
            price=None if prices is None else prices[i],
            price_source=state.prices[i],
        )
        for i in order
    )


def _status(
    i: int, best: int, tied: frozenset[int], estimates: Estimates, problem: str | None
) -> Status:
    if problem is not None:
        return Status.BROKEN
    if estimates.n[i] == 0:
        return Status.UNSEEN
    if i == best:
        return Status.LEADING
    return Status.TIED if i in tied else Status.BEATEN
