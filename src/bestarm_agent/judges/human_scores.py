"""Use the scores that people gave to single replies instead of those of a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.judges.base import Calls, Judge, JudgeCall


class HumanScores(Judge):
    """Returns the score in [0, 1] that people gave to a reply; without one, a judge scores it.

    ``scores`` are keyed by the example's id and the digest of the reply's text.
    """

    def __init__(self, judge: Judge, scores: Mapping[tuple[str, str], float]) -> None:
        self._judge = judge
        self._scores = dict(scores)
        self.name = f"people, else {judge.name}"
        self.needs_reference = judge.needs_reference
        self.models = judge.models
        given: list[Json] = [[*key, scores[key]] for key in sorted(scores)]
        self.digest = digest(["people", judge.digest, given])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of the judge: it is not known yet whether people scored the reply."""
        return self._judge.longest_calls(example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score a reply; raises the errors of the judge."""
        given = self._scores.get((example.id, digest(reply.text)))
        if given is not None:
            return Score(given)
        return await self._judge.score(example, reply, calls)
