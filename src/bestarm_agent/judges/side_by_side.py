"""Several autoevaluators of one certification: each keeps its own opinion."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.members import Tagging, longest_calls_of, models_of, scored
from bestarm_agent.judges.together import together


class SideBySide:
    """Lets several judges score a reply at once, and keeps what each of them said.

    Args:
        judges: at least two.
        floor: score in [0, 1] of a reply that a judge cannot read.
    """

    def __init__(self, judges: Sequence[Judge], floor: float = 0.0) -> None:
        self._judges = tuple(judges)
        self._floor = floor
        self.name = ", ".join(judge.name for judge in judges)
        self.needs_reference = any(judge.needs_reference for judge in judges)
        self.models = models_of(judges)
        self.digest = digest(["side-by-side", [judge.digest for judge in judges], floor])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Those of all judges."""
        return longest_calls_of(self._judges, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score a reply: the mean of the judges, and in ``guesses`` what each of them said.

        Raises:
            JudgeError: blame JUDGE if all of them failed.
        """
        asked = [
            scored(judge, example, reply, Tagging(calls, i)) for i, judge in enumerate(self._judges)
        ]
        results = await together(asked)
        guesses = tuple(self._guess(result) for result in results)
        known = [guess for guess in guesses if guess is not None]
        if not known:
            failures = [result for result in results if isinstance(result, JudgeError)]
            raise JudgeError(
                f"none of {len(self._judges)} autoevaluators scored the reply; {failures[0]}",
                kind=FailureKind.JUDGE_FAILED,
                blame=Blame.JUDGE,
                transient=any(failure.transient for failure in failures),
            )
        votes = [
            vote
            for judge, result in zip(self._judges, results, strict=True)
            if isinstance(result, Score)
            for vote in result.votes or (Vote(judge.name, result.value, result.answer or ""),)
        ]
        return Score(min(1.0, fmean(known)), votes=tuple(votes), guesses=guesses)

    def _guess(self, result: Score | JudgeError) -> float | None:
        if isinstance(result, Score):
            return result.value
        return self._floor if result.blame is Blame.CANDIDATE else None
