"""Failed calls of the SDKs, classified for both vendors and for compatible servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.redaction import REDACTED, masked
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.headers import retry_after, should_retry
from bestarm_agent.providers.api.protocol import MalformedError, mapping, text
from bestarm_agent.providers.failures import failure

_SHOWN = 300
_SERVER_ERRORS = 500

# By class of the SDK, for errors without a status; the first class in the MRO counts (a time-out is
# a subclass of the connection error).
_BY_CLASS: Mapping[str, FailureKind] = {
    "APITimeoutError": FailureKind.TIMEOUT,
    "APIConnectionError": FailureKind.CONNECTION,
    "APIResponseValidationError": FailureKind.MALFORMED_REPLY,
    "CredentialsError": FailureKind.AUTHENTICATION,
    "SubjectTokenProviderError": FailureKind.AUTHENTICATION,
}
_BY_STATUS: Mapping[int, FailureKind] = {
    status: kind
    for kind, statuses in {
        FailureKind.AUTHENTICATION: (401, 403),
        FailureKind.QUOTA_EXHAUSTED: (402,),
        FailureKind.MODEL_NOT_FOUND: (404,),
        FailureKind.TIMEOUT: (408, 504),
        FailureKind.SERVER: (409, 424, 425),
        FailureKind.TOO_LONG: (413,),
        FailureKind.RATE_LIMITED: (429, 498),  # 498: Groq has no capacity in the flex tier
        FailureKind.CONNECTION: (499,),
        FailureKind.BAD_REQUEST: (501,),
        FailureKind.OVERLOADED: (503, 529),
    }.items()
    for status in statuses
}
_BY_CODE: Mapping[str, FailureKind] = {
    code: kind
    for kind, codes in {
        FailureKind.QUOTA_EXHAUSTED: (
            *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
            *("billing_error", "enforced_spend_limit_reached", "contract_spend_limit_reached"),
        ),
        FailureKind.AUTHENTICATION: ("invalid_api_key",),
        FailureKind.MODEL_NOT_FOUND: ("model_not_found",),
        FailureKind.TOO_LONG: ("context_length_exceeded",),
        FailureKind.CONTENT_FILTERED: ("content_filter", "content_policy_violation"),
        FailureKind.RATE_LIMITED: ("rate_limit_exceeded",),
        FailureKind.SERVER: ("server_error",),
    }.items()
    for code in codes
}
# Compatible servers send a text instead of a code; each pattern holds for these statuses.
_BY_TEXT: tuple[tuple[frozenset[int], re.Pattern[str], FailureKind], ...] = tuple(
    (frozenset(statuses), re.compile(pattern, re.IGNORECASE), kind)
    for kind, statuses, pattern in (
        (
            *(FailureKind.TOO_LONG, (400, 422)),
            r"context length|context window|context limit|prompt is too long|too many tokens|"
            r"maximum (number of )?(input )?tokens|longer than the model",
        ),
        (
            *(FailureKind.CONTENT_FILTERED, (400, 403)),
            r"content (management|filtering|moderation) policy|content_filter|was flagged|"
            r"requires moderation",
        ),
        (
            *(FailureKind.QUOTA_EXHAUSTED, (400, 403, 429)),
            r"credit balance|current quota|insufficient balance|spend limit",
        ),
        (FailureKind.AUTHENTICATION, (400,), r"api key not valid|invalid api key"),
        (
            *(FailureKind.MODEL_NOT_FOUND, (400,)),
            r"model\b.{0,200}(does not exist|not found|is not a valid model)",
        ),
    )
)
_TRANSPORTS = frozenset({"aiohttp", "httpcore", "httpcore2", "httpx", "httpx2"})
_UNREADABLE = frozenset({"BadHttpMessage", "ClientResponseError", "DecodingError"})
_MESSAGES: Mapping[FailureKind, str] = {
    FailureKind.MALFORMED_REPLY: "The response cannot be read.",
    FailureKind.CONNECTION: "Connection error.",
    FailureKind.UNREACHABLE: "No connection, so nothing was sent.",
}


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """The endpoint of a failed call, for messages."""

    name: str  # provider and model as users write them
    url: str  # address of the endpoint
    key_source: str  # the variable that holds the key
    secrets: tuple[str, ...] = ()  # texts that no message may hold
    missing_path: str = ""  # path of the vendor's own address, where this address has none


def sdk_failure(error: Exception, context: ErrorContext) -> ProviderError:
    """Classify an exception of an SDK.

    Example:
        >>> from openai import APIConnectionError
        >>> error = APIConnectionError(request=None)
        >>> sdk_failure(error, ErrorContext("openai/m", "https://x", "K")).kind
        <FailureKind.CONNECTION: 'connection'>
    """
    status = getattr(error, "status_code", None)
    by_class = next(
        (_BY_CLASS[c.__name__] for c in type(error).__mro__ if c.__name__ in _BY_CLASS), None
    )
    if by_class is None and isinstance(status, int) and not is_transport_error(error):
        response = getattr(error, "response", None)
        headers = getattr(response, "headers", {})
        return status_failure(status, getattr(error, "body", None), headers, context)
    causes = _causes(error)
    kind = by_class or FailureKind.INTERNAL
    if kind in (FailureKind.TIMEOUT, FailureKind.CONNECTION) or is_transport_error(error):
        kind = _transport_kind([error, *causes]) or FailureKind.CONNECTION
    message = _MESSAGES.get(kind, str(error))
    last = causes[-1] if causes else error
    cause = f" ({type(last).__name__}: {last})" if last is not error or kind in _MESSAGES else ""
    return failure(kind, f"{context.name}: {_clean(f'{message}{cause}', context.secrets)}")


def _causes(error: BaseException) -> list[BaseException]:
    causes = []
    cause = error.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    return causes


def is_transport_error(error: BaseException) -> bool:
    """Return True for errors of the HTTP libraries, or of reading a body, that an SDK lets pass."""
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, MalformedError) or bool(modules & _TRANSPORTS)


def _transport_kind(errors: Iterable[BaseException]) -> FailureKind | None:
    """Classify a failed connection by aiohttp's errors; None for other errors.

    OpenAI's transport reports refused connections as time-outs. Whatever cannot be parsed was
    answered, and possibly billed.
    """
    names = {cls.__name__ for error in errors for cls in type(error).__mro__}
    if "ClientPayloadError" in names:  # the body was cut off
        return FailureKind.CONNECTION
    if names & {*_UNREADABLE, MalformedError.__name__}:
        return FailureKind.MALFORMED_REPLY
    if "ClientConnectorError" in names:
        return FailureKind.UNREACHABLE
    if "ClientConnectionError" in names and "TimeoutError" not in names:
        return FailureKind.CONNECTION
    return None


def status_failure(
    status: int, body: object, headers: Mapping[str, str], context: ErrorContext
) -> ProviderError:
    """Classify an error response by its status, its body (JSON or text) and its headers."""
    details = mapping(mapping(body).get("error")) or mapping(body)
    nested = mapping(details.get("details")).get("error_code")
    codes = [details.get("code"), details.get("type"), nested]
    message = next(filter(None, map(text, _texts(body, details))), "")
    kind = kind_of(status, [code for code in codes if isinstance(code, str)], message)
    shown = _message(status, kind, message, context)
    error = failure(kind, shown, retry_after=retry_after(headers))
    transient = should_retry(headers)
    if transient is not None and not error.fatal:
        error.transient = transient
    return error


def _texts(body: object, details: Mapping[str, Json]) -> tuple[object, ...]:
    """Return the places where servers put the message of an error."""
    return (details.get("message"), details.get("detail"), mapping(body).get("error"), body)


def kind_of(status: int, codes: Iterable[str], message: str) -> FailureKind:
    """Return the kind of an API error by its codes, else by its status and message."""
    for code in codes:
        if code in _BY_CODE and _is_specific(status, _BY_CODE[code]):
            return _BY_CODE[code]
    for statuses, pattern, kind in _BY_TEXT:
        if status in statuses and pattern.search(message):
            return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if _is_redirect(status):
        return FailureKind.MODEL_NOT_FOUND
    return FailureKind.SERVER if status >= _SERVER_ERRORS else FailureKind.BAD_REQUEST


def _is_redirect(status: int) -> bool:
    return 300 <= status < 400


def _is_specific(status: int, kind: FailureKind) -> bool:
    """Return False for "server_error" with a status that says more."""
    return kind is not FailureKind.SERVER or status not in _BY_STATUS


def malformed_failure(error: MalformedError, context: ErrorContext) -> ProviderError:
    """Classify a response that holds no answer."""
    message = _clean(str(error), context.secrets)
    return failure(
        FailureKind.MALFORMED_REPLY, f"{context.name}: the response is malformed: {message}"
    )


def body_failure(body: Mapping[str, Json], context: ErrorContext) -> ProviderError | None:
    """Return the error that a response of status 200 holds instead of an answer, or None."""
    error = mapping(body.get("error"))
    if not error:
        return None
    code = error.get("code")
    status = code if isinstance(code, int) else _SERVER_ERRORS
    return status_failure(status, body, {}, context)


def _message(status: int, kind: FailureKind, said: str, context: ErrorContext) -> str:
    if _is_redirect(status):
        return (
            f"{context.name}: {context.url} redirects (HTTP {status}), and requests are not sent "
            "on, since they hold the key; set base_url to the address that answers"
        )
    if kind is FailureKind.AUTHENTICATION:  # their message may hold the key, or parts of it
        return (
            f"{context.name}: {context.url} did not accept the key (HTTP {status}); set "
            f"{context.key_source} to a key that may use this model"
        )
    said = _clean(said, context.secrets) or "no explanation"
    hint = ""
    if kind is FailureKind.MODEL_NOT_FOUND:
        hint = f"; correct the model's name, or base_url ({context.url})"
        if context.missing_path:
            hint += f", which most servers want to end in {context.missing_path}"
    if kind is FailureKind.QUOTA_EXHAUSTED:
        hint = "; raise the account's limit or add credit, then resume the run"
    return f"{context.name}: HTTP {status}: {said}{hint}"


def _clean(message: str, secrets: Iterable[str]) -> str:
    hidden = {secret: REDACTED for secret in secrets if secret}
    line = masked(" ".join(message.split()), hidden)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
