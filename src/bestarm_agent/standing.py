"""Where a run stands: one frozen picture for the display, the report and the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from bestarm_agent.accounts import Line, accounts
from bestarm_agent.config.objective import ObjectiveSpec
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.spend import Books, Budget, Spend
from bestarm_agent.objectives import Aim
from bestarm_agent.schedule.waits import Wait
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Estimates, Guarantee, State
from bestarm_agent.store.fold import RunState


class Status(StrEnum):
    """What is known of a candidate, compared with the leading one."""

    LEADING = "leading"
    TIED = "tied"  # not shown to be worse than the leading one
    BEATEN = "beaten"  # shown to be worse, under the guarantee
    UNSEEN = "unseen"  # no score yet
    BROKEN = "broken"  # can no longer be called
    BARRED = "too dear"  # shown to cost more than the objective allows


_NOT_BEST = (Status.BEATEN, Status.BARRED)
_CALLS = 1000


@dataclass(frozen=True, slots=True)
class RowPrice:
    """What 1,000 calls to a candidate cost, in dollars.

    Attributes:
        mean: by the calls seen, or None.
        lower: lower end of its interval.
        upper: upper end; infinite where nothing bounds it.
    """

    mean: float | None
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate.

    Attributes:
        index: its row number in the log.
        candidate: what it is.
        status: what is known of it.
        n: scores seen.
        pending: pairs in flight.
        void: pairs that could not be measured.
        failed: pairs on which the candidate itself failed.
        mean: estimate of its mean over all examples, in [0, 1], or None.
        lower: lower end of its interval.
        upper: upper end.
        spend: what it has cost, judging and lost attempts included.
        seconds: mean seconds of an answered call, 0 if there was none.
        problem: why it is broken or barred, or None.
        price: what a call costs, where the objective depends on it.
        price_source: where its price comes from, for people, or None.
    """

    index: int
    candidate: Candidate
    status: Status
    n: int
    pending: int
    void: int
    failed: int
    mean: float | None
    lower: float
    upper: float
    spend: Spend
    seconds: float
    problem: str | None
    price: RowPrice | None = None
    price_source: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about an objective that depends on prices.

    Attributes:
        spec: the objective.
        answer: the candidate named, or None before any score is seen, or if none fits.
        chosen: the candidates asked for, cheapest first: the Pareto set, or the answer alone.
        established: whether that is shown at ``confidence``.
        margin: the answer's mean is at most this much below the highest that counts, in [0, 1];
            None where that is not said.
        confidence: of the whole statement, in (0, 1).
    """

    spec: ObjectiveSpec
    answer: Row | None
    chosen: tuple[Row, ...]
    established: bool
    margin: float | None
    confidence: float


@dataclass(frozen=True, slots=True)
class Standing:
    """All candidates, best first, and the state of the run.

    Attributes:
        name: the study's name.
        run_id: the run's id.
        rows: the candidates, best estimate first.
        separated: whether the leading one beats all others at ``confidence``.
        margin: at ``confidence`` the leading one's mean is at most this much below the highest, in
            [0, 1]; 0 if it is the best, None where nothing is guaranteed.
        probability: how probable the rule's model thinks it that the leading one is the best: an
            opinion, no guarantee; None where the rule has no model.
        confidence: joint level of the intervals, in (0, 1).
        guarantee: what the intervals rest on.
        selector: name of the selection rule.
        n_examples: N.
        asked: pairs asked.
        told: pairs told.
        in_flight: pairs under way.
        waits: why calls wait.
        spent: spend of the run.
        budget: its caps.
        seconds: wall-clock seconds of all sittings.
        end: why the last sitting ended, or None while it runs.
        finding: what is known about the objective; None if that is simply the best.
        accounts: where ``spent`` went.
        books: where what was set aside went, over the sittings that ended in good order.
    """

    name: str
    run_id: str
    rows: tuple[Row, ...]
    separated: bool
    margin: float | None
    probability: float | None
    confidence: float
    guarantee: Guarantee
    selector: str
    n_examples: int
    asked: int
    told: int
    in_flight: int
    waits: tuple[Wait, ...]
    spent: Spend
    budget: Budget
    seconds: float
    end: str | None
    finding: Finding | None = None
    accounts: tuple[Line, ...] = ()
    books: Books = field(default_factory=Books)

    @property
    def established(self) -> bool:
        """Whether what was asked for is shown at the stated confidence."""
        if self.finding is not None:
            return self.finding.established
        return self.separated or self.margin == 0

    @property
    def winner(self) -> Row | None:
        """The candidate that answers the objective; None before any score is seen."""
        return self.best if self.finding is None else self.finding.answer

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
        return self.rows[0] if self.rows and self.rows[0].mean is not None else None

    @property
    def runner_up(self) -> Row | None:
        """The candidate with the second highest estimate, if it has one."""
        return self.rows[1] if len(self.rows) > 1 and self.rows[1].mean is not None else None

    @property
    def tied(self) -> tuple[Row, ...]:
        """The candidates that the best is not shown to beat."""
        return tuple(row for row in self.rows[1:] if row.status is not Status.BEATEN)


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
