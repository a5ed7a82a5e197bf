"""Reads `.npz` files, whatever they turn out to hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from bestarm_agent.errors import ConfigError


@contextmanager
def open_arrays(path: Path) -> Iterator[NpzFile]:
    """Open a file of plain arrays; nothing in it is unpickled.

    Raises:
        ConfigError: there is no such file, it is no `.npz` file, or an array that is read from it
            holds objects.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        with path.open("rb") as stream:  # numpy leaves a file open that it cannot read
            arrays = np.load(stream, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ConfigError(f"{path} holds a single array; write it with numpy.savez")
            with arrays:
                yield arrays
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise ConfigError(
            f"{path} is no .npz file of plain arrays; write it with numpy.savez, numbers and texts "
            f"but no objects"
        ) from error
