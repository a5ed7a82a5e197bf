"""A router as bytes: arrays without pickle, so that reading runs no code."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import StoreError, StoreVersionError

FORMAT = 2  # 1 had no candidates that joined later; it is read too

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The stored state of a router."""

    facts: Mapping[str, Any]  # settings, candidates and records that wait, as JSON
    rule: Arrays | None = None  # the rule's state; None before features were made
    encoder: Arrays | None = None  # the encoder's state


def dump(snapshot: Snapshot) -> bytes:
    """Write a router's state as bytes."""
    arrays: dict[str, Any] = {
        "facts": np.array(json.dumps({"format": FORMAT, **snapshot.facts})),
        **{f"rule/{key}": value for key, value in (snapshot.rule or {}).items()},
        **{f"encoder/{key}": value for key, value in (snapshot.encoder or {}).items()},
    }
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def load(data: bytes, name: str) -> Snapshot:
    """Read what ``dump`` wrote; raise StoreVersionError if a newer version of the package did."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
        facts = json.loads(str(arrays["facts"]))
        format_ = int(facts["format"])
    except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile) as error:
        raise StoreError(
            f"the state of router {name!r} is damaged ({type(error).__name__}); go back to an "
            f"earlier version, or give the router another name"
        ) from error
    if format_ > FORMAT:
        raise StoreVersionError(
            f"router {name!r} was stored by a newer version of bestarm-agent (format {format_}); "
            f"pip install --upgrade bestarm-agent"
        )
    return Snapshot(facts, _part(arrays, "rule/"), _part(arrays, "encoder/"))


def _part(arrays: Arrays, prefix: str) -> Arrays | None:
    found = {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
    return found or None
