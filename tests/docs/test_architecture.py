"""The files that docs/architecture.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "bestarm_agent"


def test_every_file_that_is_named_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", text))
    assert len(named) > 20
    missing = [name for name in named if not ((PACKAGE / name).exists() or (ROOT / name).exists())]
    assert not missing
