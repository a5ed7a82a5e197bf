"""Score replies with several autoevaluators of one certification."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.member_calls import (
    longest_calls_of,
    models_of,
    score_all,
    too_few,
    votes_of,
)


class SideBySide:
    """Lets several judges score a reply at once; ``floor`` is the score if one cannot read it."""

    def __init__(self, judges: Sequence[Judge], floor: float = 0.0) -> None:
        self._judges = tuple(judges)
        self._floor = floor
        self.name = ", ".join(judge.name for judge in judges)
        self.needs_reference = any(judge.needs_reference for judge in judges)
        self.models = models_of(judges)
        self.digest = digest(["side-by-side", [judge.digest for judge in judges], floor])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of all judges."""
        return longest_calls_of(self._judges, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return the mean score, and each in ``guesses``; raise JudgeError if all judges failed."""
        results = await score_all(self._judges, example, reply, calls)
        guesses = tuple(self._guess(result) for result in results)
        known = [guess for guess in guesses if guess is not None]
        if not known:
            failures = [result for result in results if isinstance(result, JudgeError)]
            raise too_few(f"none of {len(results)} autoevaluators scored the reply", failures)
        return Score(min(1.0, fmean(known)), votes=votes_of(self._judges, results), guesses=guesses)

    def _guess(self, result: Score | JudgeError) -> float | None:
        if isinstance(result, Score):
            return result.value
        return self._floor if result.blame is Blame.CANDIDATE else None
