"""What failed calls of the SDKs mean, in one place for both vendors and for compatible servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.redaction import REDACTED, masked
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api_headers import retry_after, should_retry
from bestarm_agent.providers.api_reading import MalformedError, mapping, text
from bestarm_agent.providers.failures import failure

_SHOWN = 300
_SERVER_ERRORS = 500

# By class of the SDK, for errors without a status; the first class of the inheritance chain counts,
# and a time-out is a subclass of the connection error.
_BY_CLASS: Mapping[str, FailureKind] = {
    "APITimeoutError": FailureKind.TIMEOUT,
    "APIConnectionError": FailureKind.CONNECTION,
    "APIResponseValidationError": FailureKind.MALFORMED_REPLY,
    "CredentialsError": FailureKind.AUTHENTICATION,
    "SubjectTokenProviderError": FailureKind.AUTHENTICATION,
}
_BY_STATUS: Mapping[int, FailureKind] = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA_EXHAUSTED,
    403: FailureKind.AUTHENTICATION,
    404: FailureKind.MODEL_NOT_FOUND,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER,
    413: FailureKind.TOO_LONG,
    424: FailureKind.SERVER,
    425: FailureKind.SERVER,
    429: FailureKind.RATE_LIMITED,
    498: FailureKind.RATE_LIMITED,  # Groq: no capacity in the flex tier
    499: FailureKind.CONNECTION,
    501: FailureKind.BAD_REQUEST,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}
_BY_CODE: Mapping[str, FailureKind] = {
    "insufficient_quota": FailureKind.QUOTA_EXHAUSTED,
    "billing_hard_limit_reached": FailureKind.QUOTA_EXHAUSTED,
    "billing_not_active": FailureKind.QUOTA_EXHAUSTED,
    "billing_error": FailureKind.QUOTA_EXHAUSTED,
    "enforced_spend_limit_reached": FailureKind.QUOTA_EXHAUSTED,
    "contract_spend_limit_reached": FailureKind.QUOTA_EXHAUSTED,
    "invalid_api_key": FailureKind.AUTHENTICATION,
    "model_not_found": FailureKind.MODEL_NOT_FOUND,
    "context_length_exceeded": FailureKind.TOO_LONG,
    "content_filter": FailureKind.CONTENT_FILTERED,
    "content_policy_violation": FailureKind.CONTENT_FILTERED,
    "rate_limit_exceeded": FailureKind.RATE_LIMITED,
    "server_error": FailureKind.SERVER,
}
# Compatible servers say the same without a code; the statuses are those that it is said under.
_BY_TEXT: tuple[tuple[frozenset[int], re.Pattern[str], FailureKind], ...] = tuple(
    (frozenset(statuses), re.compile(pattern, re.IGNORECASE), kind)
    for statuses, pattern, kind in (
        (
            (400, 422),
            r"context length|context window|context limit|prompt is too long|too many tokens|"
            r"maximum (number of )?(input )?tokens|longer than the model",
            FailureKind.TOO_LONG,
        ),
        (
            (400, 403),
            r"content (management|filtering|moderation) policy|content_filter|was flagged|"
            r"requires moderation",
            FailureKind.CONTENT_FILTERED,
        ),
        (
            (400, 403, 429),
            r"credit balance|current quota|insufficient balance|spend limit",
            FailureKind.QUOTA_EXHAUSTED,
        ),
        ((400,), r"api key not valid|invalid api key", FailureKind.AUTHENTICATION),
        (
            (400,),
            r"model\b.{0,200}(does not exist|not found|is not a valid model)",
            FailureKind.MODEL_NOT_FOUND,
        ),
    )
)
_WORDS: Mapping[FailureKind, str] = {
    FailureKind.CONNECTION: "Connection error.",
    FailureKind.UNREACHABLE: "No connection, so nothing was sent.",
}


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whose errors these are, for messages.

    Attributes:
        name: provider and model as users write them.
        url: where requests go.
        key_source: the variable that holds the key.
        secrets: texts that no message may hold.
    """

    name: str
    url: str
    key_source: str
    secrets: tuple[str, ...] = ()


