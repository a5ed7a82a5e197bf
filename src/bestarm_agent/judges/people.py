"""The scorer of a study whose answers people score, after they were collected."""

from __future__ import annotations

from bestarm_agent.domain.values import Example, Reply, Score
from bestarm_agent.judges.base import Calls, Judge

# The log of a run has a score for every answer. This one is replaced by people's labels, and no
# view of the run shows it before.
_UNKNOWN = 0.5  # in the log, where every answer has a score; nobody is shown it


class PeopleJudge(Judge):
    """Leaves the score to people; they label the answers of a run once they are collected."""

    adapter = "people"

    @property
    def scored_by(self) -> str:
        """Name who decides."""
        return "people"

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return a score that says nothing."""
        return Score(_UNKNOWN)
