"""Every code block of docs/plugins runs: the code in a study, the tests under pytest."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Budget, Study
from bestarm_agent.selectors import Problem, make_selector
from tests.support.distributions import install

PAGES = Path(__file__).parents[2] / "docs" / "plugins"
BLOCK = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = ("judge", "provider", "selector")
MOST_LINES = 60


def text(page: str) -> str:
    return (PAGES / f"{page}.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for page in NAMES:
        for name, code in BLOCK.findall(text(page)):
            (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_are_short_and_all_their_blocks_are_known() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(NAMES)
    for page in NAMES:
        assert text(page).count("\n") <= MOST_LINES
        assert text(page).count("```") == 2 * len(
            BLOCK.findall(text(page)) + TOML.findall(text(page))
        )


@pytest.mark.slow
@pytest.mark.parametrize("page", NAMES)
def test_the_tests_of_a_page_pass(folder: Path, page: str) -> None:
    source = Path(__file__).parents[2] / "src"
    (name,) = (name for name, _ in BLOCK.findall(text(page)) if name.startswith("test_"))
    quick = ["-k", "pending or seed or allowed"] if page == "selector" else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name, *quick],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, source)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_study_uses_what_the_pages_write(folder: Path) -> None:
    (folder / "providers").mkdir()
    (folder / "providers" / "echo.yaml").write_text("name: echo\nadapter: my_provider:Echo\n")
    (folder / "rows.jsonl").write_text('{"q": "one"}\n{"q": "one two three"}\n')
    study: dict[str, Any] = {
        "models": [{"model": "echo/once"}],
        "prompts": [{"short": "{{ q }}"}, {"long": "{{ q }} and six more words to be read"}],
        "dataset": "rows.jsonl",
        "scorer": {"name": "my_judge:Brief", "words": 3},
        "selector": {"name": "my_rules:BestSoFar"},
    }

    async def scene() -> str:
        async with Study.open(study) as opened:
            best = (await opened.run(Budget(pulls=4))).best
        assert best is not None
        return best.candidate.prompt.name

    assert asyncio.run(scene()) == "short"


def test_the_entry_point_of_the_page_installs_the_rule(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = TOML.findall(text("selector"))
    groups = tomllib.loads(found)["project"]["entry-points"]
    entry_points = {name.removeprefix("bestarm_agent."): names for name, names in groups.items()}
    install(folder, monkeypatch, "my-rules", entry_points=entry_points, files={})
    assert make_selector("best-so-far", Problem(2, 3)).name == "best-so-far"
