"""The base of judges: a new one writes ``score``, and overrides what differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self
from typing import TypeVar as PlainTypeVar

from pydantic import BaseModel
from typing_extensions import TypeVar

from bestarm_agent.config.fields import KeyPath, StrictModel
from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.config.functions import source_name
from bestarm_agent.domain.values import (
    Example,
    Finish,
    Json,
    Reply,
    Request,
    Score,
    canonical,
    clean_text,
    digest,
)
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.plugins import guard, holds

_MAX_SHOWN = 200
# How a provider says that a reply is no answer at all. A reply cut off by the token limit is not
# among them: it may hold its answer, and each judge looks for itself.
_DECLINED = {
    Finish.REFUSAL: (FailureKind.REFUSED, "the model refused to answer"),
    Finish.CONTENT_FILTER: (FailureKind.CONTENT_FILTERED, "a content filter cut the answer off"),
}
_Model = PlainTypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class JudgeModel:
    """A model that a judge calls; ``options`` are provider options that differ from the study's."""

    provider: str
    name: str
    options: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Return the identity of the model: equal key, equal model."""
        return canonical([self.provider, self.name, dict(self.options)])

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call that a judge makes.

    ``request.example`` is the example's id, with a suffix ("/second") if a judge makes several
    calls for one reply. A cached reply for which ``is_readable`` returns False is not used: the
    model is asked again.
    """

    model: JudgeModel
    request: Request
    is_readable: Callable[[Reply], bool] = field(default=lambda _: True, compare=False, repr=False)


class Calls(Protocol):
    """Makes the calls of a judge: caches, limits, retries and charges them."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Answer a call; parameters that the model does not support are left out.

        Raises JudgeError, blame JUDGE, if there was no answer after all retries.
        """


class JudgeOptions(StrictModel):
    """Base of a judge's options: a frozen pydantic model that refuses unknown keys."""


OptionsT = TypeVar("OptionsT", bound=BaseModel, default=Any)


