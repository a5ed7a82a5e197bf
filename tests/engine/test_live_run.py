"""Candidates that people drop from a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.engine.results.standing import Status
from bestarm_agent.errors import ConfigError
from bestarm_agent.runs import Archive
from bestarm_agent.study import Study
from tests.support.studies import store_of, write_study


def test_what_was_dropped_is_asked_no_more_and_the_log_says_so(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=10)

    async def scene() -> None:
        async with Study.open(path) as study:
            study._live.drop(2)
            standing = await study.run()
            stored = (await Archive(store_of(path)).record("latest")).standing
        assert [row.n for row in sorted(standing.rows, key=lambda row: row.index)] == [10, 10, 0]
        assert [row.status for row in standing.rows if row.index == 2] == [Status.DROPPED]
        assert standing.separated or standing.margin == 0
        assert not standing.is_provisional
        assert stored == standing

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("changes", "rows", "message"),
    [
        ({}, [0, 1], "this is the last candidate"),
        ({}, [0, 0], "no candidate 0 that could still be dropped"),
        ({}, [2], "no candidate 2"),
        ({"objective": {"name": "pareto"}}, [0], "whatever the price"),
    ],
)
def test_a_candidate_that_cannot_be_dropped(
    tmp_path: Path, changes: dict[str, Any], rows: list[int], message: str
) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=10, changes=changes)

    async def scene() -> None:
        async with Study.open(path) as study:
            for row in rows[:-1]:
                study._live.drop(row)
            with pytest.raises(ConfigError, match=message):
                study._live.drop(rows[-1])

    asyncio.run(scene())
