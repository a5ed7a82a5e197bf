"""Messages between this process and its workers: a length of 8 bytes, and a pickle."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm_agent.domain.digest import Json

_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Setup:
    """The provider that a process runs."""

    name: str
    options: Mapping[str, Json]
    base_dir: Path


@dataclass(frozen=True, slots=True)
class Times:
    """Measures of a model in one process, as far as they are known."""

    n_loads: int = 0
    load_seconds: float | None = None
    call_seconds: float | None = None


def frame(content: object) -> bytes:
    """Return an object as a frame."""
    pickled = pickle.dumps(content)
    return len(pickled).to_bytes(_LENGTH_BYTES, "little") + pickled


async def read_frame(stream: asyncio.StreamReader) -> Any:  # noqa: ANN401
    """Read the next frame; raises IncompleteReadError at the end of the stream."""
    length = int.from_bytes(await stream.readexactly(_LENGTH_BYTES), "little")
    return pickle.loads(await stream.readexactly(length))  # from our own process
