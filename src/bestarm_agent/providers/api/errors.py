"""Failed calls, classified for both vendors and for compatible servers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from bestarm_agent.domain.redaction import REDACTED, masked
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.api.endings import Ending
from bestarm_agent.providers.api.endpoints import NO_KEY, Endpoint
from bestarm_agent.providers.api.headers import retry_after, should_retry, wait_in
from bestarm_agent.providers.api.protocol import MalformedError, as_object, objects_in
from bestarm_agent.providers.failures import failure

_SHOWN = 300
_OK, _REDIRECTS, _CLIENT_ERRORS = 200, range(300, 400), range(400, 500)
_STATUSES = range(400, 600)  # of errors
_FORBIDDEN = 403
# Where the words of an error stand, in the order of how much they say; objects and lists in these
# places are searched in turn. The last are MiniMax's and SambaNova's.
_TEXTS = (
    *("message", "msg", "detail", "error", "errors", "error_description", "title"),
    *("base_resp", "status_msg", "error_message"),
)
_DEEPEST = 6  # levels that are searched
_ANSWERS = ("choices", "output", "content", "data")  # a list under one of these is an answer

# Statuses that do not mean what their hundred does. A call that got 409, 424 or 425 may succeed
# when it is repeated, and 499 is nginx's word for a connection that was closed before the answer.
_BY_STATUS: Mapping[int, FailureKind] = {
    status: kind
    for kind, statuses in {
        FailureKind.AUTHENTICATION: (401, 403),
        FailureKind.QUOTA_EXHAUSTED: (402,),
        FailureKind.MODEL_NOT_FOUND: (404, 405, 410),  # 405: no API at this address
        FailureKind.TIMEOUT: (408, 504, 524),  # 524: Cloudflare's, of an answer
        FailureKind.SERVER: (409, 424, 425),
        FailureKind.TOO_LONG: (413,),
        FailureKind.RATE_LIMITED: (429, 498),  # 498: Groq has no capacity in the flex tier
        FailureKind.CONNECTION: (499,),
        FailureKind.BAD_REQUEST: (501,),
        FailureKind.OVERLOADED: (503, 529),
    }.items()
    for status in statuses
}
_ASKED = r"\b(prompts?|inputs?|messages)\b.{0,40}"
# MiniMax's own codes, which come with HTTP 200; others are of the server, and pass.
_OF_MINIMAX = dict.fromkeys(("1002", "1039", "1041", "2045"), 429)  # limits that pass
_OF_MINIMAX |= dict.fromkeys(("1026", "1027", "1042", "2013"), 400)  # what was asked, or answered
_OF_MINIMAX |= {"1004": 401, "2049": 401, "1008": 402, "2056": 402}  # key; credit, of five hours
# What errors say, in a code at any status or in a text at these (200: the body names no status):
# "context_length_exceeded", "This model's maximum context length is 8192 tokens", "`inputs` tokens
# + `max_new_tokens` must be <= 8193", "insufficient_quota", "Your credit balance is too low",
# "Incorrect API key provided", "The model `m` does not exist". What a limit of tokens a minute can
# never let in ("Request too large") is no matter of waiting. A 500 may pass, so there only words
# count that cannot be of a time that was exceeded, or of a file that was not found.
_BY_TEXT: tuple[tuple[frozenset[int], re.Pattern[str], FailureKind], ...] = tuple(
    (frozenset(statuses), re.compile(pattern, re.IGNORECASE), kind)
    for kind, statuses, pattern in (
        (
            *(FailureKind.TOO_LONG, (200, 400, 422, 500)),
            r"context.?(length|window|limit|size)|token limit|`inputs`.{0,40}must "
            r"|maximum (number of )?(input )?tokens|(maximum|of) (prompt|input) length"
            rf"|{_ASKED}((is|are|was|were) too (long|large)(?! to)"
            r"|((longer|larger|more) than|(?<!not )exceed).{0,40}(length|size|tok|char))"
            r"|超长|too many tokens(?!, please)",
        ),
        (
            *(FailureKind.TOO_LONG, (200, 400, 422)),
            rf"{_ASKED}(too (long|large)|longer than|(?<!not )exceed)",
        ),
        (
            *(FailureKind.CONTENT_FILTERED, (200, 400, 403)),
            r"content.?(management|filter(ing)?|moderation|safety|policy)|(input|was) flagged"
            r"|policy_violation|violates \w+ (guidelines|polic(y|ies)|terms)|guardrail|censorship"
            r"|(requires|by) moderation|safety (system|filter)|inappropriate content|exists risk"
            r"|敏感|(in|out)put (new_)?sensitive",
        ),
        (
            *(FailureKind.QUOTA_EXHAUSTED, (200, 400, 403, 412, 429, 500)),  # 412: Fireworks
            r"欠费|current.(token )?quota|额度|余[额量]|arrearage|balance is (insufficient|too low)"
            r"|(any|no|available|of) credits?\b|(daily|monthly)( \w+)? quota|token_quota"
            r"|(insufficient|not enough)(_|.{0,9} )(balance|credits?|funds|quota)"
            r"|spend(ing)?[ _](limit|cap|alert)|billing_|usage limits|(over|exceeded).?budget"
            r"|budget.{0,10}exceeded|free tier.{0,30}exhausted|key limit exceeded|credit balance",
        ),
        (FailureKind.BAD_REQUEST, (413, 429), r"request too large for|must be reduced"),
        (FailureKind.RATE_LIMITED, (200, 403, 500), r"rate.?limit|too many requests"),
        # Groq: what the model wrote is no call, or no JSON
        (FailureKind.UNPARSABLE, (), r"tool_use_failed|json_validate_failed|output_parse_failed"),
        (
            *(FailureKind.AUTHENTICATION, (200, 400, 500)),
            r"api.?key (is )?(not valid|invalid|expired)|(invalid|incorrect|expired).api.?key",
        ),
        (
            *(FailureKind.MODEL_NOT_FOUND, (200, 400)),
            r"model\b.{0,200}((does )?not exist|not found|been decommissioned)",
        ),
        (
            *(FailureKind.MODEL_NOT_FOUND, (200, 400, 500)),
            r"model\b\W*(\S+ )?((does )?not exist|not found)|not a valid model"
            r"|model_not_(found|supported|available)|(invalid|unknown)[ _]model(:| name| id|$| ')"
            r"|model identifier is invalid|llm provider not|unexpected endpoint",
        ),
    )
)
_MESSAGES: Mapping[FailureKind, str] = {
    FailureKind.MALFORMED_REPLY: "The response cannot be read.",
    FailureKind.CONNECTION: "Connection error.",
    FailureKind.UNREACHABLE: "No connection, so nothing was sent.",
}


# The prompt's length, and what it may have with its answer: "maximum context length is 4096 tokens,
# 24 in the messages", "has 24 input tokens", "24 `inputs` tokens", "188240 + 21333 > 200000".
_PROMPT_LENGTH = re.compile(
    r"(?P<n>\d+)(?:[^\d.,;>]{0,25}(?:input|prompt|messages)| \+ \d+ >)", re.IGNORECASE
)
_CONTEXT_LENGTH = re.compile(r"(?:length (?:is|of)|limit of|<=|>)\D{0,12}(?P<n>\d+)", re.IGNORECASE)
# A rate limit that the account has met, as OpenAI, Anthropic and Google say it. A server that is
# merely full says nothing of the kind.
_OF_ACCOUNT = re.compile(
    r"\b(organi[sz]ation|(your|this) (account|project|team|workspace)|quota exceeded for|"
    r"(requests|tokens) per (second|min(ute)?|hour|day))\b",
    re.IGNORECASE,
)


def call_failure(error: Exception, name: str, endpoint: Endpoint) -> ProviderError:
    """Classify what sending a request raised, or reading its response.

    ``name`` is that of the provider and the model, as users write it.

    Example:
        >>> error = MalformedError("it holds no choices")
        >>> str(call_failure(error, "openai/m", Endpoint("https://x")))
        'openai/m: the response is malformed: it holds no choices'
    """
    from bestarm_agent.providers.api.transport import NotSentError, transport_failure

    if isinstance(error, MalformedError):
        reason = f"the response is malformed: {error}"
        return failure(FailureKind.MALFORMED_REPLY, f"{name}: {_clean(reason, endpoint)}")
    if isinstance(error, NotSentError):
        reason = f"{_MESSAGES[FailureKind.UNREACHABLE]} ({error})"
        unsent = failure(FailureKind.UNREACHABLE, f"{name}: {_clean(reason, endpoint)}")
        unsent.transient, unsent.fatal = not error.permanent, error.permanent
        return unsent
    kind = transport_failure(error) or FailureKind.INTERNAL
    message = _MESSAGES.get(kind, "The request cannot be sent.")
    reason = f"{message} ({type(error).__name__}: {error})"
    return failure(kind, f"{name}: {_clean(reason, endpoint)}")


def error_body(content: bytes) -> object:
    """Return what an error response holds: JSON, or else its text."""
    text = content.decode(errors="replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def status_failure(
    status: int, body: object, headers: Mapping[str, str], name: str, endpoint: Endpoint
) -> ProviderError:
    """Classify an error response by its status, its body (JSON or text) and its headers.

    A wait that is named, in a header or in the body, means a limit that passes: Google says "You
    exceeded your current quota" of a minute's. Status 0: HTTP says 200, and the body names none.
    """
    codes, message = _codes(body), _words(body)
    kind = kind_of(status or _OK, codes, message)
    body_wait = wait_in(body)
    # No wait makes a wrong key right, so a 403 that names a wait is a limit as well.
    is_forbidden = kind is FailureKind.AUTHENTICATION and status == _FORBIDDEN
    if body_wait is not None and (kind is FailureKind.QUOTA_EXHAUSTED or is_forbidden):
        kind = FailureKind.RATE_LIMITED
    wait = retry_after(headers)
    problem = _message(status or _OK, kind, message, endpoint)
    error = failure(kind, f"{name}: {problem}", retry_after=body_wait if wait is None else wait)
    # Only a limit of the account pauses all calls to the model; after others the call waits alone.
    error.of_account = kind is FailureKind.RATE_LIMITED and bool(_OF_ACCOUNT.search(message))
    # The server knows best whether to repeat a call, but not what is fatal here: a wrong key stays
    # wrong.
    transient = should_retry(headers)
    if transient is not None and not error.fatal:
        error.transient = transient
    return error


def _words(body: object, depth: int = 0) -> str:
    """Return what an error says, wherever a vendor writes it; empty if nothing is found."""
    if isinstance(body, str):
        return body
    if depth > _DEEPEST or not isinstance(body, list | dict):
        return ""
    parts = body if isinstance(body, list) else [body[name] for name in _TEXTS if name in body]
    return next(filter(None, (_words(part, depth + 1) for part in parts)), "")


def _codes(body: object) -> list[str]:
    """Return the codes and types that an error gives."""
    outer = next(iter(objects_in(body)), {}) if isinstance(body, list) else as_object(body)
    error = outer.get("error")
    inner = next(iter(objects_in(error)), {}) if isinstance(error, list) else as_object(error)
    details = inner or outer
    nested = as_object(details.get("details")).get("error_code")
    codes = (details.get("code"), details.get("type"), nested)
    return [code for code in codes if isinstance(code, str)]


def kind_of(status: int, codes: Sequence[str], message: str) -> FailureKind:
    """Return the kind of an API error by its codes, else by its status and message."""
    # From the most specific words to the least: codes, sentences known from servers without codes,
    # the status, and the hundred that it belongs to.
    for statuses, pattern, kind in _BY_TEXT:
        if any(map(pattern.search, codes)) or (status in statuses and pattern.search(message)):
            fits = kind is FailureKind.TOO_LONG and _prompt_fits(message)
            return FailureKind.BAD_REQUEST if fits else kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status in _REDIRECTS:
        return FailureKind.MODEL_NOT_FOUND
    return FailureKind.SERVER if status not in _CLIENT_ERRORS else FailureKind.BAD_REQUEST


def _prompt_fits(message: str) -> bool:
    """Return whether a prompt is refused for the length of the answer that it asks for."""
    prompt, context = _PROMPT_LENGTH.search(message), _CONTEXT_LENGTH.search(message)
    return prompt is not None and context is not None and int(prompt["n"]) < int(context["n"])


def body_failure(body: Mapping[str, Json], name: str, endpoint: Endpoint) -> ProviderError | None:
    """Return the error that a response of status 200 holds instead of an answer, or None.

    Some servers write it as a text, a list, or an object of its own; some add "success" or
    "error: null" to every answer.
    """
    outer = as_object(body.get("error")) or next(iter(objects_in(body.get("error"))), body)
    own = as_object(outer.get("base_resp")).get("status_code")  # 0 of an answer
    is_error = body.get("error") or own or "error" in (body.get("object"), body.get("type"))
    # An explicit error counts even beside an answer. Without one, a body that holds no answer and
    # says something is an error in a form of its own, such as {"detail": "..."} or {"msg": "..."}.
    is_answer = any(isinstance(body.get(n), list) and (body[n] or n != "choices") for n in _ANSWERS)
    if not is_error and (is_answer or not _words(body)):
        return None
    codes = (*map(outer.get, ("code", "status", "status_code")), _OF_MINIMAX.get(str(own)))
    numbers = (int(str(code)) for code in codes if str(code).isdecimal())
    status = next((code for code in numbers if code in _STATUSES), 0)
    return status_failure(status, body, {}, name, endpoint)


def no_answer(end: Ending, name: str, endpoint: Endpoint) -> ProviderError:
    """Return the failure of a response of status 200 that is no answer.

    The error that it holds is that of a server behind the one that was asked, so it says nothing
    about our key, credit or model: unless it concerns the request, the call is repeated.
    """
    error = body_failure({"error": end.error}, name, endpoint) if end.error else None
    if error is not None and (error.transient or error.blame is Blame.CANDIDATE):
        return error
    reason = f"the response is no answer: {end.problem if error is None else error}"
    failed = failure(FailureKind.MALFORMED_REPLY, f"{name}: {_clean(reason, endpoint)}")
    if end.unknown:
        excerpt, provider = _clean(end.unknown, endpoint), name.partition("/")[0]
        failed.notice = (
            f"stopped for a reason that is not known, {excerpt!r}, which is no answer; if it is a "
            f"normal end, say `providers: {{{provider}: {{finish: {{{excerpt}: stop}}}}}}`"
        )
    return failed


def _message(status: int, kind: FailureKind, explanation: str, endpoint: Endpoint) -> str:
    if status in _REDIRECTS:
        return (
            f"{endpoint.address} redirects (HTTP {status}), and requests are not sent on, since "
            "they hold the key; set base_url to the address that answers"
        )
    if kind is FailureKind.AUTHENTICATION:
        # What is said of a wrong key may hold parts of it. 403 may as well be about a country, or
        # come from a firewall.
        why = f": {_clean(explanation, endpoint)}" if status == _FORBIDDEN and explanation else ""
        if endpoint.key == NO_KEY:
            name = "its variable" if endpoint.key_source == NO_KEY else endpoint.key_source
            return (
                f"{endpoint.address} wants a key (HTTP {status}{why}), and none was sent; name "
                f"{name} as the provider's `key`"
            )
        return (
            f"{endpoint.address} did not accept the key (HTTP {status}{why}); set "
            f"{endpoint.key_source} to a key that may use this model"
        )
    hint = ""
    if kind is FailureKind.MODEL_NOT_FOUND and "v1/responses" in explanation:
        hint = "; say `api: responses` of this model, among its provider's `models`"
    elif kind is FailureKind.MODEL_NOT_FOUND:
        hint = f"; correct the model's name, or base_url ({endpoint.address})"
        if endpoint.missing_path:
            hint += f", which most servers want to end in {endpoint.missing_path}"
    elif kind is FailureKind.BAD_REQUEST and _prompt_fits(explanation):
        hint = "; the prompt alone fits, so give a lower `max_tokens` under `params`"
    problem = f"HTTP {status}: {_clean(explanation, endpoint) or 'no explanation'}"
    if kind is FailureKind.QUOTA_EXHAUSTED:
        return (
            f"the account has no credit left, or is at its limit ({problem}); raise the account's "
            "limit or add credit, then resume the run"
        )
    return problem + hint


def _clean(message: str, endpoint: Endpoint) -> str:
    # Masked before it is cut: half of a key would not be recognised.
    line = masked(" ".join(message.split()), dict.fromkeys(endpoint.secrets, REDACTED))
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
