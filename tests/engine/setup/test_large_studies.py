"""Opening a study does nothing for every row or model that can be done once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from bestarm_agent import Study
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
