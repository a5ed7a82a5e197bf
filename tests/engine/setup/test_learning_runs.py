"""A run by ``auto`` that learns from an earlier one, from study file to resumption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.domain.values import Json
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.selectors import Problem
from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.study import Archive, Study
from tests.support.studies import ANSWERED, study_file

N = 150
# Right where skill, give or take what this skill is good at, exceeds how hard the example is.
SOLVER = """
import zlib

def chance(*parts):
    return zlib.crc32(repr(parts).encode()) / 2**32

def solve(task):
    skill, n = map(int, task.prompt.split())
    return "yes" if skill + 20 * chance(skill, n) > 100 * chance(n) else "no"
"""


def write_study(folder: Path, name: str, skills: Sequence[int], **changes: Json) -> Path:
    (folder / "solver.py").write_text(SOLVER)
    path = study_file(
        folder,
        {"rows": [{"id": str(n), "n": n, "answer": "yes"} for n in range(N)]},
        dataset=ANSWERED,
        name=name,
        models=["python/solver:solve"],
        prompts=[{f"skill {skill}": f"{skill} {{{{ n }}}}"} for skill in skills],
        scorer="exact",
        **changes,
    )
    return path.rename(folder / f"{name}.json")


def auto_of(study: Study) -> Auto:
    rule = study._run.record.pairs.rule
    assert isinstance(rule, Auto)
    return rule


@pytest.mark.slow
async def test_a_run_learns_from_an_earlier_one_also_after_a_resumption(tmp_path: Path) -> None:
    first = write_study(tmp_path, "first", range(25, 65, 3))
    second = write_study(
        tmp_path,
        "second",
        [40, 48, 52, 60],
        selector={"history": ["first"]},
        budget={"answers": 150},
    )
    async with Study.open(first) as study:
        await study.run()
    async with Study.open(second) as study:
        standing = await study.run()
        selector, run = auto_of(study), study.run_id
        assert selector.uses_history
        # the first run took the order of the seed: its history would tell what comes next in it
        assert not np.array_equal(selector.order.examples, Auto(Problem(1, N)).order.examples)
        wanted = study._run.record.pairs.next_choice()
        options = Options(store=study.store)
    async with Study.resume(run, options=options) as again:
        assert auto_of(again).uses_history
        assert again._run.record.pairs.next_choice() == wanted
    shown = (await Archive(study.store).record(run)).standing
    assert (shown.selector, shown.rows) == ("auto", standing.rows)
    notices, standing = " ".join(study.notices), standing
    assert "history: 14 candidates on 150 of the 150 examples; predictions remove" in notices
    assert "another judge" not in notices
    assert standing.rows[0].candidate.label.endswith("skill 60")
