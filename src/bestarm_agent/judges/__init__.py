"""Judges score replies, by rule or by asking a model."""

from typing import TYPE_CHECKING

from bestarm_agent.plugins.public_names import lazy_names

if TYPE_CHECKING:
    from bestarm_agent.domain.candidate import Message
    from bestarm_agent.domain.example import Example
    from bestarm_agent.domain.outcome import Score, Vote
    from bestarm_agent.domain.request_reply import Reply, Request
    from bestarm_agent.errors import Blame, FailureKind, JudgeError
    from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel
    from bestarm_agent.judges.base_judge import BaseJudge, JudgeOptions, JudgeSetup
    from bestarm_agent.judges.rules.base import (
        candidate_failed,
        judge_failed,
        refuse_declined,
        unparsable,
    )

__all__ = [
    "BaseJudge",
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

if not TYPE_CHECKING:  # else type checkers would accept every name
    __getattr__ = lazy_names(
        globals(),
        {
            "domain.candidate": ("Message",),
            "domain.example": ("Example",),
            "domain.outcome": ("Score", "Vote"),
            "domain.request_reply": ("Reply", "Request"),
            "errors": ("Blame", "FailureKind", "JudgeError"),
            "judges.base": ("Calls", "Judge", "JudgeCall", "JudgeModel"),
            "judges.base_judge": ("BaseJudge", "JudgeOptions", "JudgeSetup"),
            "judges.rules.base": (
                "candidate_failed",
                "judge_failed",
                "refuse_declined",
                "unparsable",
            ),
        },
    )
