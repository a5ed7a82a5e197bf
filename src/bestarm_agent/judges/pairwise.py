"""Compares each answer with a fixed baseline answer; the score is how probably it is better.

Judges favour places: the first or the second answer, whatever it says. In both orders each answer
stands once in each place, and the mean of the two is free of a constant preference for a place.

With ``logprobs`` the judge answers with one of two tokens and the score is weighted by how probable
it found each (AlpacaEval 2's weighted preference: Dubois et al. 2024, "Length-Controlled
AlpacaEval", section 2; `alpaca_eval.completion_parsers.logprob_parser`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Self

from pydantic import Field, model_validator

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Finish, Reply
from bestarm_agent.domain.outcome import Vote
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.asking import AskingJudge, Opinion, Question, schema_of
from bestarm_agent.judges.asking_options import AskingOptions
from bestarm_agent.judges.base import JudgeCall
from bestarm_agent.judges.quoting import as_shown
from bestarm_agent.judges.reading import UnreadableError, read_verdict

_TOP_LOGPROBS = 20
_STOOD = {"first": "its answer first", "second": "its answer second"}
_WORTH = {"first": 1.0, "second": 0.0, "tie": 0.5}


class PairwiseOptions(AskingOptions):
    """Options of ``pairwise``.

    Attributes:
        baseline_field: input field of the example with the answer to beat; it is not shown as part
            of the task.
        both_orders: whether each answer stands once in each place; else the baseline comes first.
        ties: whether the judge may call it a tie, worth 0.5.
        explain: whether the judge writes an explanation before its verdict.
        logprobs: whether the verdict is one token, weighted by its probability.
        tokens: what the judge answers with ``logprobs``: for the first answer, for the second.
        criterion: what makes an answer the better one, in words; the template shows it.
    """

    baseline_field: str = Field(min_length=1)
    both_orders: bool
    ties: bool
    explain: bool
    logprobs: bool
    tokens: tuple[str, str]
    criterion: str

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        first, second = (token.strip() for token in self.tokens)
        if not first or not second or first == second:
            raise ValueError(f"`tokens` must be two different words, got {list(self.tokens)}")
        return self


class PairwiseJudge(AskingJudge[PairwiseOptions]):
    """Asks which of two answers is the better one."""

    adapter: ClassVar[str] = "pairwise"
    options_type: ClassVar[type[AskingOptions]] = PairwiseOptions

    def __init__(self, name: str, options: PairwiseOptions) -> None:
        super().__init__(name, options)
        self._places = ("second", "first") if options.both_orders else ("second",)
        verdicts: list[str] = ["first", "second", *(["tie"] if options.ties else [])]
        self._verdicts = verdicts
        self._tokens = {options.tokens[0].strip(): 1.0, options.tokens[1].strip(): 0.0}

    def check(self, example: Example) -> None:
        """Check that the example holds a baseline answer too; raises ConfigError."""
        baseline = example.inputs.get(self.options.baseline_field)
        if not isinstance(baseline, str) or not baseline.strip():
            raise ConfigError(
                f"example `{example.id}` has no text in field `{self.options.baseline_field}`, "
                f"with which judge `{self.name}` compares; set `baseline_field`, or add the field"
            )
        super().check(example)

    def _questions(self, example: Example, answer: str, vote: int) -> Sequence[Question]:
        return [
            Question(
                self._compare(example, answer, place, vote),
                partial(self._read, place, as_shown(answer)),
            )
            for place in self._places
        ]

    def _compare(self, example: Example, answer: str, place: str, vote: int) -> JudgeCall:
        """Ask with the candidate's answer at a place, "first" or "second"."""
        options = self.options
        baseline = str(example.inputs[options.baseline_field])
        pair = [self._shown(answer), self._shown(baseline)]
        first, second = pair if place == "first" else pair[::-1]
        why: dict[str, Json] = {"explanation": {"type": "string"}} if options.explain else {}
        winner: Json = {"type": "string", "enum": self._verdicts}
        return self._call(
            example,
            {"first_answer": first, "second_answer": second},
            vote=vote,
            tag=f"/{place}" if len(self._places) > 1 else "",
            words={
                "criterion": options.criterion,
                "explain": options.explain,
                "ties": options.ties,
                "logprobs": options.logprobs,
                "tokens": list(self._tokens),
            },
            schema=None if options.logprobs else schema_of({**why, "winner": winner}),
            top_logprobs=_TOP_LOGPROBS if options.logprobs else None,
        )

    def _task(self, example: Example) -> str:
        if self.options.fields is None:
            rest = {k: v for k, v in example.inputs.items() if k != self.options.baseline_field}
            example = Example(example.id, rest, example.reference)
        return super()._task(example)

    def _read(self, place: str, answer: str, reply: Reply) -> Opinion:
        if self.options.logprobs:
            value, said, why = *token_preference(reply, self._tokens), ""
        else:
            verdict = read_verdict(reply, ["winner"], answer)
            said = str(verdict["winner"]).strip().lower()
            if said not in self._verdicts:
                raise UnreadableError(f"{said[:60]!r} is not one of the verdicts asked for")
            value, why = _WORTH[said], str(verdict.get("explanation", ""))
        own = value if place == "first" else 1.0 - value
        return Opinion(own, (self._vote(own, said, why, about=_STOOD[place]),))


def place_of(vote: Vote) -> str | None:
    """Where the candidate's answer stood in a comparison: "first", "second"; None in others."""
    return next((place for place, words in _STOOD.items() if vote.by.endswith(f"({words})")), None)


def token_preference(reply: Reply, worth: Mapping[str, float]) -> tuple[float, str]:
    """The mean worth of the tokens, weighted by their probabilities at the verdict's place.

    Without log probabilities the token written counts with its worth.

    Args:
        reply: what the judge wrote.
        worth: worth in [0, 1] by token, white space apart.

    Raises:
        UnreadableError: no place of the reply holds one of the tokens.

    Example:
        >>> from bestarm_agent.domain.exchange import Position, Token
        >>> both = (Token("m", math.log(0.6)), Token("M", math.log(0.2)))
        >>> value, said = token_preference(
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
