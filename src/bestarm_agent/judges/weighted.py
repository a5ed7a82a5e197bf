"""Weigh the verdicts that a judge could have given by the probabilities of their tokens.

Rate an answer on one criterion; the score is the mean over the scale, by probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pydantic import Field, model_validator

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.judges.model import Judgement, ModelJudge, ModelJudgeOptions, Query
from bestarm_agent.judges.verdicts import UnreadableError, said_at_last

TOP_LOGPROBS = 20  # the most that OpenAI's API gives


def weighted_worth(reply: Reply, worth: Mapping[str, float]) -> tuple[float, str]:
    """Return the mean worth of the tokens, weighted by their probabilities at the verdict.

    Without log probabilities the written token counts. ``worth`` is in [0, 1], by token without
    white space. Raises UnreadableError if no position of the reply holds one of the tokens.

    Example:
        >>> from bestarm_agent.domain.request_reply import Position, Token
        >>> both = (Token("m", math.log(0.6)), Token("M", math.log(0.2)))
        >>> value, said = weighted_worth(
        ...     Reply("m", logprobs=(Position(both[0], both),)), {"m": 1.0, "M": 0.0}
        ... )
        >>> round(value, 6), said
        (0.75, 'm')
    """
    if reply.finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        raise UnreadableError("the judge refused to answer")
    for position in reply.logprobs:
        said = position.chosen.text.strip()
        if said in worth:
            mass = dict.fromkeys(worth, 0.0)
            for token in position.alternatives or (position.chosen,):
                if token.text.strip() in mass:
                    mass[token.text.strip()] += math.exp(token.logprob)
            total = sum(mass.values())
            if total <= 0:
                return worth[said], said
            return sum(worth[token] * share for token, share in mass.items()) / total, said
    said = reply.text.strip(" \t\r\n*_`\"'.")
    if reply.logprobs or said not in worth:
        raise UnreadableError(f"{reply.text[:60]!r} is none of the tokens asked for")
    return worth[said], said


_AROUND = " \t\r\n*_`\"'."


class GEvalOptions(ModelJudgeOptions):
    """Options of ``g-eval``."""

    rubric: str = Field(min_length=1)  # the criterion, in words
    steps: tuple[str, ...] = ()  # how to evaluate it, one after the other
    # the worst score and the best, of one digit each: a token of every model
    scale: tuple[int, int] = (1, 5)
    logprobs: bool = True  # whether scores are weighted by their probabilities; else one counts

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.scale[0] == self.scale[1] or not all(0 <= end <= 9 for end in self.scale):
            raise ValueError(f"`scale` needs two digits that differ, got {list(self.scale)}")
        if self.verdict != "json":
            raise ValueError("`g-eval` reads a bare score; leave out `verdict`")
        return self


class GEvalJudge(ModelJudge[GEvalOptions]):
    """Asks for a score alone, and weighs all scores by the probabilities of their tokens.

    Liu et al. 2023, "G-Eval", equation 1, with the probabilities of the scale's tokens made to add
    up to 1. Their criteria are rated one by one: an `ensemble` of such judges has several.
    """

    adapter = "g-eval"
    options_type = GEvalOptions

    def __init__(self, name: str, options: GEvalOptions) -> None:
        super().__init__(name, options)
        worst, best = options.scale
        digits = range(min(worst, best), max(worst, best) + 1)
        self._worth = {str(digit): (digit - worst) / (best - worst) for digit in digits}

    def _queries(self, example: Example, answer: str, vote: int) -> Sequence[Query]:
        options = self.options
        worst, best = options.scale
        call = self._call(
            example,
            {"answer": self._shortened(answer)},
            vote=vote,
            words={
                "rubric": options.rubric,
                "steps": list(options.steps),
                "verdicts": f"a whole number from {worst} (worst) to {best} (best)",
            },
            top_logprobs=TOP_LOGPROBS if options.logprobs else None,
        )
        return [Query(call, self._read)]

    def _read(self, reply: Reply) -> Judgement:
        said = said_at_last(reply).strip(_AROUND)
        if said not in self._worth:
            raise UnreadableError(f"{said[:60]!r} is not one of the scores asked for")
        value, _ = weighted_worth(replace(reply, text=said), self._worth)
        return Judgement(value, (self._vote(value, said),))
