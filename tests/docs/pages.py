"""The pages of the docs and their blocks of code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    """Return the text of a page of docs/, or of a file at the root such as `../README`."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, *languages: str) -> list[str]:
    """Return the blocks in some languages."""
    return [block for language, block in BLOCK.findall(text) if language in languages]


def files(text: str) -> dict[str, str]:
    """Return the content of blocks that begin with a comment that names their file."""
    named = (re.match(r"# (\S+\.\w+)\n(.*)", block, re.DOTALL) for _, block in BLOCK.findall(text))
    return {found[1]: found[2] for found in named if found}


def execute(code: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401
    """Run code, and return the names that it leaves."""
    left = {"__name__": "__main__", **names}
    exec(compile(code, "docs", "exec"), left)
    return left
