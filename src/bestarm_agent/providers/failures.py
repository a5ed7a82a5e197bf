"""What each kind of failed call means, in one place for all providers."""

from __future__ import annotations

from dataclasses import replace

from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, FailureKind, ProviderError

_CANDIDATES_OWN = frozenset(
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
# AUTHENTICATION and QUOTA_EXHAUSTED put the provider out of use, MODEL_NOT_FOUND the model,
# BAD_REQUEST the candidate whose every request is built in the same way.
_FATAL = frozenset(
    {
        FailureKind.AUTHENTICATION,
        FailureKind.QUOTA_EXHAUSTED,
        FailureKind.MODEL_NOT_FOUND,
        FailureKind.BAD_REQUEST,
    }
)
# The call may have been answered and billed although nothing came back. UNREACHABLE is not among
# them: there was no connection that the request could have left by.
_MAY_BE_BILLED = frozenset(
    {FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.MALFORMED_REPLY}
)


class BilledError(ProviderError):
    """A failed call that the provider knows the cost of, or an upper bound of it.

    Attributes:
        spend: what the call is booked with.
    """

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
    """Whether a failed call may have cost anything but the request."""
    return isinstance(error, BilledError) or error.kind in _MAY_BE_BILLED


def failed_spend(error: ProviderError, bound: Spend) -> Spend:
    """What a failed attempt is booked with.

    Args:
        error: how it failed.
        bound: what was set aside for it.

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
        kind: what went wrong; JUDGE_FAILED is no provider's failure.
        message: one paragraph for people, free of secrets.
        retry_after: seconds that the provider asked to wait, >= 0, or None.

    Example:
        >>> failure(FailureKind.RATE_LIMITED, "429", retry_after=2.0).transient
        True
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
    if kind in _CANDIDATES_OWN:
        return Blame.CANDIDATE
    if kind in (FailureKind.BAD_REQUEST, FailureKind.INTERNAL):
        return Blame.HARNESS
    return Blame.PROVIDER
