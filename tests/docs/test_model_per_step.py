"""The study of docs/how-to/model-per-step.md runs as it stands, and has the winner of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_tutorial import ADDRESS, ROOT, folder
from tests.support.commands import invoke

__all__ = ["folder"]

PAGE = (ROOT / "docs" / "how-to" / "model-per-step.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_study_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = ADDRESS.search((folder / "study.yaml").read_text(encoding="utf-8"))
    assert address is not None
    for name, content in BLOCK.findall(PAGE):
        (folder / name).write_text(ADDRESS.sub(address[0], content))
    done = invoke(capsys, "select", "pipeline.yaml", "--quiet", folder=folder)
    assert done.code == 0, done.err
    [winner] = re.findall(r"^Winner: +([\w=/]+)", done.out, re.MULTILINE)
    assert winner == "planner=large/solver=medium"
    assert f"`{winner}`" in PAGE
