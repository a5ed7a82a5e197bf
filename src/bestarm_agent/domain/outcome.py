"""Outcomes of asked pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bestarm_agent.domain.request_reply import clean_fields
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import Blame, FailureKind

RIGHT = 0.5  # a score of at least this counts as right


@dataclass(frozen=True, slots=True)
class Vote:
    """One judgement among those that a score is made of."""

    by: str  # the judging model, then the criterion or the order of answers if there are several
    value: float  # in [0, 1]
    said: str = ""  # the verdict in the judge's words: "7", "partially-correct", "second"
    why: str = ""  # its explanation, cut to a few hundred characters

    def __post_init__(self) -> None:
        """Replace lone surrogates."""
        clean_fields(self, "by", "said", "why")


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's score of one reply."""

    value: float  # in [0, 1]
    answer: str | None = None  # the text that was read out of the reply and compared, or None
    votes: tuple[Vote, ...] = ()  # the judgements that it is made of; empty for a rule
    gold: float | None = None  # the trusted score, in a certification, in [0, 1]
    measures: tuple[float | None, ...] = ()  # each further scorer's in [0, 1]; None: it failed

    def __post_init__(self) -> None:
        """Replace lone surrogates."""
        clean_fields(self, "answer")


@dataclass(frozen=True, slots=True)
class Scored:
    """The pair was evaluated; ``answer`` and what follows ``gold`` as in ``Score``."""

    value: float  # score in [0, 1]
    answer: str | None
    usage: Usage  # of the candidate's call
    spend: Spend  # everything spent on the pair, retries and judge included
    seconds: float  # wall-clock, of the successful call
    reply_key: str  # in the reply cache
    cached: bool = False  # the reply came from the cache
    judge_spend: Spend = field(default_factory=Spend)  # part of ``spend``: judging
    votes: tuple[Vote, ...] = ()
    lost_spend: Spend = field(default_factory=Spend)  # part of ``spend``: calls without an answer
    usd_nanos: int | None = None  # price of the answered call, cached or not; None: unknown
    gold: float | None = None
    measures: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The pair could not be evaluated, or the candidate itself failed on it."""

    kind: FailureKind
    blame: Blame  # only a failure of the CANDIDATE counts, with the floor score
    message: str  # one line for people, free of secrets
    spend: Spend
    seconds: float = 0.0
    reply_key: str | None = None  # of the stored reply, if one came back
    judge_spend: Spend = field(default_factory=Spend)
    lost_spend: Spend = field(default_factory=Spend)
    usd_nanos: int | None = None

    def __post_init__(self) -> None:
        """Replace lone surrogates."""
        clean_fields(self, "message")


Outcome: TypeAlias = Scored | Failed
