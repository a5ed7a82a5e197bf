"""Keeps secrets out of the store, whatever a configuration carries."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bestarm_agent.domain.digest import Json

REDACTED = "[redacted]"

# The end of the name decides: "max_tokens" counts tokens and "api_key_env" names a variable. So
# does an option `key`; but what stands under MY_KEY is the value of one.
_SECRET = re.compile(
    r"(?:(?i:api[_-]?key|token|secret|password|authorization)|(?:^|[_-])(?:KEY|Key))$"
)
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}", re.ASCII)
_VOCABULARY = re.compile(
    r"(?:^|[_-])(?:bos|eos|pad|unk|sep|cls|mask|start|stop|end)[_-]token$", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Whether values under this name are secrets by custom.

    Example:
        >>> [is_secret_name(name) for name in ("x-api-key", "HF_TOKEN", "max_tokens", "eos_token")]
        [True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not _VOCABULARY.search(name)


def redacted(value: Json) -> Json:
    """Copy ``value`` with every text, list or object under a secret's name replaced by a mark.

    Numbers, booleans and null stay: they are settings, not secrets. So does ``${VARIABLE}``, which
    says where the secret is: a run is resumed with it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {name: _redacted_item(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def _redacted_item(name: str, item: Json) -> Json:
    if isinstance(item, str) and _REFERENCE.fullmatch(item):
        return item
    if isinstance(item, str | list | tuple | Mapping) and is_secret_name(name):
        return REDACTED
    return redacted(item)
