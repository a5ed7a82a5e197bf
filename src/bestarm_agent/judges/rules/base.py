"""The base of rules: select a part of the reply, extract an answer, compare it."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Generic, TypeVar

from pydantic import Field

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls
from bestarm_agent.judges.base_judge import BaseJudge, JudgeOptions
from bestarm_agent.judges.rules.text_normalisation import (
    clipped,
    marker_pattern,
    shown,
)

_DECLINED = {
    Finish.REFUSAL: (FailureKind.REFUSED, "the model refused to answer"),
    Finish.CONTENT_FILTER: (FailureKind.CONTENT_FILTERED, "a content filter cut the answer off"),
}


class RuleOptions(JudgeOptions):
    """Options of all rules."""

    # read only what follows the last such marker ("Answer:"), in any case; None: all
    after: str | None = Field(None, min_length=1, pattern=r"\S")
    # whether a reply without the marker is unparsable; else all of it is read
    after_required: bool = True
    # of a longer reply only the beginning and the end are read
    max_chars: int = Field(100_000, ge=100, le=10_000_000)


OptionsT = TypeVar("OptionsT", bound=RuleOptions)
AnswerT = TypeVar("AnswerT")


class RuleJudge(BaseJudge[OptionsT], Generic[OptionsT, AnswerT]):
    """Scores a reply by a rule, without a call.

    A reply that was refused or filtered, or in which the rule finds no answer, is the candidate's
    failure. A reply cut off at the token limit is scored like any other.
    """

    needs_reference = True

    def __init__(self, name: str, options: OptionsT) -> None:
        super().__init__(name, options)
        self._after = None if options.after is None else marker_pattern(options.after)

    def check(self, example: Example) -> None:
        """Raise ConfigError if ``example`` has no reference that this rule can compare with."""
        super().check(example)
        for reference in references(example) if self.needs_reference else ():
            if problem := self._problem(reference, example):
                raise ConfigError(
                    f"example `{example.id}`: judge `{self.name}` cannot compare with reference "
                    f"{shown(reference)!r}: {problem}"
                )

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply; most rules return 0 or 1.

        Raises JudgeError with blame CANDIDATE if the reply was refused or holds no answer, with
        blame JUDGE if the example cannot be scored by this rule.
        """
        return self._score_at_once(example, reply)

    def _score_at_once(self, example: Example, reply: Reply) -> Score:
        refuse_declined(reply)
        if self.needs_reference and example.reference is None:
            raise judge_failed(
                f"example `{example.id}` has no reference answer for judge `{self.name}`"
            )
        answer = self._extract(self._selected(reply.text), example)
        return Score(value=float(self._agrees(answer, example)), answer=shown(self._said(answer)))

    @abstractmethod
    def _extract(self, text: str, example: Example) -> AnswerT:
        """Extract the answer from the selected text; raises ``unparsable`` if there is none."""

    @abstractmethod
    def _agrees(self, answer: AnswerT, example: Example) -> bool | float:
        """Return whether the answer is right, or a degree in [0, 1]."""

    def _said(self, answer: AnswerT) -> str:
        return str(answer)

    def _problem(self, reference: str, example: Example) -> str | None:
        """Return why a reference cannot be compared with, and the way out; None if it can."""
        return None if reference.strip() else "it is blank; correct the dataset"

    def _selected(self, reply: str) -> str:
        text = clipped(reply, self.options.max_chars)
        return text if self._after is None else self._after_marker(text, self._after)

    def _after_marker(self, text: str, marker: re.Pattern[str]) -> str:
        if ends := [found.end() for found in marker.finditer(text)]:
            return text[ends[-1] :]
        if self.options.after_required:
            raise unparsable(f"no {self.options.after!r}", text)
        return text


def refuse_declined(reply: Reply) -> None:
    """Raise a JudgeError that blames the candidate for a refused or filtered reply."""
    if declined := _DECLINED.get(reply.finish):
        kind, message = declined
        raise candidate_failed(message, kind)


def references(example: Example) -> tuple[str, ...]:
    """Return the acceptable answers of an example."""
    if example.reference is None:
        return ()
    return (example.reference,) if isinstance(example.reference, str) else example.reference


def unparsable(reason: str, text: str) -> JudgeError:
    """Return the error for a reply without an answer: the candidate's failure."""
    excerpt = " ".join(shown(text).split())
    said = f"{excerpt[:60]!r}" if excerpt else "an empty reply"
    return candidate_failed(f"{reason} in {said}", FailureKind.UNPARSABLE)


def candidate_failed(reason: str, kind: FailureKind) -> JudgeError:
    """Return the error for a reply on which the candidate itself failed."""
    return JudgeError(reason, kind=kind, blame=Blame.CANDIDATE)


def judge_failed(reason: str) -> JudgeError:
    """Return the error for a failure of the judge, which is no evidence about the candidate."""
    return JudgeError(reason, kind=FailureKind.JUDGE_FAILED, blame=Blame.JUDGE)
