"""Events of a run's log, from which everything else about the run is computed.

A run is ``Started``, gets its candidates, examples and budget, then any mix of ``Asked``,
``Attempted``, ``Settled`` and ``Told``, of ``Proposed``, of more candidates, more examples or
another budget, and of ``Stopped`` and ``Resumed``. Fields with defaults are absent from logs of
versions that did not record them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.value_class import value_class
from bestarm_agent.domain.values import Candidate, Outcome, Slice

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # first and last of each, ascending, not adjacent


def ranges_of(rows: Iterable[int]) -> Ranges:
    """Write ascending rows as ranges: thousands of candidates of one model are few numbers.

    Example:
        >>> ranges_of([1, 2, 3, 7])
        ((1, 3), (7, 7))
    """
    ranges: list[tuple[int, int]] = []
    for row in rows:
        if ranges and row == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], row)
        else:
            ranges.append((row, row))
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class Started:
    """A run began."""

    name: str  # what the user called the study
    at: str  # time, ISO 8601 in UTC
    version: str  # version of the package
    config: Mapping[str, Any]  # the resolved configuration, without keys and machine paths
    base: str  # directory that the configuration's paths start from, relative to the store's
    # name of what was learned from history, kept next to the store, or None
    lesson: str | None = None
    judge: str | None = None  # digest of the judge
    judge_priced: bool = True  # whether the prices of the judge's models are known
    kept_back: int = 0  # examples of the dataset that the run does not see
    scored_by: str = "rule"  # or "judge NAME", or "people"
    measures: tuple[str, ...] = ()  # names of the scores beside the score, in their order
    study: str | None = None  # the study's file, relative to the store's folder, if it has one
    study_digest: str | None = None  # of that file's content, to say where it was edited since
    changes: tuple[str, ...] = ()  # values that replaced those of the file, as KEY=VALUE


@dataclass(frozen=True, slots=True)
class CandidatesAdded:
    """Candidates joined as the next rows, in this order."""

    candidates: tuple[Candidate, ...]
    costs: tuple[float | None, ...] = ()  # most dollars of a call, without judging; None: unknown
    prices: tuple[str | None, ...] = ()  # sources of the prices, for people


@dataclass(frozen=True, slots=True)
class CandidatesBarred:
    """Candidates were excluded for good, for a reason other than their scores."""

    candidates: tuple[int, ...]  # rows
    reason: str  # for people


@dataclass(frozen=True, slots=True)
class ExamplesAdded:
    """Examples joined as the next columns, in this order."""

    ids: tuple[str, ...]
    digests: tuple[str, ...]  # of their contents, to recognise them in other runs and on resume
    slices: tuple[Slice, ...] = ()  # groups of them that are looked at by themselves
    independent: tuple[int, ...] = ()  # one of each cluster; empty: none depends on another


@value_class
class Asked:
    """The selector asked for a pair; logged before anything is sent."""

    seq: int  # the ask's number
    candidate: int  # row
    example: int  # column
    reason: str  # the rule's word for why
    # rows that could not be asked then: at a rate limit, or too expensive for the budget left
    excluded: Ranges = ()


@value_class
class Told:
    """An ask has an outcome, and the selector was told a score."""

    seq: int  # the ask's number
    outcome: Outcome
    score: float | None  # in [0, 1]; None if the pair is void
    elapsed: float = 0.0  # wall-clock seconds of the session so far


@dataclass(frozen=True, slots=True)
class Attempted:
    """A request is about to be sent, for a pair or for a proposer; durable before it leaves.

    ``Asked`` stands for the first attempt at the candidate's first draw, so that is not logged.
    """

    seq: int | None  # the ask's number; None: of a proposer
    key: str  # of the reply, in the reply cache
    cost: Spend  # the most that the attempt can cost
    judge: bool = False  # whether it is a judge's call
    priced: bool = True  # whether the model's price is known; else costs lack dollars


@value_class
class Settled:
    """An attempt is over, or a reply was found; ``Told`` settles all attempts of its pair."""

    seq: int | None  # the ask's number; None: of a proposer
    key: str  # of the attempt that is over; empty: the one that the ask stands for
    cost: Spend  # exactly, or its bound if nobody knows; 0: it was never sent
    judge: bool = False  # whether it was a judge's call


@dataclass(frozen=True, slots=True)
class Proposed:
    """Rounds of proposals are over, and what they proposed has joined."""

    rounds: int  # their number; all of them, once there is nothing more to propose


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """The caps from here on; they count everything that the run has spent."""

    budget: Budget
    configured: Budget | None = None  # the run's own caps; ``budget`` may hold for one call only


@dataclass(frozen=True, slots=True)
class Stopped:
    """A session ended."""

    at: str  # time, ISO 8601 in UTC
    # separated, exhausted, indifferent, within, verdict, served, budget, interrupted,
    # failures or error
    reason: str
    seconds: float  # wall-clock seconds of this session
    remarks: tuple[str, ...] = ()  # facts that the replies showed, for users, a sentence each
    # labels of the candidates that could not be called any more, with the reason
    broken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Another session began."""

    at: str  # ISO 8601 in UTC
    version: str  # of the package


Event: TypeAlias = (
    Started
    | CandidatesAdded
    | CandidatesBarred
    | ExamplesAdded
    | Asked
    | Attempted
    | Settled
    | Told
    | Proposed
    | BudgetSet
    | Stopped
    | Resumed
)
