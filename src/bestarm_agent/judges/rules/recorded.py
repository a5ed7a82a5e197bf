"""Use the score that was recorded with a replayed reply."""

from __future__ import annotations

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.judges.base import Calls
from bestarm_agent.judges.base_judge import BaseJudge
from bestarm_agent.judges.rules.base import judge_failed


class RecordedJudge(BaseJudge):
    """Returns the recorded score and ignores the text of the reply."""

    adapter = "recorded"

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return the recorded score; raise JudgeError, blame JUDGE, if none is in [0, 1]."""
        if reply.score is None:
            raise judge_failed(
                f"no score is recorded for example `{example.id}`; let judge `{self.name}` score "
                "only records that hold scores, or choose a judge that reads the answer"
            )
        if not 0.0 <= reply.score <= 1.0:  # NaN fails this too
            raise judge_failed(
                f"the score recorded for example `{example.id}` must be in [0, 1], "
                f"got {reply.score}"
            )
        return Score(value=reply.score)
