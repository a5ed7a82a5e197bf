"""The standing of a run, as the display, the report and the Python API show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bestarm_agent.config.study.objective import Constraint, Objective, ObjectiveSpec
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.spend import Budget, Reservations, Spend, usd
from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.results.confirmation import Confirmation
from bestarm_agent.engine.results.cost_breakdown import CostLine
from bestarm_agent.engine.results.notebook import data_frame, html_table
from bestarm_agent.engine.results.reply_measures import Latency, RowMeasure
from bestarm_agent.engine.results.slice_means import SliceMeans
from bestarm_agent.selectors.types import Guarantee


class Status(StrEnum):
    """The state of a candidate, in the words that people read everywhere."""

    BEST = "best"  # shown to be the best, or as good as any, under the guarantee
    LEADING = "best so far"  # the highest estimate; others may be better
    OPEN = "open"  # not ruled out: it may still be the best
    BEATEN = "beaten"  # shown to be worse, under the guarantee
    BROKEN = "cannot be called"
    BARRED = "breaks a limit"  # shown to break a limit of the objective, such as its price


@dataclass(frozen=True, slots=True)
class RowPrice:
    """Price of 1,000 calls to a candidate, in dollars."""

    mean: float | None  # by the calls seen, or None
    lower: float  # lower end of its interval
    upper: float  # upper end; infinite where nothing bounds it


class LimitState(StrEnum):
    """State of a candidate at a limit."""

    KEPT = "kept"  # shown, under the guarantee
    BROKEN = "broken"  # shown
    OPEN = "open"  # neither is shown yet


@dataclass(frozen=True, slots=True)
class RowLimit:
    """A limit of the objective, and a candidate's mean."""

    constraint: Constraint
    mean: float | None  # by what was seen, or None
    lower: float  # lower end of its interval
    upper: float  # upper end
    state: LimitState


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
    price: RowPrice | None = None  # of calls, where the objective depends on it
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
class Standing:
    """All candidates, best first, and the state of the run.

    Attributes:
        margin: at ``confidence`` the leading one's mean is at most this much below the highest, in
            [0, 1]; 0 if it is the best, None where nothing is guaranteed.
        probability: that the leading one is the best, by the rule's model: an opinion, no
            guarantee; None where the rule has no model or ``is_provisional``.
    """

    name: str
    run_id: str
    rows: tuple[Row, ...]
    separated: bool  # whether the leading one beats all others at ``confidence``
    margin: float | None
    probability: float | None
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
    within: float = 0.0  # how far below the highest mean is good enough, in [0, 1)
    objective: ObjectiveResult | None = None  # None if that is simply the best
    costs: tuple[CostLine, ...] = ()  # where ``spent`` went
    reservations: Reservations = field(
        default_factory=Reservations
    )  # reserved money, over sessions that ended well
    confirmation: Confirmation | None = None  # None until a run on examples kept back began
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

    def to_frame(self) -> Any:  # noqa: ANN401  pandas is no dependency, its types neither
        """Return the ranking as a pandas ``DataFrame``, a row for each candidate, best first.

        Raises:
            ConfigError: pandas is not installed.
        """
        return data_frame([row.flat() for row in self.rows])

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
        return self.separated or (self.margin is not None and self.margin <= self.within)

    @property
    def is_best(self) -> bool:
        """Return whether no other candidate is better, at the stated confidence."""
        return self.separated or self.margin == 0

    @property
    def is_flattering(self) -> bool:
        """Return whether the winner's mean is too high on average, as it was chosen for it.

        That of a candidate that saw all examples, or has no rival, is not; nor, by that alone, of
        one that was chosen for its price.
        """
        best = (Objective.BEST, Objective.BEST_UNDER_USD)
        by_mean = self.objective is None or self.objective.spec.name in best
        rivals = sum(row.estimate is not None for row in self.rows) > 1
        seen_all = self.winner is None or self.winner.n >= self.n_examples
        return by_mean and rivals and not seen_all

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
