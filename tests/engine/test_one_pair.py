"""One pair goes through few files, from the selector's ask to the standing that it changes."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

from bestarm_agent.domain.spend import Budget
from bestarm_agent.study import Study
from tests.support.entered_files import entered_files
from tests.support.studies import each_turn, write_study


def test_one_pair_enters_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path, n_candidates=2, changes={"limits": {"in_flight": 1}})
    found: list[set[str]] = []

    async def scene() -> None:
        async with Study.open(study) as opened:
            loop, counting = opened._run.loop, ExitStack()

            def look() -> None:
                if found:
                    counting.close()
                elif loop.record.state.n_told == 2:  # by then all is imported and made
                    found.append(counting.enter_context(entered_files()))

            each_turn(loop, look)
            await opened.run(Budget(pulls=4))

    asyncio.run(scene())
    files = found[0]
    assert {"selectors/pairs.py", "providers/replay.py", "store/run_state.py"} <= files
    assert len(files) <= 29, sorted(files)


def test_one_pair_and_the_end_of_its_session_enter_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path, n_candidates=2)

    async def second_pair() -> set[str]:
        async with Study.open(study) as opened:
            await opened.run(Budget(pulls=1))  # makes and imports what is made once
            with entered_files() as files:
                standing = await opened.run(Budget(pulls=1))
        assert standing.spent.pulls == 2
        return files

    files = asyncio.run(second_pair())  # the standing is in it too
    assert len(files) <= 38, sorted(files)


def test_opening_a_study_enters_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path, n_candidates=2)

    async def second_opening() -> set[str]:
        async with Study.open(study):
            pass  # imports what is imported once
        with entered_files() as files:
            async with Study.open(study):
                pass
        return files

    files = asyncio.run(second_opening())
    assert {"config/load.py", "engine/setup/parts.py", "engine/run.py"} <= files
    assert len(files) <= 33, sorted(files)
