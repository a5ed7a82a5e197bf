"""One pair goes through few files, from the selector's ask to the standing that it changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bestarm_agent.domain.spend import Budget
from bestarm_agent.study import Study
from tests.support.entered_files import entered_files
from tests.support.studies import write_study


def test_one_pair_enters_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path, n_candidates=2)

    async def second_pair() -> set[str]:
        async with Study.open(study) as opened:
            await opened.run(Budget(pulls=1))  # makes and imports what is made once
            with entered_files() as files:
                standing = await opened.run(Budget(pulls=1))
        assert standing.spent.pulls == 2
        return files

    files = asyncio.run(second_pair())
    # What ends a session is in it too: the standing and the two snapshots that are stored. On a
    # slow machine the store's thread may make a checkpoint meanwhile.
    assert len(files) <= 66, sorted(files)
