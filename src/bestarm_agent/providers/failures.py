"""What each kind of failed call means, in one place for all providers."""

from __future__ import annotations

from bestarm_agent.errors import Blame, FailureKind, ProviderError

_CANDIDATES_OWN = frozenset(
    {
        FailureKind.REFUSED,
        FailureKind.UNPARSABLE,
        FailureKind.TOO_LONG,
        FailureKind.CONTENT_FILTERED,
    }
)
_TRANSIENT = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.TIMEOUT,
        FailureKind.CONNECTION,
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
