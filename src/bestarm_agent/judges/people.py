"""Scores that people gave to single replies, in the place of a judge's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.judges.base import Calls, Judge, JudgeCall


class PeopleFirst:
    """Scores a reply as people did; one that nobody has scored is left to a judge.

    Args:
        judge: scores the rest.
        scores: in [0, 1], by the example's id and the digest of the reply's text.
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
        """Those of the judge: it is not known yet whether somebody has scored the reply."""
        return self._judge.longest_calls(example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score a reply; errors are the judge's."""
        given = self._scores.get((example.id, digest(reply.text)))
        if given is not None:
            return Score(given)
        return await self._judge.score(example, reply, calls)
