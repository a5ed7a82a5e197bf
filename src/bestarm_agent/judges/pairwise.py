"""Compare each answer with a fixed baseline answer; the score is the probability of a win.

Judges favour the first or the second answer, whatever it says. With both orders each answer comes
first once, and a constant preference for a position cancels in the mean.

With ``logprobs`` the judge answers with one of two tokens, weighted by their probabilities
(AlpacaEval 2's weighted preference: Dubois et al. 2024, "Length-Controlled AlpacaEval", section 2;
`alpaca_eval.completion_parsers.logprob_parser`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

from pydantic import Field, model_validator

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import JudgeCall
from bestarm_agent.judges.model import (
    Judgement,
    ModelJudge,
    ModelJudgeOptions,
    Query,
    clean,
    verdict_schema,
)
from bestarm_agent.judges.verdicts import UnreadableError
from bestarm_agent.judges.weighted import TOP_LOGPROBS, weighted_worth

_POSITION_NOTE = {"first": "its answer first", "second": "its answer second"}
_WORTH = {"first": 1.0, "second": 0.0, "tie": 0.5}
_LETTERS = {"a": "first", "b": "second", "c": "tie"}  # as in MT-Bench: [[A]]


class PairwiseOptions(ModelJudgeOptions):
    """Options of ``pairwise``."""

    # input field with the answer to beat; the task leaves it out
    baseline_field: str = Field("baseline_output", min_length=1)
    both_orders: bool = True  # whether each answer comes first once; else the baseline comes first
    ties: bool = True  # whether the judge may call it a tie, worth 0.5
    explain: bool = True  # whether the judge writes an explanation before its verdict
    logprobs: bool = False  # whether the verdict is one token, weighted by its probability
    tokens: tuple[str, str] = ("m", "M")  # with ``logprobs``: for the first answer and the second
    # what makes an answer better, in words, for the template
    criterion: str = "which answer a person who set this task would rather be given"

    @model_validator(mode="after")
    def _check_tokens(self) -> Self:
        first, second = (token.strip() for token in self.tokens)
        if not first or not second or first == second:
            raise ValueError(f"`tokens` must be two different words, got {list(self.tokens)}")
        if self.logprobs and self.verdict != "json":
            raise ValueError("`logprobs` reads one token; leave out `verdict` or `logprobs`")
        return self


class PairwiseJudge(ModelJudge[PairwiseOptions]):
    """Asks which of two answers is better."""

    adapter = "pairwise"
    options_type = PairwiseOptions

    def __init__(self, name: str, options: PairwiseOptions) -> None:
        super().__init__(name, options)
        self._positions = ("second", "first") if options.both_orders else ("second",)
        self._verdicts: list[str] = ["first", "second", *(["tie"] if options.ties else [])]
        self._tokens = {options.tokens[0].strip(): 1.0, options.tokens[1].strip(): 0.0}

    def check(self, example: Example) -> None:
        """Check the example and its baseline answer; raises ConfigError."""
        baseline = example.inputs.get(self.options.baseline_field)
        if not isinstance(baseline, str) or not baseline.strip():
            raise ConfigError(
                f"example `{example.id}` has no text in field `{self.options.baseline_field}`, "
                f"with which judge `{self.name}` compares; set `baseline_field`, or add the field"
            )
        super().check(example)

    def _queries(self, example: Example, answer: str, vote: int) -> Sequence[Query]:
        evidence = clean(f"{answer}\n{example.inputs[self.options.baseline_field]}")
        return [
            Query(
                self._compare(example, answer, position, vote),
                partial(self._read, position, evidence),
            )
            for position in self._positions
        ]

    def _compare(self, example: Example, answer: str, position: str, vote: int) -> JudgeCall:
        options = self.options
        baseline = str(example.inputs[options.baseline_field])
        pair = [self._shortened(answer), self._shortened(baseline)]
        first, second = pair if position == "first" else pair[::-1]
        winner: Json = {"type": "string", "enum": self._verdicts}
        return self._call(
            example,
            {"first_answer": first, "second_answer": second},
            vote=vote,
            suffix=f"/{position}" if len(self._positions) > 1 else "",
            words={
                "criterion": options.criterion,
                "explain": options.explain,
                "ties": options.ties,
                "logprobs": options.logprobs,
                "tokens": list(self._tokens),
            },
            schema=None
            if options.logprobs
            else verdict_schema({"winner": winner}, explain=options.explain),
            top_logprobs=TOP_LOGPROBS if options.logprobs else None,
        )

    def _task(self, example: Example) -> str:
        if self.options.fields is None:
            rest = {k: v for k, v in example.inputs.items() if k != self.options.baseline_field}
            example = Example(example.id, rest, example.reference)
        return super()._task(example)

    def _read(self, position: str, answer: str, reply: Reply) -> Judgement:
        if self.options.logprobs:
            value, said, why = *weighted_worth(reply, self._tokens), ""
        else:
            verdict = self._verdict(reply, ["winner"], answer, [*_WORTH, *_LETTERS])
            said = str(verdict["winner"]).strip().lower()
            said = _LETTERS.get(said, said)
            if said not in self._verdicts:
                raise UnreadableError(f"{said[:60]!r} is not one of the verdicts asked for")
            value, why = _WORTH[said], str(verdict.get("explanation", ""))
        own = value if position == "first" else 1.0 - value
        return Judgement(own, (self._vote(own, said, why, about=_POSITION_NOTE[position]),))


def position_of(vote: Vote) -> str | None:
    """Return the position of the candidate's answer, "first" or "second"; None for other votes."""
    notes = _POSITION_NOTE.items()
    return next((position for position, note in notes if vote.by.endswith(f"({note})")), None)
