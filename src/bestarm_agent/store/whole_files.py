"""Files that appear whole or not at all, readable by the user alone like a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""Mode of every file that holds prompts, answers or scores."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that replaces ``path`` once complete; an error leaves nothing behind."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as stream:
            yield stream
        partial.replace(path)
    finally:
        with suppress(OSError):  # it took its place, or its folder is gone
            partial.unlink()
