"""The standing of a run: its candidates with what was seen of them, and the decision.

``from_log`` works a standing out from a run's log; ``decision`` adds the decision to it.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from html import escape
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from typing import Any

from bestarm_agent.config.goal_specs import Constraint, ObjectiveSpec
from bestarm_agent.domain.spend import NANOS_PER_USD, Budget, Spend
from bestarm_agent.domain.text import duration, money, percent, safe, span
from bestarm_agent.domain.value_class import value_class
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.engine.results.new_examples import Against, NewExamples
from bestarm_agent.engine.scorer_signs import ScorerFault
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.store.export import PairOutcome

# Why a run ends by itself: no call that it would make could change the decision.
SETTLED = frozenset({"separated", "exhausted", "indifferent", "level", "within", "verdict"})


class Status(StrEnum):
    """The group of a candidate, in the words that people read everywhere."""

    TAKE = "take"  # the one to use
    LEADING = "leading"  # the same while the run goes on
    EQUAL = "about equal"  # these examples cannot tell it from the one to use
    GOOD = "good enough"  # by an objective that asks for the cheapest such; it is no cheaper
    UNDECIDED = "undecided"  # further calls could show which is better
    WORSE = "worse"  # ruled out at the confidence
    BARRED = "breaks a limit"  # ruled out: it breaks a limit of the objective, such as its price
    UNMEASURED = "not measured"  # it was not tried, or it cannot be called


class ProblemKind(StrEnum):
    """Kinds of obstacles to a decision, the worst first."""

    NO_SCORES = "no scores"
    SCORER = "scorer"  # it seems to reject right answers
    NOTHING_RIGHT = "nothing right"
    CALLS = "calls"  # too many answers could not be had, or a model cannot be called
    CAP_PASSED = "cap passed"
    TOO_FEW = "too few examples"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that stands in the way of a decision."""

    kind: ProblemKind
    text: str  # a sentence without its full stop


@dataclass(frozen=True, slots=True)
class Next:
    """One thing to do."""

    text: str  # a sentence without its full stop
    command: str | None = None  # that does it

    @property
    def said(self) -> str:
        """Return it as a sentence."""
        return f"Next: {self.text}{f': `{self.command}`' if self.command else ''}."


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A candidate of which nothing is known, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cheaper:
    """The cheapest of those that are about as good as the one to take."""

    label: str
    price: float  # of its use, as a share of that of the one to take, in [0, 1)
    # with probability ``probability`` it is at most so much worse on new examples, in [0, 1]
    at_most: float
    probability: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a run. Each candidate stands in exactly one of the groups.

    Labels are those of the candidates; ``take`` is the caller's own object where it gave objects.
    """

    take: Any  # the candidate to use; None if there is none, for the first problem
    as_good: tuple[str, ...]  # these examples cannot tell them from it, and the run ended for that
    cheaper: Cheaper | None  # the cheapest of ``as_good``; None if none is, or prices are unknown
    undecided: tuple[str, ...]  # further calls could show which is better
    worse: tuple[str, ...]  # ruled out at the confidence, or by a limit of the objective
    unmeasured: tuple[Unmeasured, ...]  # not tried, or cannot be called
    # that none of the others is better on new examples; None where nothing is known of that
    chance: float | None
    proved: bool  # whether what was asked for is shown at ``confidence``
    proved_for: str  # what was asked for: "seen" (the examples of the study) or "new" (ones)
    confidence: float  # in (0, 1)
    scored_by: str  # "rule", "judge NAME" or "people"
    problem: Obstacle | None  # the worst one
    next: Next | None  # what to do; None while the run goes on
    said: tuple[str, ...]  # its sentences, the one on what to take first

    @property
    def text(self) -> str:
        """Return its sentences in one line."""
        return " ".join(self.said)


_FIRST_ROWS, _SHOWN_ROWS = 5, 60  # of a text, and in a notebook
_FRAMES = ("pandas", "polars")


class LimitState(StrEnum):
    """State of a candidate at a limit."""

    KEPT = "kept"  # shown, under the guarantee
    BROKEN = "broken"  # shown
    OPEN = "undecided"  # neither is shown yet


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The winner on the examples kept back, which had no say in the choice."""

    label: str
    n: int  # scores
    void: int  # answers that could not be had
    mean: Measure  # for new examples of the same kind
    held_back: int  # examples
    confidence: float  # of this, and of what was stated of earlier winners, together

    @property
    def text(self) -> str:
        """Say what is known of its mean, and by how many examples."""
        is_whole = self.n + self.void == self.held_back
        asked = counted(self.n if is_whole else self.held_back, "example")
        asked = asked if is_whole else f"{self.n:,} of {asked}"
        void = f", {self.void:,} without an answer" if self.void else ""
        mean = "-" if math.isnan(self.mean.value) else percent(self.mean.value)
        sure = percent(self.confidence, exact=True)
        of = f"{mean} ({span(self.mean.lower, self.mean.upper)}) on {asked} kept back{void}"
        return f"{safe(self.label)}: {of}; {sure} sure for new ones"


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


