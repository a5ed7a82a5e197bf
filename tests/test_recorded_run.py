"""A run that version 0.1 stored is resumed, and asks what that version would have asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
from pathlib import Path

from bestarm_agent import Budget, Study
from bestarm_agent.domain.events import Asked
from bestarm_agent.engine.setup.open_run import Options
from tests.support.studies import events_of, store_of

RECORDED = Path(__file__).with_name("recorded_run")


def test_a_stored_run_goes_on_as_before(tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path, dirs_exist_ok=True)
    store = store_of(tmp_path / "study.json")
    store.parent.mkdir()
    store.write_bytes(gzip.decompress((RECORDED / "runs.sqlite.gz").read_bytes()))

    async def go_on() -> int:
        async with Study.resume("latest", options=Options(store=store)) as study:
            before = study.standing().told
            await study.run(Budget(pulls=40))
            return before

    assert asyncio.run(go_on()) == 40
    asks = [event for event in events_of(tmp_path / "study.json") if isinstance(event, Asked)]
    recorded = [tuple(pair) for pair in json.loads((RECORDED / "asks.json").read_text())]
    assert [(ask.candidate, ask.example) for ask in asks] == recorded
    assert len(asks) == 80
