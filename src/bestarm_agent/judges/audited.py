"""Audit an autoevaluator: a trusted judge also scores some of the replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall


class AuditedJudge(Judge):
    """Scores replies with one judge, and those to labelled examples with a trusted one too.

    ``labelled`` holds the examples by id, with the label as their reference; ``floor`` is the score
    in [0, 1] of a reply that a judge cannot read.
    """

    needs_reference = False  # each of the two was checked against its own examples

    def __init__(
        self,
        autoevaluator: Judge,
        trusted: Judge,
        labelled: Mapping[str, Example],
        floor: float = 0.0,
    ) -> None:
        self._floor = floor
        self.autoevaluator = autoevaluator
        self._trusted = trusted
        self._labelled = labelled
        self.name = f"{autoevaluator.name}, audited by {trusted.name}"
        self.models = (*autoevaluator.models, *trusted.models)
        labels = sorted(example.digest for example in labelled.values())
        self.digest = digest([autoevaluator.digest, trusted.digest, labels, floor])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of both judges."""
        calls = list(self.autoevaluator.longest_calls(example))
        if (labelled := self._labelled.get(example.id)) is not None:
            calls += self._trusted.longest_calls(labelled)
        return calls

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1]; ``gold`` is the trusted judge's score, None if it failed.

        A reply that the autoevaluator cannot read gets the floor, since the trusted judge may read
        it. If the autoevaluator fails, JudgeError blames the judge.
        """
        try:
            score = await self.autoevaluator.score(example, reply, calls)
        except JudgeError as error:
            if error.blame is not Blame.CANDIDATE:
                raise
            score = Score(self._floor)
        labelled = self._labelled.get(example.id)
        if labelled is None:
            return score
        return replace(score, gold=await self._gold(labelled, reply, calls))

    async def _gold(self, example: Example, reply: Reply, calls: Calls) -> float | None:
        try:
            return (await self._trusted.score(example, reply, calls)).value
        except JudgeError as error:
            return self._floor if error.blame is Blame.CANDIDATE else None
