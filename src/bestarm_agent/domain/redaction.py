"""What is a secret, by its name or its looks, and how it is kept out of logs and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bestarm_agent.domain.digest import Json

REDACTED = "[redacted]"
SHORTEST_SECRET = 6  # shorter texts stand in messages by chance

# The end of the name decides: "max_tokens" counts tokens and "api_key_env" names a variable. So
# does an option `key`; but what stands under MY_KEY is the value of one.
_SECRET = re.compile(
    r"(?:(?i:api[_-]?key|token|secret|password|authorization)|(?:^|[_-])(?:KEY|Key))$"
)
_VOCABULARY = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|start|stop|end|eot|boi|eoi|image|audio|video|special"
    r"|prefix|suffix|middle|think)[_-]token$",
    re.IGNORECASE,
)
_SPECIAL_TOKEN = re.compile(r"</?[^<>\s]+>")  # as "<|im_end|>", whatever it stands under
_REFERENCE = re.compile(
    r"(?:(?:bearer|basic|token)\s+)?(?:\$\{[a-z_]\w*\}[\s:;,/-]*)+", re.ASCII | re.IGNORECASE
)
# What stands after a secret's name, and what begins as the vendors' keys do.
_LIKE_A_SECRET = re.compile(
    r"(?i)((?:api[_-]?key|token|secret|password|authorization)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?"
    r"|\bbearer\s+)\S+"
    r"|\b(?:sk|pk|gsk|hf|ghp|xox[abp]|xai|r8|key)[-_](?:(?=[\w*.-]*[\d*])[\w*.-]{6,}|[\w-]{12,})"
)


def is_secret_name(name: str) -> bool:
    """Whether values under this name are secrets by custom.

    Example:
        >>> [is_secret_name(name) for name in ("x-api-key", "HF_TOKEN", "max_tokens", "eos_token")]
        [True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not _VOCABULARY.search(name)


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of this name holds a secret by custom.

    Example:
        >>> is_secret_variable("mykey"), is_secret_variable("KEYBOARD")
        (True, False)
    """
    return is_secret_name(name) or name.lower().endswith("key")


def is_reference(text: str) -> bool:
    """Whether a text says where a secret is, and holds none.

    Example:
        >>> [is_reference(text) for text in ("${MY_KEY}", "Bearer ${MY_KEY}", "sk-1", "$${MY_KEY}")]
        [True, True, False, False]
    """
    return _REFERENCE.fullmatch(text) is not None


def redacted(value: Json) -> Json:
    """Copy ``value`` with everything under a secret's name that holds a text replaced by a mark.

    Numbers, booleans and null stay, also in lists and objects: they are settings, not secrets. So
    do ``${VARIABLE}``, which says where the secret is (a run is resumed with it), special tokens
    as ``<pad>``, and what a JSON schema calls its properties.

    Example:
        >>> redacted({"api_key": "sk-1", "properties": {"password": {"type": "string"}}})
        {'api_key': '[redacted]', 'properties': {'password': {'type': 'string'}}}
    """
    return _redacted(value, named=True)


def _redacted(value: Json, *, named: bool) -> Json:
    """``named``: whether the names in ``value`` say what stands under them."""
    if isinstance(value, Mapping):
        return {
            name: REDACTED
            if named and _is_secret(name, item)
            else _redacted(item, named=not _is_properties(name, item))
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def secrets_in(value: Json, *at: str | int) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """What ``redacted`` replaces, each with the path to it; ``at`` is the path to ``value``.

    Example:
        >>> list(secrets_in({"headers": [{"x": "y"}, {"api_key": "sk-1"}]}))
        [(('headers', 1, 'api_key'), 'sk-1')]
    """
    yield from _secrets_in(value, at, named=True)


def _secrets_in(
    value: Json, at: tuple[str | int, ...], *, named: bool
) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if named and _is_secret(name, item):
                yield (*at, name), item
            else:
                yield from _secrets_in(item, (*at, name), named=not _is_properties(name, item))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _secrets_in(item, (*at, i), named=True)


def _is_secret(name: str, value: Json) -> bool:
    return is_secret_name(name) and _holds_text(value)


def _holds_text(value: Json) -> bool:
    """Whether there is a text in it that may be a secret."""
    if isinstance(value, str):
        return not is_reference(value) and not _SPECIAL_TOKEN.fullmatch(value)
    if isinstance(value, Mapping):
        return any(map(_holds_text, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_text, value))


def _is_properties(name: str, value: Json) -> bool:
    """Whether names in ``value`` are those of the properties that a JSON schema describes."""
    if name != "properties" or not isinstance(value, Mapping):
        return False
    return all(isinstance(one, Mapping) for one in value.values())


def hidden_texts(secrets: Iterable[str], folder: Path) -> dict[str, str]:
    """What must not stand in messages, with what stands in its place.

    Args:
        secrets: passwords, keys and the like; short ones are left out.
        folder: the study's: paths of this machine are nobody's.
    """
    hidden = {text: REDACTED for text in secrets if len(text) >= SHORTEST_SECRET}
    places = ((folder.resolve(), "."), (Path.home(), "~"))
    return hidden | {str(path): shown for path, shown in places if path != path.parent}


def masked(text: str, hidden: Mapping[str, str] | None = None) -> str:
    """A text for messages, with what looks like a secret cut out.

    Args:
        text: what somebody else wrote.
        hidden: further texts that must not be shown, with what stands in their place.

    Example:
        >>> masked("HTTP 401: key sk-proj-12345678 is wrong, see /home/me/x", {"/home/me": "~"})
        'HTTP 401: key [redacted] is wrong, see ~/x'
    """
    for secret, shown in (hidden or {}).items():
        text = text.replace(secret, shown)
    return _LIKE_A_SECRET.sub(lambda found: f"{found[1] or ''}{REDACTED}", text)
