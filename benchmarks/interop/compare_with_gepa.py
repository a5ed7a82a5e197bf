"""Compare GEPA's own evaluation with a study's rule that evaluates what GEPA's reflection writes.

Both use gepa's reflection prompt and the same models, on two tasks. Programs stand for the models:
a sentence helps with the examples of one operation (`operations`), or with all of them (`rules`).
The one that reflects mostly adds such a sentence, sometimes clutter, or it drops one. So the
figures are of the search alone, not of what a model writes.

    pip install -e '.[gepa]'
    python -m benchmarks.interop.compare_with_gepa --seeds 8

Printed for each task: metric calls, and the mean of the chosen prompt on examples that no one saw.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import gepa

from bestarm_agent import Study
from bestarm_agent.domain.candidate import PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.optimization.gepa import Adapter
from bestarm_agent.optimization.rounds import run_as_configured
from bestarm_agent.stats.keyed_random import KeyedRandom

N_SEARCH, N_TEST = 100, 200
REFLECT = "python/task:reflect"
OPERATIONS = ("plus", "add", "and", "with", "more", "sum")

# An answer is right with a chance that rises if the instruction explains the example's operation,
# and falls with every sentence that explains nothing. Equal calls get equal answers.
SOLVER = '''
import random

def answer(task):
    asked = task.prompt.lower()
    helps = f"{task.inputs['op']} means" in asked
    clutter = asked.count("be careful")
    chance = (0.92 if helps else 0.25) - 0.06 * clutter
    drawn = random.Random(f"{task.prompt} {task.example}").random()
    return str(task.inputs["a"] + task.inputs["b"]) if drawn < chance else "?"

def reflect(task):
    """Explain an operation of a wrong answer; one time in three, add clutter or drop a sentence."""
    import re
    now = task.prompt.split("```")[1].strip()
    shown = re.findall(r"### op\\n(\\w+)", task.prompt)
    rng = random.Random(task.prompt)
    luck = rng.random()
    if luck < 0.2:
        new = f"{now} Be careful."
    elif luck < 0.35 and now.count("."):
        new = now.partition(".")[2].strip()
    else:
        op = rng.choice(shown or ["nothing"])
        new = f"{now} {op} means what it says."
    return f"```\\n{new}\\n```"
'''
# Every sentence that explains a rule helps with every example; wrong answers say what they lack.
WRITER = SOLVER.replace(
    """helps = f"{task.inputs['op']} means" in asked""",
    'known = [op for op in OPERATIONS if f"{op} means" in asked]',
).replace("(0.92 if helps else 0.25)", "(0.2 + 0.12 * len(known))")
WRITER = WRITER.replace(
    'else "?"', 'else "lacks " + min(set(OPERATIONS) - set(known), default="nothing")'
).replace('"### op\\n(\\w+)"', '"lacks (\\w+)"')
WRITER += f"\nOPERATIONS = {OPERATIONS}\n"

STUDIES: dict[str, dict[str, Any]] = {
    "operations": {
        "models": ["python/task:answer"],
        "prompts": [{"first": "Calculate.\n{{ a }} {{ op }}"}],
        "scorer": "exact",
    },
    "rules": {
        "models": ["python/task:answer"],
        "prompts": [{"first": "Calculate.\n{{ a }} {{ op }}"}],
        "scorer": "exact",
    },
}


def write_study(folder: Path, task: str, seed: int) -> Path:
    """Write a task's examples, programs and study into a folder; return the study."""
    rng = KeyedRandom(seed, task).at(0)
    drawn = rng.choice(90 * 90, N_SEARCH + N_TEST, replace=False).tolist()
    pairs = [(10 + number // 90, 10 + number % 90) for number in drawn]
    rows = [
        {"id": f"{a}+{b}", "a": a, "b": b, "op": str(rng.choice(OPERATIONS)), "target": str(a + b)}
        for a, b in pairs
    ]
    for name, part in (("search", rows[:N_SEARCH]), ("test", rows[N_SEARCH:])):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "task.py").write_text(SOLVER if task == "operations" else WRITER)
    dataset = {"path": "search.jsonl", "id": "id", "target": "target"}
    rule = {"seed": seed, "stop_when_separated": False}
    path = folder / "study.json"
    path.write_text(json.dumps({**STUDIES[task], "dataset": dataset, "selector": rule}))
    return path


def by_gepa(path: Path, calls: int, seed: int) -> tuple[PromptTemplate, int]:
    """Let GEPA evaluate; return its best prompt and the metric calls that it counts."""
    with Adapter(path, model=REFLECT) as adapter:
        half = N_SEARCH // 2
        found = gepa.optimize(
            adapter.seed,
            adapter.examples[:half],
            adapter.examples[half:],
            adapter=adapter,
            reflection_lm=adapter.ask,
            max_metric_calls=calls,
            seed=seed,
            logger=Silent(),
        )
        return adapter.prompt(found.best_candidate), found.total_metric_calls or 0


async def by_study(path: Path, pulls: int) -> tuple[PromptTemplate, int]:
    """Let the study's rule evaluate; return the winner's prompt and the pairs asked."""
    optimize: Json = {"proposer": "gepa", "rounds": 8, "model": REFLECT}
    overrides: dict[str, Json] = {"optimize": optimize, "budget": {"pulls": pulls}}
    async with Study.open(path, overrides=overrides) as study:
        standing = await run_as_configured(study)
        assert standing.winner is not None
        return standing.winner.candidate.prompt, standing.spent.pulls


async def quality(path: Path, prompt: PromptTemplate) -> float:
    """Return the mean of a prompt on the examples that no one saw."""
    prompts: Json = [{"name": "chosen", "text": prompt.text}]
    overrides: dict[str, Json] = {"prompts": prompts, "dataset.path": "test.jsonl"}
    async with Study.open(path, overrides=overrides) as study:
        [row] = (await study.run()).rows
        assert row.estimate is not None
        return row.estimate


class Silent:
    """A logger that prints nothing."""

    def log(self, message: str) -> None:
        """Print nothing."""


def main() -> None:
    """Print means over the seeds for each task and way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--tasks", nargs="+", default=list(STUDIES))
    given = parser.parse_args()
    half = given.calls // 2
    for task in given.tasks:
        found: dict[str, list[tuple[float, int]]] = {}
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                path = write_study(Path(folder), task, seed)
                first = PromptTemplate("first", next(iter(STUDIES[task]["prompts"][0].values())))
                made = {
                    "first prompt": (first, 0),
                    f"GEPA, {given.calls} calls": by_gepa(path, given.calls, seed),
                    f"GEPA, {half} calls": by_gepa(path, half, seed),
                    f"study, {half} calls": asyncio.run(by_study(path, half)),
                }
                for way, (prompt, calls) in made.items():
                    found.setdefault(way, []).append((asyncio.run(quality(path, prompt)), calls))
        for way, lines in found.items():
            means, counts = [mean for mean, _ in lines], [count for _, count in lines]
            shown = " ".join(f"{mean:.2f}" for mean in means)
            print(f"{task}, {way}: mean {fmean(means):.3f}, calls {fmean(counts):.0f} ({shown})")


if __name__ == "__main__":
    main()