class Judge(ABC, Generic[OptionsT]):
    """Scores replies; a subclass must define ``score`` only.

    The defaults describe a rule: it calls no model and accepts every example, or every one with a
    reference answer if ``needs_reference`` is true. ``options`` are validated by ``options_type``.

    Attributes:
        name: what messages and reports call it.
        digest: digest of everything that decides a score (rule, options, template, model); scores
            of two digests never mix.

    Example:
        >>> class Short(Judge):
        ...     '''Scores replies of at most 100 characters 1, and longer ones 0.'''
        ...     async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        ...         return Score(float(len(reply.text) <= 100))
        >>> Short("short", JudgeOptions()).models
        ()
    """

    adapter: ClassVar[str] = ""  # name in the digest; that of the class if empty
    # raise it whenever the same options may score some reply differently
    version: ClassVar[int] = 1
    options_type: ClassVar[type[BaseModel]] = JudgeOptions  # pydantic model of the options
    needs_reference: bool = False  # whether every example must have a reference answer
    # the option that the value of a check sets; "": the value is the right answer
    check_option: ClassVar[str] = ""
    models: tuple[JudgeModel, ...] = ()  # the models that the judge calls
    name: str
    digest: str

    def __init_subclass__(cls, **named: Any) -> None:  # noqa: ANN401 - for the next base
        super().__init_subclass__(**named)
        # A subclass may be anybody's plug-in. Its methods are wrapped, so that whatever they raise
        # or return becomes an error that names the judge, and not a traceback from the middle of a
        # run.
        nothing, calls = (lambda result: result is None), partial(holds, kind=JudgeCall)
        guard(cls, {"check": nothing, "longest_calls": calls})

    def __init__(self, name: str, options: OptionsT) -> None:
        self.name = name
        self.options = options
        # Options are dumped as validated, with their defaults: a default that is written out is the
        # same judge, and a default that changes in a later version is another one.
        self.digest = self._digest(options=options.model_dump(mode="json"))

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the judge; raises ConfigError."""
        parsed = setup.parse(cls.options_type, options)
        return cls(name, parsed)  # type: ignore[arg-type] # options_type is OptionsT

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of ``Score.measures``, in their order; known once all examples are checked."""
        return ()

    @property
    def main(self) -> Judge:
        """The judge whose score counts, where others score beside it."""
        return self

    @property
    def scored_by(self) -> str:
        """Name who decides: "rule", or "judge" and its name."""
        return f"judge {self.name}" if self.models else "rule"

    def check(self, example: Example) -> None:
        """Raise ConfigError, before any call is paid for, if a needed reference is missing."""
        if self.needs_reference and not references(example):
            raise ConfigError(
                f"example `{example.id}` has no reference answer, which judge `{self.name}` "
                "needs; name its field as `dataset.target`, or choose another judge"
            )

    def unrecognised(self, example: Example) -> str:
        """Say why a target of ``example``, given as the reply, would not score 1; "" if it would.

        A judge for which that costs a call, or is not to be expected, says "".
        """
        return ""

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls that judging the longest reply to ``example`` makes, each once.

        Their cost is reserved before the candidate is called. By default there are none.
        """
        return ()

    def each_asked(self, example: Example) -> Iterator[tuple[Judge, Example]]:
        """Yield the judges that are no group of others, each with the example it is asked about."""
        yield self, example

    @abstractmethod
    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1]; errors of ``calls`` pass through.

        Raises:
            JudgeError: blame CANDIDATE if the reply itself cannot be scored (no number in it, say),
                blame JUDGE if the judge failed.
        """

    def _digest(self, **decisive: Json) -> str:
        adapter = self.adapter or source_name(type(self))
        return digest({"adapter": adapter, "version": self.version, **decisive})


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Context that a judge is built with, besides its name and options."""

    base_dir: Path  # the study's folder
    # builds another judge of the study by name and options
    judge: Callable[[str, Mapping[str, Json]], Judge]
    # returns the class of a judge by name and the options that its entry sets, or None for no such
    # judge
    named: Callable[[str], tuple[type[Judge[Any]], Mapping[str, Json]] | None]
    subject: str  # what the options belong to, for messages
    lines: Mapping[KeyPath, int] | None = None  # of every option in the catalogue file, if known

    def parse(self, model: type[_Model], options: Mapping[str, Json]) -> _Model:
        """Validate options; raises ConfigError, which names the option and its place."""
        return parse_options(model, options, subject=self.subject, lines=self.lines)


def references(example: Example) -> tuple[str, ...]:
    """Return the acceptable answers of an example."""
    if example.reference is None:
        return ()
    return (example.reference,) if isinstance(example.reference, str) else example.reference


def refuse_declined(reply: Reply) -> None:
    """Raise a JudgeError that blames the candidate for a reply that cannot be an answer.

    It was refused or filtered, or ended while the model thought.
    """
    if declined := _DECLINED.get(reply.finish):
        kind, message = declined
        raise candidate_failed(message, kind)
    # A cut reply that is empty is no wrong answer. With the reasoning taken off, nothing but the
    # advice on `max_tokens` would tell the two apart.
    if reply.reasoning and reply.finish is Finish.LENGTH and not reply.said.strip():
        message = "no answer follows the reasoning; where it was cut off, raise `max_tokens`"
        raise candidate_failed(message, FailureKind.UNPARSABLE)


def unparsable(reason: str, text: str) -> JudgeError:
    """Return the error for a reply without an answer: the candidate's failure."""
    beginning = " ".join(excerpt(text).split())
    quoted = f"{beginning[:60]!r}" if beginning else "an empty reply"
    return candidate_failed(f"{reason} in {quoted}", FailureKind.UNPARSABLE)


def candidate_failed(reason: str, kind: FailureKind) -> JudgeError:
    """Return the error for a reply on which the candidate itself failed."""
    return JudgeError(reason, kind=kind, blame=Blame.CANDIDATE)


def judge_failed(reason: str) -> JudgeError:
    """Return the error for a failure of the judge, which is no evidence about the candidate."""
    return JudgeError(reason, kind=FailureKind.JUDGE_FAILED, blame=Blame.JUDGE)


def excerpt(text: str) -> str:
    """Return the beginning of ``text``, without lone surrogates."""
    return clean_text(text[:_MAX_SHOWN])
