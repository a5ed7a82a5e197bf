"""Compare each answer with a fixed baseline answer; the score is the probability of a win.

Judges favour the first or the second answer, whatever it says. With both orders each answer comes
first once, and a constant preference for a position cancels in the mean.

With ``logprobs`` the judge answers with one of two tokens, weighted by their probabilities
(AlpacaEval 2's weighted preference: Dubois et al. 2024, "Length-Controlled AlpacaEval", section 2;
`alpaca_eval.completion_parsers.logprob_parser`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from bestarm_agent.domain.values import Example, Reply, Score
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.model import ModelJudge, ModelJudgeOptions, shortened
from bestarm_agent.judges.verdicts import LabelScale, VerdictForm, weighted_worth

_POSITION_NOTE = {"first": "its answer first", "second": "its answer second"}


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
        return self


class PairwiseJudge(ModelJudge[PairwiseOptions]):
    """Asks which of two answers is better."""

    adapter = "pairwise"
    options_type = PairwiseOptions

    def __init__(self, name: str, options: PairwiseOptions) -> None:
        tie = {"tie": 0.5} if options.ties else {}
        winner = LabelScale({"first": 1.0, "second": 0.0, **tie})
        self._verdicts = VerdictForm({"winner": winner}, explain=options.explain)
        first, second = (token.strip() for token in options.tokens)
        self._tokens = {first: 1.0, second: 0.0}
        request = (
            f"Reply with one token and nothing else: {first} if the first answer is better, "
            f"{second} if the second is."
        )
        super().__init__(
            name,
            options,
            request if options.logprobs else self._verdicts,
            {"criterion": options.criterion},
            logprobs=options.logprobs,
        )

    def check(self, example: Example) -> None:
        """Check the example and its baseline answer; raises ConfigError."""
        baseline = example.inputs.get(self.options.baseline_field)
        if not isinstance(baseline, str) or not baseline.strip():
            raise ConfigError(
                f"example `{example.id}` has no text in field `{self.options.baseline_field}`, "
                f"with which judge `{self.name}` compares; set `baseline_field`, or add the field"
            )
        super().check(example)

    def _texts(self, example: Example, answer: str) -> Mapping[str, Mapping[str, str]]:
        baseline = str(example.inputs[self.options.baseline_field])
        baseline = shortened(baseline, self.options.max_answer_chars)
        second = {"first_answer": baseline, "second_answer": answer}
        if not self.options.both_orders:
            return {"": second}
        return {"/second": second, "/first": {"first_answer": answer, "second_answer": baseline}}

    def _task(self, example: Example) -> str:
        if self.options.fields is None:
            rest = {k: v for k, v in example.inputs.items() if k != self.options.baseline_field}
            example = Example(example.id, rest, example.reference)
        return super()._task(example)

    def _score_of(self, reply: Reply, mark: str, suffix: str) -> Score:
        position = "first" if suffix == "/first" else "second"
        verdict_text: object
        if self.options.logprobs:
            value, verdict_text, why = *weighted_worth(reply, self._tokens), ""
        else:
            verdict = self._verdicts.read(reply, mark)
            value, verdict_text, why = verdict.values["winner"], verdict.said["winner"], verdict.why
        # The model's verdict is about the first answer shown; the score is about the candidate's.
        own = value if position == "first" else 1.0 - value
        return Score(
            own, votes=(self._vote(own, verdict_text, why, about=_POSITION_NOTE[position]),)
        )
