"""A base class for judges: a new one writes ``score``, and overrides what differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Self
from typing import TypeVar as PlainTypeVar

from pydantic import BaseModel
from typing_extensions import TypeVar

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.user_functions import source_name
from bestarm_agent.config.yaml.documents import KeyPath, parse_options
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel

_Model = PlainTypeVar("_Model", bound=BaseModel)


class JudgeOptions(StrictModel):
    """Base of a judge's options: a frozen pydantic model that refuses unknown keys."""


OptionsT = TypeVar("OptionsT", bound=BaseModel, default=JudgeOptions)


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Context that a judge is built with, besides its name and options."""

    base_dir: Path  # the study's folder
    # builds another judge of the study by name and options
    judge: Callable[[str, Mapping[str, Json]], Judge]
    subject: str  # what the options belong to, for messages
    lines: Mapping[KeyPath, int] | None = None  # of every option in the catalogue file, if known

    def parse(self, model: type[_Model], options: Mapping[str, Json]) -> _Model:
        """Validate options; raises ConfigError, which names the option and its place."""
        return parse_options(model, options, subject=self.subject, lines=self.lines)


class BaseJudge(ABC, Generic[OptionsT]):
    """Scores replies; a subclass must define ``score`` only.

    The defaults describe a rule: it calls no model and accepts every example, or every one with a
    reference answer if ``needs_reference`` is true. ``options`` are validated by ``options_type``.

    Example:
        >>> class Short(BaseJudge):
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
    models: tuple[JudgeModel, ...] = ()  # the models that the judge calls

    def __init__(self, name: str, options: OptionsT) -> None:
        self.name = name
        self.options = options
        self.digest = self._digest(options=options.model_dump(mode="json"))

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the judge; raises ConfigError."""
        parsed = setup.parse(cls.options_type, options)
        return cls(name, parsed)  # type: ignore[arg-type] # options_type is OptionsT

    def check(self, example: Example) -> None:
        """Raise ConfigError, before any call is paid for, if a needed reference is missing."""
        if self.needs_reference:
            check_reference(example, self.name)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return no call; a judge that calls models returns those on the longest reply."""
        return ()

    @abstractmethod
    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1]; errors as in ``Judge``."""

    def _digest(self, **decisive: Json) -> str:
        adapter = self.adapter or source_name(type(self))
        return digest({"adapter": adapter, "version": self.version, **decisive})


def check_example(judge: Judge, example: Example) -> None:
    """Raise ConfigError if a judge, with this base class or without, cannot judge ``example``."""
    if isinstance(judge, BaseJudge):
        judge.check(example)
    elif judge.needs_reference:
        check_reference(example, judge.name)


def check_reference(example: Example, judge: str) -> None:
    """Check that an example has a reference answer; raises ConfigError."""
    if example.reference is None or example.reference == ():
        raise ConfigError(
            f"example `{example.id}` has no reference answer, which judge `{judge}` "
            "needs; set the dataset's target field, or choose another judge"
        )
