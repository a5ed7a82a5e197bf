"""Judges score replies, by rule or by asking a model."""

from bestarm_agent.domain.values import Example, Message, Reply, Request, Score, Vote
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeCall,
    JudgeModel,
    JudgeOptions,
    JudgeSetup,
    candidate_failed,
    judge_failed,
    refuse_declined,
    unparsable,
)

__all__ = [
    "Blame",
    "Calls",
    "Example",
    "FailureKind",
    "Judge",
    "JudgeCall",
    "JudgeError",
    "JudgeModel",
    "JudgeOptions",
    "JudgeSetup",
    "Message",
    "Reply",
    "Request",
    "Score",
    "Vote",
    "candidate_failed",
    "judge_failed",
    "refuse_declined",
    "unparsable",
]
