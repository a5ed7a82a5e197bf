"""A run by ``auto`` that learns from an earlier one, from study file to resumption."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from bestarm_agent.domain.digest import Json
from bestarm_agent.opening import Options
from bestarm_agent.selectors.auto import Auto
from bestarm_agent.standing import Standing
from bestarm_agent.study import Study

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
    rows = [json.dumps({"id": str(n), "n": n, "answer": "yes"}) for n in range(N)]
    (folder / "rows.jsonl").write_text("\n".join(rows))
    study: dict[str, Json] = {
        "name": name,
        "models": ["python/solver:solve"],
        "prompts": [{f"skill {skill}": f"{skill} {{{{ n }}}}"} for skill in skills],
        "dataset": {"path": "rows.jsonl", "target": "answer", "id": "id"},
        "scorer": "exact",
        **changes,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(study))
    return path


def auto_of(study: Study) -> Auto:
    selector = study._live.runner.selector
    assert isinstance(selector, Auto)
    return selector


def test_what_separates_candidates_is_asked_first_also_after_a_resumption(tmp_path: Path) -> None:
    first = write_study(
        tmp_path,
        "first",
        range(25, 65, 3),
        selector={"name": "uniform", "stop_when_separated": False},
    )
    second = write_study(
        tmp_path, "second", [40, 48, 52, 60], selector={"history": ["first"]}, budget={"pulls": 150}
    )

    async def main() -> tuple[str, Standing, set[str]]:
        async with Study.open(first) as study:
            await study.run()
        async with Study.open(second) as study:
            standing = await study.run()
            selector, run = auto_of(study), study.run_id
            assert selector.uses_history
            wanted = selector.next_choice()
            early = {study.parts.examples[e].id for e in selector._order.examples[:60].tolist()}
            options = Options(store=study._where)
        async with Study.resume(run, options=options) as again:
            assert auto_of(again).uses_history
            assert auto_of(again).next_choice() == wanted
        return " ".join(study.notices), standing, early

    notices, standing, early = asyncio.run(main())
    assert "predictions remove" in notices
    assert standing.rows[0].candidate.label.endswith("skill 60")
    contested = {str(n) for n in range(N) if 35 < 100 * _chance(n) < 80}
    assert len(early & contested) / 60 > 1.2 * len(contested) / N


def _chance(*parts: int) -> float:
    """As the program has it."""
    return zlib.crc32(repr(parts).encode()) / 2**32
