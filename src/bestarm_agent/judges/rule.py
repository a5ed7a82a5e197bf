"""What all rules share: narrow the reply down, extract an answer, compare it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Finish, Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.text import Lines, chosen_lines, clipped, marker_pattern, shown

_DECLINED = {
    Finish.REFUSAL: (FailureKind.REFUSED, "the model refused to answer"),
    Finish.CONTENT_FILTER: (FailureKind.CONTENT_FILTERED, "a content filter cut the answer off"),
}


class RuleOptions(BaseModel):
    """Where a rule looks for the answer. Defaults stand in the root ``judges/`` catalogue.

    Attributes:
        after: only what follows the last occurrence of this marker is read, such as "Answer:", in
            any case; None reads everything.
        after_required: whether a reply without the marker is unparsable; else all of it is read.
        lines: which of the lines that are not blank are read: "all", "first" or "last".
        max_chars: of a longer reply only its beginning and end, this many characters in all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str | None = Field(min_length=1, pattern=r"\S")
    after_required: bool
    lines: Lines
    max_chars: int = Field(ge=100, le=10_000_000)


OptionsT = TypeVar("OptionsT", bound=RuleOptions)
AnswerT = TypeVar("AnswerT")


class RuleJudge(ABC, Generic[OptionsT, AnswerT]):
    """Scores a reply by a rule; free of charge and without a call.

    A refused or filtered reply, and one that holds nothing to compare, is the candidate's failure.
    A reply cut off at the token limit is scored like any other.

    Args:
        name: what users call it.
        options: the rule's settings.

    Attributes:
        adapter: name of the rule in catalogue files.
        version: raised whenever the same options may score some reply differently.
        options_type: the class of ``options``.
    """

    adapter: ClassVar[str]
    version: ClassVar[int] = 1
    options_type: ClassVar[type[RuleOptions]]
    models: tuple[JudgeModel, ...] = ()

    def __init__(self, name: str, options: OptionsT) -> None:
        self.name = name
        self.options = options
        self.needs_reference = True
        self.digest = digest(
            {
                "adapter": self.adapter,
                "version": self.version,
                "options": options.model_dump(mode="json"),
            }
        )
        self._after = None if options.after is None else marker_pattern(options.after)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """None: a rule is free."""
        return ()

    def check(self, example: Example) -> None:
        """Check, before any call is paid for, that replies to ``example`` can be scored.

        Raises:
            ConfigError: it has no reference answer, or one that this rule cannot compare with.
        """
        if not self.needs_reference:
            return
        check_reference(example, self.name)
        for reference in references(example):
            if problem := self._problem(reference, example):
                raise ConfigError(
                    f"example `{example.id}`: judge `{self.name}` cannot compare with reference "
                    f"{shown(reference)!r}: {problem}"
                )

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply; most rules say 0 or 1.

        Raises:
            JudgeError: blame CANDIDATE if the reply was refused or holds no answer; blame JUDGE if
                the example cannot be scored by this rule.
        """
        refuse_declined(reply)
        if self.needs_reference and example.reference is None:
            raise broken(f"example `{example.id}` has no reference answer for judge `{self.name}`")
        answer = self._extract(self._narrowed(reply.text), example)
        return Score(value=float(self._agrees(answer, example)), answer=shown(self._said(answer)))

    @abstractmethod
    def _extract(self, text: str, example: Example) -> AnswerT:
        """Read the answer out of the narrowed reply; raises ``unparsable`` if it holds none."""

    @abstractmethod
    def _agrees(self, answer: AnswerT, example: Example) -> bool | float:
        """Whether the answer is right, or how nearly, in [0, 1]."""

    def _said(self, answer: AnswerT) -> str:
        """Render the answer for people."""
        return str(answer)

    def _problem(self, reference: str, example: Example) -> str | None:
        """Why a reference cannot be compared with, and the way out; None if it can."""
        return None if reference.strip() else "it is blank; correct the dataset"

    def _narrowed(self, reply: str) -> str:
        options = self.options
        text = clipped(reply, options.max_chars)
        if self._after is not None:
            text = self._behind_marker(text)
        return chosen_lines(text, options.lines)

    def _behind_marker(self, text: str) -> str:
        ends = [found.end() for found in self._after.finditer(text)] if self._after else []
        if ends:
            return text[ends[-1] :]
        if self.options.after_required:
            raise unparsable(f"no {self.options.after!r}", text)
        return text


def check_reference(example: Example, judge: str) -> None:
    """Check that an example has a reference answer; raises ConfigError."""
    if not references(example):
        raise ConfigError(
            f"example `{example.id}` has no reference answer, which judge `{judge}` "
            "needs; set the dataset's target field, or choose another judge"
        )


def refuse_declined(reply: Reply) -> None:
    """Call a refused or filtered reply the candidate's failure; raises JudgeError."""
    if declined := _DECLINED.get(reply.finish):
        kind, message = declined
        raise JudgeError(message, kind=kind, blame=Blame.CANDIDATE)


def references(example: Example) -> tuple[str, ...]:
    """The acceptable answers of an example."""
    if example.reference is None:
        return ()
    return (example.reference,) if isinstance(example.reference, str) else example.reference


def unparsable(reason: str, text: str) -> JudgeError:
    """Say that a reply holds no answer: the candidate's failure."""
    excerpt = " ".join(shown(text).split())
    said = f"{excerpt[:60]!r}" if excerpt else "an empty reply"
    return JudgeError(f"{reason} in {said}", kind=FailureKind.UNPARSABLE, blame=Blame.CANDIDATE)


def broken(reason: str) -> JudgeError:
    """Say that the judge failed: says nothing about the candidate."""
    return JudgeError(reason, kind=FailureKind.JUDGE_FAILED, blame=Blame.JUDGE)
