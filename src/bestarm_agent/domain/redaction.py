"""Secrets, recognised by name or form, and their removal from logs and messages."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from bestarm_agent.domain.values import Json, arguments_of

_Path: TypeAlias = tuple[str | int, ...]
REDACTED = "[redacted]"
_MOST_SAID = 2000  # characters of an error
SHORTEST_SECRET = 8  # shorter texts stand in messages by chance

# The end of the name decides: "max_tokens" counts tokens and "api_key_env" names a variable. So
# does an option `key`; but what stands under MY_KEY is the value of one.
_SECRET = re.compile(
    r"(?:(?i:api[_-]?key|token|secret|password|authorization)|(?:^|[_-])(?:KEY|Key))$"
)
# Tokenizers call their special tokens "eos_token", "pad_token": they are part of a prompt and no
# secret.
_VOCABULARY = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|start|stop|end|eot|boi|eoi|image|audio|video|special"
    r"|prefix|suffix|middle|think)[_-]token$",
    re.IGNORECASE,
)
_SPECIAL_TOKEN = re.compile(r"</?[^<>\s]+>")  # as "<|im_end|>", whatever it stands under
_REFERENCE = re.compile(  # to variables: "Bearer ${MY_KEY}"
    r"(?:(?:bearer|basic|token)\s+)?(?:\$\{[a-z_]\w*\}[\s:;,/-]*)+", re.ASCII | re.IGNORECASE
)
# What stands after a secret's name, and what begins as the vendors' keys do.
_LIKE_A_SECRET = re.compile(
    r"(?i)((?:api[_-]?key|token|secret|password|authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?"
    r"|\bbearer\s+)\S+"
    r"|\b(?:sk|pk|gsk|hf|ghp|xox[abp]|xai|r8|key)[-_](?:(?=[\w*.-]*[\d*])[\w*.-]{6,}|[\w-]{12,})"
)

# A signature, key or password in the query of a URL, or a password before its host.
_SECRET_IN_URL = re.compile(
    r"(?i)([?&](?:[\w.-]*(?:sig|signature|token|key|secret|password|pwd|auth|credential)|code)="
    r"|://[^\s/:@?#]+:(?=[^\s/@?#]+@))([^&#@\s\"'<>)\]]+)"
)


def is_secret_name(name: str) -> bool:
    """Tell whether values under this name are secrets by custom.

    Example:
        >>> [is_secret_name(name) for name in ("x-api-key", "HF_TOKEN", "max_tokens", "eos_token")]
        [True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not _VOCABULARY.search(name)


def is_secret_variable(name: str) -> bool:
    """Tell whether an environment variable of this name holds a secret by custom.

    Example:
        >>> is_secret_variable("mykey"), is_secret_variable("KEYBOARD")
        (True, False)
    """
    return is_secret_name(name) or name.lower().endswith("key")


def redacted(value: Json) -> Json:
    """Copy ``value``; texts under a secret's name are replaced by a mark.

    Numbers, booleans and null stay, also in lists and objects: they are settings, not secrets.
    ``${VARIABLE}`` stays, since a run is resumed with it, and so do special tokens such as
    ``<pad>`` and the names of properties in a JSON schema.

    Example:
        >>> redacted({"api_key": "sk-1", "properties": {"password": {"type": "string"}}})
        {'api_key': '[redacted]', 'properties': {'password': {'type': 'string'}}}
        >>> redacted([{"token": text} for text in ("${KEY}", "Bearer ${KEY}", "$${KEY}")])
        [{'token': '${KEY}'}, {'token': 'Bearer ${KEY}'}, {'token': '[redacted]'}]
    """
    return _redacted(value, (), {})


def without_fields(value: Json, names: Collection[str]) -> Json:
    """Return a value without the fields of these names, at any depth, also in JSON texts.

    Example:
        >>> without_fields({"a": 1, "b": [{"mail": "x"}, '{"mail": "x", "c": 2}']}, ["mail"])
        {'a': 1, 'b': [{}, '{"c": 2}']}
    """
    if isinstance(value, Mapping):
        return {k: without_fields(item, names) for k, item in value.items() if k not in names}
    if isinstance(value, list | tuple):
        return [without_fields(item, names) for item in value]
    if isinstance(value, str) and any(name in value for name in names):
        held = arguments_of(value)
        if isinstance(held, dict | list) and (less := without_fields(held, names)) != held:
            return json.dumps(less, ensure_ascii=False)
    return value


def secrets_in(value: Json) -> Mapping[_Path, Json]:
    """Return what ``redacted`` replaces, each by its path.

    Example:
        >>> secrets_in({"headers": [{"x": "y"}, {"api_key": "sk-1"}]})
        {('headers', 1, 'api_key'): 'sk-1'}
    """
    secrets: dict[_Path, Json] = {}
    _redacted(value, (), secrets)
    return secrets


def _redacted(value: Json, at: _Path, secrets: dict[_Path, Json], *, named: bool = True) -> Json:
    """Redact; ``named``: names in ``value`` are keys, not the properties of a JSON schema."""
    if isinstance(value, Mapping):
        copy: dict[str, Json] = {}
        for name, item in value.items():
            # Numbers stay: ``max_tokens: 5`` ends like a secret's name, and a run must be resumed
            # with it.
            if named and is_secret_name(name) and _holds_text(item):
                secrets[*at, name], copy[name] = item, REDACTED
            else:
                keys = not _is_properties(name, item)
                copy[name] = _redacted(item, (*at, name), secrets, named=keys)
        return copy
    if isinstance(value, list | tuple):
        return [_redacted(item, (*at, i), secrets) for i, item in enumerate(value)]
    return value


def _is_properties(name: str, value: Json) -> bool:
    if name != "properties" or not isinstance(value, Mapping):
        return False
    return all(isinstance(item, Mapping) for item in value.values())


def _holds_text(value: Json) -> bool:
    if isinstance(value, str):
        return not _REFERENCE.fullmatch(value) and not _SPECIAL_TOKEN.fullmatch(value)
    if isinstance(value, Mapping):
        return any(map(_holds_text, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_text, value))


def hidden_texts(secrets: Iterable[str], folder: Path) -> dict[str, str]:
    """Map texts that messages must not show to what replaces them.

    These are ``secrets``, short ones left out, the study's ``folder`` and the home directory.
    """
    hidden = {text: REDACTED for text in secrets if len(text) >= SHORTEST_SECRET}
    # The study's folder first: it usually lies in the home directory, and "." says more than
    # "~/...".
    places = ((folder.resolve(), "."), (Path.home(), "~"))
    return hidden | {str(path): label for path, label in places if path != path.parent}


def raised(
    who: str, error: BaseException, hidden: Mapping[str, str] | None = None, place: str = ""
) -> str:
    """Say in a sentence what somebody's code raised, without secrets, however long it is."""
    error = own_error(error)
    try:
        message = masked(str(error), hidden)
    except Exception:  # it cannot even be written
        message = "no message"
    said = f": {message[:_MOST_SAID]}" if message else ""
    return f"{who} raised {type(error).__name__}{place}{said}"


def own_error(error: BaseException) -> BaseException:
    """Return what a function raised, of a group the first.

    Coroutines and threads let a RuntimeError stand for some.
    """
    if isinstance(error, BaseExceptionGroup):
        return own_error(error.exceptions[0])
    cause = error.__cause__ if type(error) is RuntimeError else None
    is_ordinary = isinstance(cause, Exception | None) and not isinstance(cause, StopIteration)
    return error if is_ordinary or cause is None else own_error(cause)


def masked(text: str, hidden: Mapping[str, str] | None = None) -> str:
    """Return a text of another program with everything that looks like a secret replaced.

    ``hidden`` maps further texts that must not be shown to what replaces them; secrets among them
    are also found encoded.

    Example:
        >>> masked("HTTP 401: key sk-proj-12345678 is wrong, see /home/me/x", {"/home/me": "~"})
        'HTTP 401: key [redacted] is wrong, see ~/x'
        >>> masked("GET https://x.example/v1?sig=abc%2F9&page=2")
        'GET https://x.example/v1?sig=[redacted]&page=2'
    """
    hidden = hidden or {}
    text = without_traces(text, [secret for secret, label in hidden.items() if label == REDACTED])
    for secret, label in hidden.items():
        text = text.replace(secret, label)
    text = _SECRET_IN_URL.sub(_keep_name, text)
    return _LIKE_A_SECRET.sub(_keep_name, text)


def _keep_name(match: re.Match[str]) -> str:
    return f"{match[1] or ''}{REDACTED}"


def without_traces(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets of eight characters or more in a text: plain, URL-encoded or in base64.

    Of one that begins with a word, as "Bearer KEY", what follows is one, too.

    Example:
        >>> without_traces("no such key: correct-horse-battery", ["correct-horse-battery"])
        'no such key: [redacted]'
    """
    for secret in secrets:
        for form in _forms_of(secret):
            text = text.replace(form, REDACTED)
    return text


@lru_cache(maxsize=64)
def _forms_of(secret: str) -> tuple[str, ...]:
    """Return the texts that betray a secret, the longest first."""
    forms: set[str] = set()
    for word in {secret, secret.partition(" ")[2]}:
        if len(word) >= SHORTEST_SECRET:
            content = word.encode()
            percents = "".join(f"%{byte:02x}" for byte in content)
            forms |= {word, quote(word, safe=""), percents, percents.upper()}
            # A secret inside a longer text (a header "user:KEY" in base64) starts at any of three
            # phases; of each, the middle digits depend on the secret alone.
            for shift in range(3):  # base64 depends on the bytes before it, in groups of three
                encoded = b64encode(bytes(shift) + content).decode().rstrip("=")
                inner = encoded[-(-shift * 4 // 3) : -1]  # the last depends on what follows
                forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    # The longest first: a short form could be part of a longer one, whose rest would stay.
    return tuple(sorted(forms, key=len, reverse=True))


def url_secrets_in(value: Json, *at: str | int) -> Iterator[_Path]:
    """Yield the path of every URL in ``value`` with a written-out secret.

    Example:
        >>> list(url_secrets_in({"base_url": "https://x.example/v1?sig=abc", "a": "?sig=${SIG}"}))
        [('base_url',)]
    """
    if isinstance(value, str):
        if any(not match[2].startswith("$") for match in _SECRET_IN_URL.finditer(value)):
            yield at
    elif isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for place, item in items:
            yield from url_secrets_in(item, *at, place)
