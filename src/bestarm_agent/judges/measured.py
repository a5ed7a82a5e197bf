"""Score replies with one judge, and measure them with others beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.base_judge import BaseJudge, JudgeOptions
from bestarm_agent.judges.member_calls import longest_calls_of, models_of, score_all


class MeasuredJudge(BaseJudge[JudgeOptions]):
    """Returns the score of ``judge``, with those of ``measures`` in their order."""

    def __init__(self, judge: Judge, measures: Mapping[str, Judge]) -> None:
        super().__init__(f"{judge.name} and {', '.join(measures)}", JudgeOptions())
        self._members = (judge, *measures.values())
        self.needs_reference = any(one.needs_reference for one in self._members)
        self.models = models_of(self._members)
        named = [[name, one.digest] for name, one in measures.items()]
        self.digest = digest(["measured", judge.digest, named])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of all judges."""
        return longest_calls_of(self._members, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score and measure a reply at once; raise what the judge raises.

        A measure is None where its judge failed.
        """
        first, *others = await score_all(self._members, example, reply, calls)
        if isinstance(first, JudgeError):
            raise first
        measures = [one.value if isinstance(one, Score) else None for one in others]
        return replace(first, measures=tuple(measures))