def sdk_failure(error: Exception, speaker: Speaker) -> ProviderError:
    """Return what an exception of an SDK means.

    Example:
        >>> from openai import APIConnectionError
        >>> error = APIConnectionError(request=None)
        >>> sdk_failure(error, Speaker("openai/m", "https://x", "K")).kind
        <FailureKind.CONNECTION: 'connection'>
    """
    status = getattr(error, "status_code", None)
    by_class = next(
        (_BY_CLASS[c.__name__] for c in type(error).__mro__ if c.__name__ in _BY_CLASS), None
    )
    if by_class is None and isinstance(status, int):
        response = getattr(error, "response", None)
        headers = getattr(response, "headers", {})
        return status_failure(status, getattr(error, "body", None), headers, speaker)
    causes = _causes(error)
    kind = by_class or FailureKind.INTERNAL
    if kind in (FailureKind.TIMEOUT, FailureKind.CONNECTION):
        kind = _disconnection(causes) or kind
    words = _WORDS.get(kind, str(error))
    cause = f" ({type(causes[-1]).__name__}: {causes[-1]})" if causes else ""
    return failure(kind, f"{speaker.name}: {_clean(f'{words}{cause}', speaker.secrets)}")


def _causes(error: BaseException) -> list[BaseException]:
    """What an error goes back to, the first cause last."""
    causes = []
    cause = error.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    return causes


def _disconnection(causes: Iterable[BaseException]) -> FailureKind | None:
    """How the connection failed, by aiohttp's own errors; None if it was no matter of that.

    OpenAI's transport reports refused connections as time-outs.
    """
    names = {cls.__name__ for cause in causes for cls in type(cause).__mro__}
    if "ClientConnectorError" in names:
        return FailureKind.UNREACHABLE
    if "ClientConnectionError" in names and "TimeoutError" not in names:
        return FailureKind.CONNECTION
    return None


def status_failure(
    status: int, body: object, headers: Mapping[str, str], speaker: Speaker
) -> ProviderError:
    """Return what an error response means.

    Args:
        status: its HTTP status.
        body: its JSON or text.
        headers: its headers.
        speaker: who sent it.
    """
    told = mapping(mapping(body).get("error")) or mapping(body)
    codes = [told.get("code"), told.get("type"), mapping(told.get("details")).get("error_code")]
    words = next(filter(None, map(text, _texts(body, told))), "")
    kind = kind_of(status, [code for code in codes if isinstance(code, str)], words)
    error = failure(kind, _message(status, kind, words, speaker), retry_after=retry_after(headers))
    wanted = should_retry(headers)
    if wanted is not None and not error.fatal:
        error.transient = wanted
    return error


def _texts(body: object, told: Mapping[str, Json]) -> tuple[object, ...]:
    """Where servers put the words of an error."""
    return (told.get("message"), told.get("detail"), mapping(body).get("error"), body)


def kind_of(status: int, codes: Iterable[str], words: str) -> FailureKind:
    """What an error of an API is, by its codes, else its status and words."""
    for code in codes:
        if code in _BY_CODE and _agrees(status, _BY_CODE[code]):
            return _BY_CODE[code]
    for statuses, pattern, kind in _BY_TEXT:
        if status in statuses and pattern.search(words):
            return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FailureKind.SERVER if status >= _SERVER_ERRORS else FailureKind.BAD_REQUEST


def _agrees(status: int, kind: FailureKind) -> bool:
    """A code such as "server_error" comes with several statuses, and these say more."""
    return kind is not FailureKind.SERVER or status not in _BY_STATUS


def malformed_failure(error: MalformedError, speaker: Speaker) -> ProviderError:
    """Return what a response means that is no answer."""
    words = _clean(str(error), speaker.secrets)
    return failure(
        FailureKind.MALFORMED_REPLY, f"{speaker.name}: the response is malformed: {words}"
    )


def body_failure(body: Mapping[str, Json], speaker: Speaker) -> ProviderError | None:
    """Return the error that a response of status 200 holds in place of an answer, or None."""
    told = mapping(body.get("error"))
    if not told:
        return None
    code = told.get("code")
    status = code if isinstance(code, int) else _SERVER_ERRORS
    return status_failure(status, body, {}, speaker)


def _message(status: int, kind: FailureKind, words: str, speaker: Speaker) -> str:
    if kind is FailureKind.AUTHENTICATION:  # its words may hold the key, or parts of it
        return (
            f"{speaker.name}: {speaker.url} did not accept the key (HTTP {status}); set "
            f"{speaker.key_source} to a key that may use this model"
        )
    said = _clean(words, speaker.secrets) or "no explanation"
    hint = ""
    if kind is FailureKind.MODEL_NOT_FOUND:
        hint = f"; correct the model's name, or base_url ({speaker.url})"
    if kind is FailureKind.QUOTA_EXHAUSTED:
        hint = "; raise the account's limit or add credit, then resume the run"
    return f"{speaker.name}: HTTP {status}: {said}{hint}"


def _clean(words: str, secrets: Iterable[str]) -> str:
    """One line, not too long, without secrets."""
    hidden = {secret: REDACTED for secret in secrets if secret}
    words = masked(" ".join(words.split()), hidden)
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"
