"""Content digests: equal content, equal id, on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # pydantic, which reads the hints of what is stored, cannot follow the circle

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


def canonical(value: Json) -> str:
    """Render ``value`` as JSON with sorted keys and no spaces; raises ValueError for NaN."""
    return _encode(value)


def digest(value: Json, *, length: int = 16) -> str:
    """Return the first ``length`` <= 64 hexadecimal digits of the SHA-256 of ``canonical``."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]
