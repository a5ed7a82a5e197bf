"""The event log of a run: the truth, from which everything else is folded.

A run is ``Started``, gets its candidates, examples and budget, then any mix of ``Asked`` and
``Told``, of more candidates, more examples or another budget, and of ``Stopped`` and ``Resumed``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.domain.spend import Books, Budget


@dataclass(frozen=True, slots=True)
class Started:
    """A run began.

    Attributes:
        name: what the user called the study.
        at: when, ISO 8601 in UTC.
        version: version of the package.
        config: the resolved configuration; keys and machine paths are not in it.
        base: directory that the configuration's paths start from, relative to the store's.
        lesson: name of what was learned from history, kept next to the store, or None.
        judge: digest of the judge; None in runs of versions that did not record it.
    """

    name: str
    at: str
    version: str
    config: Json
    base: str
    lesson: str | None = None
    judge: str | None = None


@dataclass(frozen=True, slots=True)
class CandidatesAdded:
    """Candidates joined as the next rows, in this order.

    Attributes:
        candidates: what joined.
        costs: of each, the most dollars that a call can cost, judging left aside, as known when it
            joined; None where no price is known. Empty in logs of versions that did not record it.
        prices: of each, where its price comes from, for people; None where no price is known.
    """

    candidates: tuple[Candidate, ...]
    costs: tuple[float | None, ...] = ()
    prices: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidatesBarred:
    """Candidates left the competition for good, for a reason that is not their scores.

    Attributes:
        candidates: row indices.
        reason: why, for people.
    """

    candidates: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ExamplesAdded:
    """Examples joined as the next columns, in this order.

    Attributes:
        ids: their ids.
        digests: digests of their contents, to recognise them in other runs and on resume.
    """

    ids: tuple[str, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """The selector asked for a pair; logged before a byte is sent.

    Attributes:
        seq: the ask's number.
        candidate: row index.
        example: column index.
        propensity: probability of having drawn this example, in (0, 1], or None.
        reason: the rule's word for why.
        excluded: rows that could not be asked at that moment (throttled, or too dear for what was
            left of the budget).
    """

    seq: int
    candidate: int
    example: int
    propensity: float | None
    reason: str
    excluded: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """An ask came to its end.

    Attributes:
        seq: the ask's number.
        outcome: what became of it.
        score: what the selector was told, in [0, 1]; None if the pair is void.
        elapsed: wall-clock seconds of the sitting so far: what a killed one leaves of its time.
    """

    seq: int
    outcome: Outcome
    score: float | None
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """The caps from here on; they count everything that the run has spent."""

    budget: Budget


@dataclass(frozen=True, slots=True)
class Stopped:
    """A sitting ended.

    Attributes:
        at: when, ISO 8601 in UTC.
        reason: "separated", "exhausted", "indifferent", "verdict", "served", "budget",
            "interrupted", "failures" or "error".
        seconds: wall-clock seconds of this sitting.
        books: what was set aside and where it went; all nothing in logs of versions that did not
            record it.
        remarks: what the replies showed that users should know, a sentence each.
    """

    at: str
    reason: str
    seconds: float
    books: Books = field(default_factory=Books)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """Another sitting began.

    Attributes:
        at: when, ISO 8601 in UTC.
        version: version of the package.
    """

    at: str
    version: str


Event: TypeAlias = (
    Started
    | CandidatesAdded
    | CandidatesBarred
    | ExamplesAdded
    | Asked
    | Told
    | BudgetSet
    | Stopped
    | Resumed
)
