"""What history is worth on the arithmetic example: a second run with and without the first.

    python -m benchmarks.auto.history_example --seeds 200

Runs the shipped models for real: three first runs (a tenth of the grid by ``ucb-e``, a tenth
evenly, the whole grid) and all of ``second.yaml``, whose scores then are the truth. The second run
is replayed on them over many seeds. Replies are kept under ``--work``: repeating it calls nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.papers.stored_studies import markdown, percent, say
from numpy.typing import NDArray

from bestarm_agent import Options, Study
from bestarm_agent.config.study.inputs import read_examples
from bestarm_agent.config.study.load import load_study
from bestarm_agent.domain.digest import Json
from bestarm_agent.engine.setup.history import History, load_history
from bestarm_agent.runs import Archive
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.simulation.replay import Replay, replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.stats.models.history_validation import HistoryModel
from bestarm_agent.stats.ranking import isotonic_crossing
from bestarm_agent.store.score_export_rows import matrix as scores_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
FIRST: Mapping[str, Mapping[str, Json]] = {
    "a tenth by `ucb-e`": {"selector.name": "ucb-e", "budget.share": 0.1},
    "a tenth, evenly": {"selector.name": "uniform", "budget.share": 0.1},
    "the whole grid": {"selector.name": "uniform", "budget.share": 1.0},
}
PLAIN: Mapping[str, Json] = {"selector.params": {}, "selector.stop_when_separated": False}
SHARES = np.geomspace(0.015, 0.3, 24)
BATCH = 8


@dataclass(frozen=True, slots=True)
class Way:
    """A way to do the second run: the rule, and what it learned before."""

    rule: str
    options: Mapping[str, int]
    model: HistoryModel | None = None


async def run(work: Path, study: str, changes: Mapping[str, Json]) -> str:
    """Run a study for real; the id of the run."""
    store = work / "runs.sqlite"
    overrides = {**PLAIN, **changes}
    async with Study.open(EXAMPLE / study, overrides=overrides, options=Options(store=store)) as it:
        standing = await it.run()
        say(f"{study} {dict(changes)}: {standing.told:,} pairs, {standing.seconds:.0f} s")
        return it.run_id


async def gather(work: Path) -> tuple[ScoreMatrix, dict[str, History]]:
    """All scores of the second study, and what each first run teaches about its examples."""
    archive = Archive(work / "runs.sqlite")
    first = {name: await run(work, "models.yaml", changes) for name, changes in FIRST.items()}
    second = await run(work, "second.yaml", {"selector.name": "uniform", "budget.share": 1.0})
    state = await archive.state(second)
    names = tuple(candidate.label for candidate in state.candidates)
    truth = ScoreMatrix(scores_of(state).astype(np.float32), names, source="second.yaml")
    loaded = load_study(EXAMPLE / "second.yaml", {})
    examples = read_examples(loaded.config.dataset, loaded.base_dir)
    lessons = {
        name: await load_history([run_id], examples, read_run=archive.state)
        for name, run_id in first.items()
    }
    return truth, lessons


def second_run(truth: ScoreMatrix, way: Way, seed: int) -> Replay:
    """Replay the second run one way."""
    world = SimulatedCalls(truth, seed, Conditions())
    options: dict[str, object] = dict(way.options)
    if way.model is not None:
        factors = way.model.factors.at(np.asarray(world.columns))  # the world shuffles examples
        options["history"] = HistoryModel(factors, way.model.validation)
    budgets = sorted({round(share * truth.scores.size) for share in SHARES})
    return replay(
        lambda problem: make_selector(way.rule, problem, **options), world, budgets, seed=seed
    )


def table(truth: ScoreMatrix, ways: Mapping[str, Way], seeds: int) -> str:
    """What each way needs, with standard errors; the last column is paired with the first way."""
    best = truth.means.max()
    rows, first = [], None
    for name, way in ways.items():
        runs = [second_run(truth, way, seed) for seed in range(seeds)]
        right = np.array([[truth.means[a.best] == best for a in one.answers] for one in runs])
        shares = [answer.budget / truth.scores.size for answer in runs[0].answers]
        first = right.mean(axis=1) if first is None else first
        rows.append([name, *_cells(shares, right, right.mean(axis=1) - first)])
        say(" | ".join(rows[-1]))
    headers = ["second run", "95 % right from, % of the grid", "right at 3 %", "right at 10 %"]
    return markdown([*headers, "mean share right", "against the first line"], rows)


def _cells(shares: list[float], right: NDArray[np.bool_], lead: NDArray[np.float64]) -> list[str]:
    precision, root = right.mean(axis=0), np.sqrt(len(right))
    at = [int(np.searchsorted(shares, share, side="right")) - 1 for share in (0.03, 0.1)]
    overall = right.mean(axis=1)
    return [
        percent(isotonic_crossing(shares, precision)),
        *(f"{precision[i]:.2f}" for i in at),
        f"{overall.mean():.3f} ± {overall.std(ddof=1) / root:.3f}",
        f"{lead.mean():+.3f} ± {lead.std(ddof=1) / root:.3f}",
    ]


def main() -> None:
    """Run, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("build/history-example"))
    parser.add_argument("--seeds", type=int, default=200)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    truth, lessons = asyncio.run(gather(options.work))
    ranked = np.argsort(-truth.means)[:3]
    print("best:", ", ".join(f"{truth.names[i]} {truth.means[i]:.3f}" for i in ranked))
    ways = {
        "`ucb-e`, one at a time": Way("ucb-e", {}),
        "`ucb-e`, batch 8": Way("ucb-e", {"batch": BATCH}),
    }
    for name, history in lessons.items():
        print(f"{name}: {history.describe()}")
        if history.model.validation.is_useful:  # else it is the rule without history
            for title, batch in (("batch 8", BATCH), ("one at a time", 1)):
                ways[f"`pulse`, {title}, {name}"] = Way("pulse", {"batch": batch}, history.model)
    print(table(truth, ways, options.seeds))


if __name__ == "__main__":
    main()
