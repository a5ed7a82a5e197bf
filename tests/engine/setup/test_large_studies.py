"""Opening a study does nothing for every row or model that can be done once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from bestarm_agent import Budget, Study
from bestarm_agent.config import datasets
from bestarm_agent.config.catalog import CatalogEntry
from tests.support.studies import write_study


def test_a_row_of_a_dataset_touches_no_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path) -> str:
        raise AssertionError("a path is shown though nothing is wrong")

    rows = [json.dumps({"id": f"e{i}", "q": f"{i}"}) for i in range(50)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    monkeypatch.setattr(datasets, "shown_path", refused)
    assert len([*datasets.read_jsonl(tmp_path / "rows.jsonl")]) == 50


def test_a_providers_catalogue_entry_is_read_once_for_all_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: Counter[str] = Counter()
    parse = CatalogEntry.parse

    def counted(self: CatalogEntry, model: type) -> object:
        parsed[self.path.name] += model.__name__ == "ProviderEntry"
        return parse(self, model)

    monkeypatch.setattr(CatalogEntry, "parse", counted)
    path = write_study(tmp_path, n_candidates=30)

    async def opened() -> None:
        async with Study.open(path):
            pass

    asyncio.run(opened())
    assert parsed["replay.yaml"] == 1


def work_to_start(folder: Path, n_candidates: int) -> int:
    """Count the calls of Python functions from a study's file to its first two scores."""
    changes = {"selector": {"name": "auto"}, "limits": {"in_flight": 1}}
    path = write_study(folder, n_candidates=n_candidates, n_examples=1, changes=changes)
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    async def scene() -> None:
        async with Study.open(path) as study:
            assert (await study.run(Budget(pulls=2))).told == 2

    sys.setprofile(note)
    try:
        asyncio.run(scene())
    finally:
        sys.setprofile(None)
    return count


def test_a_run_of_many_candidates_starts_with_the_same_work_for_each(tmp_path: Path) -> None:
    """64,000 candidates on one example begin within seconds, not after what grows with squares."""
    work_to_start(tmp_path / "first", 10)  # imports
    small, middle, large = (work_to_start(tmp_path / f"{n}", n) for n in (10, 250, 1000))
    each = (large - middle) / 750
    assert each < 1.25 * (middle - small) / 240
    assert each < 1_500