@value_class
class Row:
    """One candidate."""

    index: int  # its row number in the log
    candidate: Candidate
    n: int  # scores seen
    total: float  # sum of the scores seen; the number of right answers where scores are 0 or 1
    pending: int  # answers under way; of a run that has ended, those left unfinished
    void: int  # answers that could not be had
    failed: int  # answers that failed by its own doing
    estimate: float | None  # of its mean over all examples; None without a score
    lower: float  # lower end of its interval, at the joint confidence
    upper: float  # upper end
    spend: Spend  # its cost, judging and lost attempts included
    problem: str | None  # why it cannot be called, or which limit it breaks
    status: Status = Status.UNDECIDED  # its group in the decision; the standing fills it in
    is_broken: bool = False  # it cannot be called any more
    is_barred: bool = False  # it is shown to break a limit of the objective
    is_ruled_out: bool = False  # it is shown not to be what was asked for, on these examples
    against: Against | None = None  # the one that is named; None where that is not compared
    # what 1,000 of its answers take, replies from the cache as if they were bought, judging apart
    usd_per_1000: float | None = None  # None where no price is known
    gpu_seconds_per_1000: float | None = None  # of local workers; None where there are none
    p50_seconds: float | None = None  # half of its answered calls took at most this, waits apart
    p95_seconds: float | None = None  # 95 % of them did; None without a timed one
    price: Measure | None = None  # dollars of 1,000 calls, where the objective depends on it
    limits: tuple[RowLimit, ...] = ()  # of the objective
    price_source: str | None = None  # where its price comes from, for people
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars
    output_tokens: float | None = None  # mean of a scored reply; None where no token was counted
    measures: tuple[RowMeasure, ...] = ()  # by name

    def with_status(self, status: Status) -> Row:
        """Return it in another group; ``dataclasses.replace`` takes five times as long."""
        values = list(_VALUES(self))
        values[_STATUS] = status
        return Row(*values)

    @property
    def void_bounds(self) -> tuple[float, float]:
        """Return the mean of its pairs if every void one had scored 0, and 1."""
        measured = self.n + self.void
        if not measured:
            return 0.0, 1.0
        return self.total / measured, (self.total + self.void) / measured


def seen(row: Row, *, graded: bool) -> str:
    """Write what was seen of a candidate for a table: right of asked, or the mean score.

    A failure of the candidate itself counts as asked and scores the floor.
    """
    if not row.n:
        return "-"
    mean = f"{percent(row.total / row.n)} of {row.n:,}"
    return mean if graded else f"{row.total:,.0f} of {row.n:,}"


def hidden_line(rows: Sequence[Row]) -> str:
    """Count rows that are not shown, by state; "" if there is none.

    Example:
        >>> hidden_line([])
        ''
    """
    counts = Counter(row.status for row in rows)
    states = ", ".join(f"{counts[status]:,} {status}" for status in Status if counts[status])
    if len(counts) == 1:  # the number is said once
        return f"... and {len(rows):,} more, {'all ' * (len(rows) > 1)}{rows[0].status}"
    return f"... and {len(rows):,} more: {states}" if rows else ""


def estimate(row: Row) -> str:
    """Write the rule's estimate of a candidate's mean; shown with its ``interval``."""
    return "-" if row.estimate is None else percent(row.estimate, whole=True)


def interval(row: Row) -> str:
    """Write a candidate's interval; none where every example was seen."""
    return "all seen" if row.lower == row.upper else span(row.lower, row.upper)


def unscored(row: Row) -> Row:
    """Return the row of a candidate whose answers nobody has scored."""
    return replace(
        row, n=0, total=0.0, estimate=None, lower=0.0, upper=1.0, is_ruled_out=False, against=None
    )


# A page that follows a run groups thousands of rows anew each time; see ``with_status``.
_FIELDS = tuple(field.name for field in fields(Row))
_VALUES, _STATUS = attrgetter(*_FIELDS), _FIELDS.index("status")


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
    spend: Spend  # what it cost; answers are counted where candidates were called
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars


