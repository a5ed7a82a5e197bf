"""Make full grids of per-example scores: tiny models are trained, then asked everything.

    OMP_NUM_THREADS=1 python -m benchmarks.auto.make_full_grids --task sorting --work build/grids

Models are built and trained as in ``examples/arithmetic/train.py``. Every candidate (model x prompt
x temperature) then answers every example through a study of the package with ``hf`` models.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np
import torch
from benchmarks.auto.full_grid_tasks import TASKS, Task
from examples.arithmetic.train import train_model

from bestarm_agent import Options, Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.runs import Archive
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.score_export_rows import matrix

GRIDS = Path(__file__).parent / "full_grids"


def train(task: Task, folder: Path) -> None:
    """Train the models that are not there yet."""
    torch.set_num_threads(1)
    rows, examples = task.split()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dataset.jsonl").write_text("".join(json.dumps(row) + "\n" for row in examples))
    for recipe in task.recipes:
        if not (folder / recipe.name / "config.json").is_file():
            train_model(recipe, task.prompts, rows, folder / recipe.name)


def study_of(task: Task, folder: Path) -> dict[str, Json]:
    """Return a study of the whole grid."""
    return {
        "name": task.name,
        "models": [f"hf/{(folder / recipe.name).resolve()}" for recipe in task.recipes],
        "prompts": [{name: _jinja(p.template, p.is_chat)} for name, p in task.prompts.items()],
        "params": {"temperature": list(task.temperatures), "max_tokens": task.max_tokens},
        "dataset": {"path": str(folder / "dataset.jsonl"), "target": "answer"},
        "scorer": task.scorer,
        "selector": {"name": "uniform", "stop_when_separated": False},
        "limits": {"in_flight": 512},
        "budget": {"share": 1.0},
    }


def _jinja(template: str, is_chat: bool) -> Json:
    text = template.replace("{", "{{ ").replace("}", " }}")
    return [{"role": "user", "content": text}] if is_chat else text


async def ask(task: Task, folder: Path) -> RunState:
    """Ask every candidate every example; return the run."""
    options = Options(store=folder / "runs.sqlite")
    async with Study.open(study_of(task, folder), options=options) as study:
        standing = await study.run()
        print(f"{task.name}: {standing.told:,} pairs, {standing.seconds:.0f} s", flush=True)
        return await Archive(study.store).state(study.run_id)


def save(task: Task, state: RunState, path: Path) -> None:
    """Write the 0/1 scores and the levels of each candidate."""
    scores = matrix(state)
    if not np.isin(scores, (0.0, 1.0)).all():
        raise ValueError(f"{task.name}: the grid is not full, or has scores besides 0 and 1")
    found = state.candidates
    np.savez_compressed(
        path,
        scores_packed=np.packbits(scores.astype(np.uint8), axis=1),
        shape=np.array(scores.shape),
        model=np.array([Path(one.model).name for one in found]),
        prompt=np.array([one.prompt.name for one in found]),
        temperature=np.array([str(one.params["temperature"]) for one in found]),
    )
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Train, ask and save one task."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of the models and runs")
    parser.add_argument("--train-only", action="store_true", help="ask nothing")
    given = parser.parse_args()
    task = TASKS[given.task]
    folder = given.work / task.name
    train(task, folder)
    if not given.train_only:
        GRIDS.mkdir(exist_ok=True)
        save(task, asyncio.run(ask(task, folder)), GRIDS / f"{task.name}.npz")


if __name__ == "__main__":
    main()
