from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file into an empty working directory; its relative path comes back."""
    monkeypatch.chdir(tmp_path)

    def written(text: str, name: str = "study.yaml") -> Path:
        Path(name).write_text(text, encoding="utf-8")
        return Path(name)

    return written
