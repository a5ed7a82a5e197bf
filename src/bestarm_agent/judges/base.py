"""The seam between a reply and its score: one contract for rules and LLM judges."""

from __future__ import annotations

from typing import Protocol

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.spend import Spend


class Judge(Protocol):
    """Scores replies.

    Attributes:
        name: what users call it.
        digest: digest of everything that decides a score (rule, options, template, model). Scores
            of two digests never mix in one estimate.
        needs_reference: whether every example must hold a reference answer.
    """

    name: str
    digest: str
    needs_reference: bool

    def bound(self, example: Example) -> Spend:
        """Upper bound of what judging one reply can cost; a rule costs nothing."""
        ...

    async def score(self, example: Example, reply: Reply) -> Score:
        """Score one reply, in [0, 1].

        Raises:
            JudgeError: blame CANDIDATE if the reply itself cannot be scored (no number in it, say),
                blame JUDGE if the judge failed.
        """
        ...
