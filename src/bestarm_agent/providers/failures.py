"""Failed calls: blame, retries and cost by kind, for all providers."""

from __future__ import annotations

from dataclasses import replace

from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, FailureKind, ProviderError

_CANDIDATE_KINDS = frozenset(
    {
        FailureKind.REFUSED,
        FailureKind.UNPARSABLE,
        FailureKind.TOO_LONG,
        FailureKind.CONTENT_FILTERED,
        FailureKind.GAVE_UP,
    }
)
_TRANSIENT = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
        FailureKind.UNREACHABLE,
        FailureKind.SERVER,
        FailureKind.MALFORMED_REPLY,
    }
)
# AUTHENTICATION and QUOTA_EXHAUSTED stop the provider, MODEL_NOT_FOUND the model, BAD_REQUEST the
# candidate, whose requests are all built in the same way, unless it was answered before.
_FATAL = frozenset(
    {
        FailureKind.AUTHENTICATION,
        FailureKind.QUOTA_EXHAUSTED,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.BAD_REQUEST,
    }
)
# The call may have been answered and billed although nothing came back. (UNREACHABLE: there was no
# connection, so nothing was sent.)
_MAY_BE_BILLED = frozenset(
    {FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.MALFORMED_REPLY}
)


class BilledError(ProviderError):
    """A failed call with a known cost, or an upper bound of it: ``spend``."""

    def __init__(self, error: ProviderError, spend: Spend) -> None:
        super().__init__(
            str(error),
            kind=error.kind,
            blame=error.blame,
            transient=error.transient,
            fatal=error.fatal,
            retry_after=error.retry_after,
        )
        self.spend = spend


def may_be_billed(error: ProviderError) -> bool:
    """Return True if a failed call may have cost more than the request."""
    return isinstance(error, BilledError) or error.kind in _MAY_BE_BILLED


def failed_spend(error: ProviderError, bound: Spend) -> Spend:
    """Return the cost to charge for a failed attempt, given the ``bound`` that was reserved for it.

    Example:
        >>> bound = Spend(calls=1, tokens=500)
        >>> failed_spend(failure(FailureKind.TIMEOUT, "no answer"), bound).tokens
        500
        >>> failed_spend(failure(FailureKind.RATE_LIMITED, "429"), bound).tokens
        0
    """
    if isinstance(error, BilledError):
        return replace(error.spend, pulls=bound.pulls)
    if error.kind in _MAY_BE_BILLED:
        return bound
    return Spend(pulls=bound.pulls, calls=1)


def failure(kind: FailureKind, message: str, *, retry_after: float | None = None) -> ProviderError:
    """Build the error of a failed call, with the blame and the prospects that its kind implies.

    Args:
        kind: any but JUDGE_FAILED.
        message: one paragraph for people, free of secrets.
        retry_after: seconds that the provider asked to wait, >= 0, or None.
    """
    return ProviderError(
        message,
        kind=kind,
        blame=_blame(kind),
        transient=kind in _TRANSIENT,
        fatal=kind in _FATAL,
        retry_after=retry_after,
    )


def _blame(kind: FailureKind) -> Blame:
    if kind in _CANDIDATE_KINDS:
        return Blame.CANDIDATE
    if kind in (FailureKind.BAD_REQUEST, FailureKind.INTERNAL):
        return Blame.HARNESS
    return Blame.PROVIDER
