"""The answers of the candidates that a router chose for a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm_agent.domain.example import Example


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one candidate to a prompt."""

    candidate: str  # its label
    # the judge's, in [0, 1]; the floor score where the candidate failed; None where it could not be
    # measured, or was not called because the budget ended
    score: float | None
    answer: str | None  # what the judge read out of the reply, or None
    usd: float | None  # dollars that it cost, judging included; None where the price is not known
    problem: str | None = None  # why there is no reply or no score, or None


@dataclass(frozen=True, slots=True)
class Served:
    """The answers to one prompt."""

    example: Example  # the prompt
    answers: tuple[Answer, ...]  # of the candidates chosen, in the order of choice
    learnt: bool  # whether the router learned from it

    @property
    def winner(self) -> Answer | None:
        """The answer of the highest score; the one chosen first among equals, None without any."""
        scored = [answer for answer in self.answers if answer.score is not None]
        return max(scored, key=lambda answer: answer.score or 0.0, default=None)
