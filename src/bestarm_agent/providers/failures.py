"""Failed calls: blame, retries and cost by kind, for all providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, FailureKind, ProviderError


class _Meaning(NamedTuple):
    blame: Blame = Blame.PROVIDER
    transient: bool = False  # a repetition may succeed
    # later calls would fail, too: of the provider, of the model (MODEL_NOT_FOUND) or of the
    # candidate (BAD_REQUEST), whose requests are all built in the same way
    fatal: bool = False
    # it may have been answered and billed although nothing came back
    may_be_billed: bool = False


# The one place that says what follows from a kind: who is blamed, whether it is tried again,
# whether it ends more than one call, and whether it is charged its bound.
_MEANINGS: Mapping[FailureKind, _Meaning] = {
    FailureKind.REFUSED: _Meaning(Blame.CANDIDATE),
    FailureKind.UNPARSABLE: _Meaning(Blame.CANDIDATE),
    FailureKind.TOO_LONG: _Meaning(Blame.CANDIDATE),
    FailureKind.CONTENT_FILTERED: _Meaning(Blame.CANDIDATE),
    FailureKind.GAVE_UP: _Meaning(Blame.CANDIDATE),
    FailureKind.RATE_LIMITED: _Meaning(transient=True),
    FailureKind.OVERLOADED: _Meaning(transient=True),
    FailureKind.SERVER: _Meaning(transient=True),
    FailureKind.UNREACHABLE: _Meaning(transient=True),  # no connection, so nothing was sent
    FailureKind.TIMEOUT: _Meaning(transient=True, may_be_billed=True),
    FailureKind.CONNECTION: _Meaning(transient=True, may_be_billed=True),
    FailureKind.MALFORMED_REPLY: _Meaning(transient=True, may_be_billed=True),
    FailureKind.AUTHENTICATION: _Meaning(fatal=True),
    FailureKind.QUOTA_EXHAUSTED: _Meaning(fatal=True),
    FailureKind.MODEL_NOT_FOUND: _Meaning(fatal=True),
    FailureKind.BAD_REQUEST: _Meaning(Blame.HARNESS, fatal=True),
    FailureKind.INTERNAL: _Meaning(Blame.HARNESS),
}


class BilledError(ProviderError):
    """A failed call with a known cost, or an upper bound of it: ``spend``."""

    def __init__(self, error: ProviderError, spend: Spend) -> None:
        super().__init__(str(error), kind=error.kind)
        vars(self).update(vars(error))
        self.spend = spend


def may_be_billed(error: ProviderError) -> bool:
    """Return True if a failed call may have cost more than the request."""
    return isinstance(error, BilledError) or _meaning(error.kind).may_be_billed


def failed_spend(error: ProviderError, bound: Spend) -> Spend:
    """Return the cost to charge for a failed attempt, given the ``bound`` that was reserved for it.

    Example:
        >>> bound = Spend(calls=1, tokens=500)
        >>> failed_spend(failure(FailureKind.TIMEOUT, "no answer"), bound).tokens
        500
        >>> failed_spend(failure(FailureKind.RATE_LIMITED, "429"), bound).tokens
        0
    """
    # A cost that is known comes first, then the whole bound where an answer may have been generated
    # and lost; else only the call itself is counted.
    if isinstance(error, BilledError):
        return replace(error.spend, answers=bound.answers)
    if _meaning(error.kind).may_be_billed:
        return bound
    return Spend(answers=bound.answers, calls=1)


def failure(kind: FailureKind, message: str, *, retry_after: float | None = None) -> ProviderError:
    """Build the error of a failed call, with the blame and the prospects that its kind implies.

    Args:
        kind: any but JUDGE_FAILED.
        message: one paragraph for people, free of secrets.
        retry_after: seconds that the provider asked to wait, >= 0, or None.
    """
    meaning = _meaning(kind)
    return ProviderError(
        message,
        kind=kind,
        blame=meaning.blame,
        transient=meaning.transient,
        fatal=meaning.fatal,
        retry_after=retry_after,
    )


def _meaning(kind: FailureKind) -> _Meaning:
    return _MEANINGS.get(kind, _Meaning())