@dataclass(frozen=True, slots=True)
class Standing:
    """All candidates, best first, the state of the run, and the decision that follows from them.

    After ``dataclasses.replace``, ``decided`` makes the decision anew.
    """

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
    asked: int  # answers asked for
    told: int  # answers that came, or could not be had
    in_flight: int  # answers under way
    waits: tuple[Wait, ...]  # why calls wait
    spent: Spend  # by the whole run
    budget: Budget  # the caps
    seconds: float  # wall-clock seconds of all sessions
    end: str | None  # why the last session ended; None while it runs
    configured: Budget | None = None  # the study's own caps, where ``budget`` is a stage's
    latest_failure: str = ""  # the message of the latest failure
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
    reused: int = 0  # answers from the reply cache
    to_confirm: int = 0  # further answers: of winners, to the examples kept back
    confirmation: Confirmation | None = None  # None until the winner answered what was kept back
    seeks_best: bool = True  # whether the run looks for the best; a gate has another aim
    scored_by: str = "rule"  # or "judge NAME", or "people"
    suspect: ScorerFault | None = None  # signs that replies are scored wrongly
    scorer_trusted: bool = False  # whether the study says that its scorer means what it rejects
    n_independent: int = 0  # examples that do not depend on each other; draws count once
    unit: str = "example"  # or "cluster" where examples belong together
    objects: tuple[object, ...] = field(default=(), repr=False)  # the caller's own, by row number
    # those scored, with their texts, of a run whose store is gone with it: of ``find_best``
    answers: tuple[PairOutcome, ...] = field(default=(), repr=False)
    decision_by_people: Decision | None = None  # once people have labelled answers
    # the study's file, relative to the store's folder; None without one
    study: str | None = field(default=None, repr=False)
    changes: tuple[str, ...] = ()  # values that replaced those of the file, as KEY=VALUE
    # None while it is being made, by ``decision.decided``
    _decision: Decision | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        said = self.decision.text or "no winner is looked for"
        return f"<Standing of run {self.run_id}: {' '.join([said, *self._accounts[:-1]])}>"

    def __str__(self) -> str:
        """Write the decision, the first candidates and the accounts, as a terminal shows them."""
        cells = self._table(_FIRST_ROWS)[1:]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()
            for texts in cells
        ]
        lines += filter(None, [self.parted(_FIRST_ROWS)[1]])
        return "\n".join([*self.said, "", *lines, "", *self._accounts])

    def _repr_html_(self) -> str:
        """Show the same in a notebook, with more candidates."""
        first, *others = self.said or ("",)
        paragraphs = f"<p><b>{escape(first)}</b></p>"
        paragraphs += "".join(f"<p>{escape(sentence)}</p>" for sentence in others)
        heads, *rows = self._table(_SHOWN_ROWS)
        lines = ["".join(f"<th>{head}</th>" for head in heads)]
        lines += ["".join(f"<td>{escape(cell)}</td>" for cell in cells) for cells in rows]
        table = "".join(f"<tr>{line}</tr>" for line in lines)
        note = (hidden := self.parted(_SHOWN_ROWS)[1]) and f"<p>{hidden}</p>"
        accounts = "".join(f"<p>{escape(line)}</p>" for line in self._accounts)
        return f"{paragraphs}<table>{table}</table>{note}{accounts}"

    def parted(self, most: int) -> tuple[Sequence[Row], str]:
        """Return ``most`` candidates, the one to take among them, and a line on the others."""
        shown, winner = self.rows[:most], self.winner
        if winner is None or any(row is winner for row in shown):
            return shown, hidden_line(self.rows[most:])
        others = [row for row in self.rows[most - 1 :] if row is not winner]
        return (*shown[:-1], winner), hidden_line(others)

    @property
    def seen_title(self) -> str:
        """Name the column of what was seen of each candidate."""
        return "mean score" if self.graded else "right"

    def _table(self, most_rows: int) -> list[tuple[str, ...]]:
        """Write the heads and the first candidates, without a column that is empty."""
        sure = percent(self.confidence, exact=True)
        heads = "candidate", self.seen_title, "estimate", f"{sure} interval"
        rows = map(self._cells, self.parted(most_rows)[0])
        columns = zip((*heads, "per 1,000", "state"), *rows, strict=True)
        return [*zip(*(column for column in columns if any(column[1:])), strict=True)] or [()]

    def _cells(self, row: Row) -> tuple[str, ...]:
        """Write a candidate as the columns of the table."""
        price = row.usd_per_1000 and money(round(row.usd_per_1000 * NANOS_PER_USD))
        texts = seen(row, graded=self.graded), estimate(row), interval(row)
        return safe(row.candidate.label), *texts, price or "", row.status.value

    @property
    def _accounts(self) -> list[str]:
        """Say how the winner was confirmed, if it was, and what was spent."""
        said = [f"Confirmed: {self.confirmation.text}"] if self.confirmation else []
        parts = [f"{self.asked:,} of {self.grid:,} answers ({percent(self.share)}){self.further}"]
        parts += [money(self.spent.usd_nanos)] if self.priced else []
        return [*said, f"Spent: {', '.join(parts)}, {duration(self.seconds)}"]

    def to_frame(self) -> Any:  # noqa: ANN401 - of a library that may be missing
        """Return the candidates, best first, as a DataFrame of pandas or polars.

        Of the one that is imported already, else of the one that is installed.

        Raises:
            ConfigError: neither is installed.
        """
        # what is imported already comes first: a notebook that works with polars wants no pandas
        names = sorted(_FRAMES, key=lambda name: name not in sys.modules)
        name = next((name for name in names if find_spec(name) is not None), None)
        if name is None:
            raise ConfigError("a DataFrame needs pandas or polars; run: pip install pandas")
        rows = [
            {
                "candidate": row.candidate.label,
                "state": row.status.value,
                "answers": row.n,
                "mean": row.total / row.n if row.n else None,
                "estimate": row.estimate,
                "lower": row.lower,
                "upper": row.upper,
                "usd_per_1000": row.usd_per_1000,
                "p50_seconds": row.p50_seconds,
                "model": f"{row.candidate.provider}/{row.candidate.model}",
                "prompt": row.candidate.prompt.name,
            }
            for row in self.rows
        ]
        return import_module(name).DataFrame(rows)

    @property
    def decision(self) -> Decision:
        """The decision: what to take, how sure that is, and what to do next."""
        if self._decision is None:
            raise ValueError("this standing has no decision yet; `decided` makes it")
        return self._decision

    @property
    def said(self) -> tuple[str, ...]:
        """The sentences of the decision and, once people have labelled answers, of theirs."""
        own, by_people = self.decision, self.decision_by_people
        if by_people is None or not by_people.proved:
            return (*own.said, *(by_people.said if by_people else ()))
        # what people prove comes first, and the judge's advice is no longer given
        advice = own.next and own.next.said
        return (*by_people.said, *(line for line in own.said if line != advice))

    @property
    def is_settled(self) -> bool:
        """Return whether the run ended because no call of its own could change the decision."""
        is_whole = self.told >= self.grid and not self.in_flight
        return self.end in SETTLED or (self.end is not None and (is_whole or self.level))

    @property
    def priced(self) -> bool:
        """Return whether the price of every candidate is known."""
        return all(row.priced for row in self.rows)

    @property
    def unfinished(self) -> int:
        """Number of answers asked for that the run ended without; `resume` asks for them again."""
        return 0 if self.end is None else self.asked - self.told

    @property
    def further(self) -> str:
        """Count the answers that are not like others, to follow the number of all."""
        counts = (self.unfinished, "unfinished"), (self.to_confirm, "more to confirm")
        return "".join(f", {n:,} {what}" for n, what in counts if n)

    @property
    def rivals_by_voids(self) -> tuple[Row, ...]:
        """The candidates that could win if void pairs had been measured."""
        # By the evidence alone: the decision asks for these while it is being made. Where it is
        # proved that the leader is the best, the proof has counted missing scores at their worst.
        winner = self._named
        proved = self.separated or self.margin == 0
        if winner is None or (proved and self.guarantee is not Guarantee.HEURISTIC):
            return ()
        return tuple(
            row
            for row in self.rows
            if row.index != winner.index
            and not row.is_barred
            and (row.void or (winner.void and row.n))
            and row.void_bounds[1] > winner.void_bounds[0]
        )

    @property
    def _named(self) -> Row | None:
        """The candidate that answers the objective, by the evidence alone."""
        if self.objective is None:
            return self.best
        return next((row for row in self.rows if row.index == self.objective.answer), None)

    @property
    def winner(self) -> Row | None:
        """The candidate to take, or the one that leads so far; None if the decision names none."""
        named = (Status.TAKE, Status.LEADING)
        return next((row for row in self.rows if row.status in named), None)

    @property
    def grid(self) -> int:
        """Number of all K x N answers."""
        return len(self.rows) * self.n_examples

    @property
    def share(self) -> float:
        """Share of all answers that was asked for, in [0, 1]."""
        return self.asked / self.grid if self.grid else 0.0

    @property
    def best(self) -> Row | None:
        """The candidate with the highest estimate; None before any score is seen."""
        return self.rows[0] if self.rows and self.rows[0].estimate is not None else None
