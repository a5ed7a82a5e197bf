"""What became of one asked pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import Blame, FailureKind


@dataclass(frozen=True, slots=True)
class Vote:
    """One judgement among those that a score is made of.

    Attributes:
        by: who judged, and what: the model, followed by the criterion or the order of the answers
            where there are several.
        value: in [0, 1].
        said: the verdict in the judge's own words ("7", "partially-correct", "second").
        why: its explanation, cut to a few hundred characters; "" if it gave none.
    """

    by: str
    value: float
    said: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's opinion of one reply.

    Attributes:
        value: in [0, 1].
        answer: what was read out of the reply and compared, or None.
        votes: the judgements that it is made of; empty for a rule.
        gold: in a certification, the trusted score of a reply whose example is labelled, in [0, 1].
        guesses: in a certification by several autoevaluators, the score that each of them gave, in
            [0, 1]; None for one that failed. Else empty.
    """

    value: float
    answer: str | None = None
    votes: tuple[Vote, ...] = ()
    gold: float | None = None
    guesses: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """The pair was evaluated.

    Attributes:
        value: score in [0, 1].
        answer: what was read out of the reply, or None.
        usage: tokens of the candidate's call.
        spend: everything that was spent on the pair, retries and judge included.
        seconds: wall-clock seconds of the successful call.
        reply_key: key of the reply in the reply cache.
        cached: whether the reply came from the cache.
        judge_spend: what of ``spend`` judging cost.
        votes: the judgements that the score is made of; empty for a rule.
        lost_spend: what of ``spend`` went into attempts at the candidate's call that brought no
            answer.
        usd_nanos: price of the answered call in nano-dollars, cached or not; None if not known.
        gold: in a certification, the trusted score of a reply whose example is labelled, in [0, 1].
        guesses: in a certification by several autoevaluators, the score that each of them gave, in
            [0, 1]; None for one that failed. Else empty.
    """

    value: float
    answer: str | None
    usage: Usage
    spend: Spend
    seconds: float
    reply_key: str
    cached: bool
    judge_spend: Spend = field(default_factory=Spend)
    votes: tuple[Vote, ...] = ()
    lost_spend: Spend = field(default_factory=Spend)
    usd_nanos: int | None = None
    gold: float | None = None
    guesses: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The pair could not be evaluated, or the candidate itself failed on it.

    Attributes:
        kind: what went wrong.
        blame: whose doing it was: only CANDIDATE counts, with the floor score.
        message: one line for people, free of secrets.
        spend: everything that was spent on the pair all the same.
        seconds: wall-clock seconds.
        reply_key: key of the stored reply, if one came back.
        judge_spend: what of ``spend`` judging cost.
        lost_spend: what of ``spend`` went into attempts at the candidate's call that brought no
            answer.
        usd_nanos: price of the answered call in nano-dollars; None if there was none, or if it is
            not known.
    """

    kind: FailureKind
    blame: Blame
    message: str
    spend: Spend
    seconds: float = 0.0
    reply_key: str | None = None
    judge_spend: Spend = field(default_factory=Spend)
    lost_spend: Spend = field(default_factory=Spend)
    usd_nanos: int | None = None


Outcome: TypeAlias = Scored | Failed
