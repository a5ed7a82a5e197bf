"""What became of one asked pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import Blame, FailureKind


@dataclass(frozen=True, slots=True)
class Score:
    """A judge's opinion of one reply.

    Attributes:
        value: in [0, 1].
        answer: what was read out of the reply and compared, or None.
        spend: what judging cost.
    """

    value: float
    answer: str | None = None
    spend: Spend = field(default_factory=Spend)


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
    """

    value: float
    answer: str | None
    usage: Usage
    spend: Spend
    seconds: float
    reply_key: str
    cached: bool


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
    """

    kind: FailureKind
    blame: Blame
    message: str
    spend: Spend
    seconds: float = 0.0
    reply_key: str | None = None


Outcome: TypeAlias = Scored | Failed
