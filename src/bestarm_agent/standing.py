"""Where a run stands: what the display, the report and the Python API show of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bestarm_agent.accounts import Line
from bestarm_agent.config.objective import ObjectiveSpec
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.spend import Books, Budget, Spend
from bestarm_agent.schedule.waits import Wait
from bestarm_agent.selectors.types import Guarantee


class Status(StrEnum):
    """What is known of a candidate, compared with the leading one."""

    LEADING = "leading"
    TIED = "tied"  # not shown to be worse than the leading one
    BEATEN = "beaten"  # shown to be worse, under the guarantee
    UNSEEN = "unseen"  # no score yet
    BROKEN = "broken"  # can no longer be called
    BARRED = "too dear"  # shown to cost more than the objective allows


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
