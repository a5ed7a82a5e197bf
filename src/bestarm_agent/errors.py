"""Errors that the package raises on purpose, all of them kinds of ``BestarmError``.

Arguments of the Python API that break a documented rule raise ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

_MOST_NAMES = 12


class BestarmError(Exception):
    """Base of all errors raised on purpose; says what is wrong, the value found and the way out."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let errors travel to other processes, although their constructors take keywords."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[BestarmError], args: tuple[Any, ...], state: dict[str, Any]
) -> BestarmError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(BestarmError):
    """Something that the user wrote (YAML, dataset, catalogue, flag) breaks a rule."""


class PluginError(ConfigError):
    """A plug-in cannot be imported, or is not what it claims to be; names its distribution."""


class StoreError(BestarmError):
    """The run store cannot be opened, read or written."""


class StoreVersionError(StoreError):
    """The store was written by a newer version of the package."""


class RunNotFoundError(StoreError):
    """The store holds no run of the name or id asked for."""


class Blame(StrEnum):
    """Cause of a failure; only a candidate's own failure says something about its quality."""

    CANDIDATE = "candidate"
    PROVIDER = "provider"
    JUDGE = "judge"
    HARNESS = "harness"


class FailureKind(StrEnum):
    """Kind of failure of one call."""

    # the candidate's own doing: scored with the configured floor
    REFUSED = "refused"
    UNPARSABLE = "unparsable"
    TOO_LONG = "too-long"
    CONTENT_FILTERED = "content-filtered"
    GAVE_UP = "gave-up"
    # says nothing about quality: tried again, then void
    RATE_LIMITED = "rate-limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    UNREACHABLE = "unreachable"
    SERVER = "server"
    MALFORMED_REPLY = "malformed-reply"
    JUDGE_FAILED = "judge-failed"
    # trying again cannot help
    AUTHENTICATION = "authentication"
    QUOTA_EXHAUSTED = "quota-exhausted"
    MODEL_NOT_FOUND = "model-not-found"
    BAD_REQUEST = "bad-request"
    INTERNAL = "internal"

    @property
    def said(self) -> str:
        """The kind in words that people read; programs get the value."""
        return _IN_WORDS.get(self, self.replace("-", " "))


# where the value itself says too little
_IN_WORDS = {"server": "server error", "connection": "connection lost", "internal": "program error"}


class ProviderError(BestarmError):
    """A call to a model failed."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        blame: Blame = Blame.PROVIDER,  # its cause
        transient: bool = False,  # the same call may succeed later
        fatal: bool = False,  # every further call to this provider will fail too
        retry_after: float | None = None,  # seconds that the provider asked to wait, or None
        refused: frozenset[str] = frozenset(),  # names of parameters that the model does not take
        of_account: bool = False,  # a rate limit: the account is above it, and no call is let in
    ) -> None:
        super().__init__(message)
        self.refused = frozenset(refused)
        self.kind = FailureKind(kind)  # ValueError for another: plug-ins raise it, too
        self.blame = Blame(blame)
        self.transient = transient
        self.fatal = fatal
        if retry_after is not None and not 0 <= retry_after < float("inf"):
            raise ValueError(f"retry_after must be seconds, at least 0, got {retry_after!r:.40}")
        self.retry_after = retry_after
        self.notice = ""  # what users should know about the model even if it answers later
        self.of_account = of_account


class CandidateError(BestarmError):
    """A program that is compared as a candidate could not answer an example, by its own doing.

    Programs raise it (see ``providers.python``): the pair counts as failed, with the floor score.
    Any other exception that leaves a program says nothing about its quality: the pair is void.
    """


class JudgeError(BestarmError):
    """A judge could not score a reply."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        blame: Blame,  # CANDIDATE: the reply itself cannot be scored; JUDGE: the judge failed
        transient: bool = False,  # the same judgement may succeed later
    ) -> None:
        super().__init__(message)
        self.kind, self.blame = FailureKind(kind), Blame(blame)  # ValueError for others
        self.transient = transient


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which ``known`` names come nearest to an unknown one: the way out of an error message.

    Example:
        >>> nearest("exat", ["exact", "numeric"])
        'did you mean `exact`?'
        >>> nearest("bleu", ["exact", "numeric"])
        'there are `exact`, `numeric`'
    """
    names = sorted(set(known))
    close = get_close_matches(name, names, n=3) or get_close_matches(name.lower(), names, n=3)
    if close:
        return f"did you mean {_listed(close, ' or ')}?"
    if not names:
        return "there are none"
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f"there are {_listed(names[:_MOST_NAMES], ', ')}{more}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "candidate"), counted(1200, "example")
        ('1 candidate', '1,200 examples')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(names: Iterable[str], separator: str) -> str:
    return separator.join(f"`{name}`" for name in names)
