"""Functions of a study that answer with broken text, or change the working directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.report.markdown import escaped
from bestarm_agent.study import Archive, Study
from tests.support.studies import ANSWERED, study_file

FUNCTIONS = r"""
import os
import tempfile


def answer(prompt):
    os.chdir(tempfile.gettempdir())
    return "\ud800 5"
"""


def test_a_lone_surrogate_and_a_changed_folder_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.py").write_text(FUNCTIONS)
    study_file(
        Path(),
        {"rows": [{"q": f"{j}", "answer": "5"} for j in range(4)]},
        dataset=ANSWERED,
        models=["python/odd:answer"],
        prompts=[{"p": "{{ q }}"}, {"r": "Please: {{ q }}"}],
        scorer="exact",
    )
    store = Path("runs/runs.sqlite")

    async def scene() -> list[str | None]:
        async with Study.open("study.json") as opened:
            await opened.run(Budget(answers=2))
            monkeypatch.chdir(tmp_path)
            await opened.write_report(tmp_path / "report.html")
        async with Study.resume(options=Options(store=store)) as resumed:
            await resumed.run(Budget(answers=4))
            monkeypatch.chdir(tmp_path)
        return [one.reply async for one in Archive(store).outcomes()]

    replies = asyncio.run(scene())
    assert len(replies) >= 2
    assert set(replies) == {"? 5"}


def test_nobody_is_notified_by_a_report() -> None:
    assert "@everyone" not in escaped("ping @everyone and @maintainer")
    assert escaped("a@b").replace("\u200b", "") == "a@b"
