"""The variables that a study may name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

ENV_FILE = ".env"


def environment(env_file: Path = Path(ENV_FILE)) -> Mapping[str, str]:
    """Return the variables of the process and, below them, those of ``.env``."""
    from_file = {
        name: value for name, value in dotenv_values(env_file).items() if value is not None
    }
    return {**from_file, **os.environ}
