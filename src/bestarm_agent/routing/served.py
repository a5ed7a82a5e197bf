"""What the candidates made of a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm_agent.domain.example import Example


@dataclass(frozen=True, slots=True)
class Answer:
    """What one candidate made of a prompt.

    Attributes:
        candidate: its label.
        score: the judge's, in [0, 1]; the floor score where the candidate failed; None where it
            could not be measured, or was not called because the budget ended.
        answer: what the judge read out of the reply, or None.
        usd: dollars that it cost, judging included.
        problem: why there is no reply or no score, or None.
    """

    candidate: str
    score: float | None
    answer: str | None
    usd: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What became of one prompt.

    Attributes:
        example: the prompt.
        answers: of the candidates chosen, in the order of choice.
        learnt: whether the router learned from it.
    """

    example: Example
    answers: tuple[Answer, ...]
    learnt: bool

    @property
    def winner(self) -> Answer | None:
        """The answer of the highest score; the one chosen first among equals, None without any."""
        scored = [answer for answer in self.answers if answer.score is not None]
        return max(scored, key=lambda answer: answer.score or 0.0, default=None)
