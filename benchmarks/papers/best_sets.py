"""Figures 1 and 2 of Zhou, Chen and Li 2014: finding K of n Bernoulli arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.stored_studies import Bench, markdown, say
from numpy.typing import NDArray

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.simulation.figures import finish, paper_style, plot_band
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.ranking import aggregate_regret, top_k_precision

RULES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "uniform": ("uniform", {}),
    "SAR": ("benchmarks.baselines.sar:Sar", {}),
    "LUCB": ("benchmarks.baselines.lucb:Lucb", {}),
    "OptMAI, β = 0.8": ("opt-mai", {"beta": 0.8}),
    "OptMAI, β = 0.9": ("opt-mai", {"beta": 0.9}),
}
SETTINGS = {"uniform": "θ ~ U[0, 1]", "two": "θ = 0.6 / 0.5", "rte": "RTE workers"}
SIMULATED_K = (10, 50, 200, 500)
RTE_K = tuple(range(10, 101, 10))
_LONGEST = 80  # columns per n-th of the budget: more than any rule pulls of one arm


@dataclass(frozen=True, slots=True)
class Case:
    """One point of a figure.

    Attributes:
        setting: key of ``SETTINGS``.
        n_arms: n.
        per_arm: Q / n.
        top_k: K.
        runs: repetitions.
    """

    setting: str
    n_arms: int
    per_arm: int
    top_k: int
    runs: int


def run_sets(bench: Bench) -> dict[str, str]:
    """Run all points, draw both figures, return the tables by marker."""
    found = _measure(bench, list(_cases(bench)))
    _draw(bench.out / "paper5-figure1.svg", found, _figure1())
    _draw(bench.out / "paper5-figure2.svg", found, _figure2())
    return {"sets-simulated": _regrets(found, ("uniform", "two")), "sets-rte": _rte(found)}


def _cases(bench: Bench) -> Iterator[Case]:
    """Fewer repetitions where they are dear: a run of 100 n pulls averages much by itself."""
    for setting in ("uniform", "two"):
        for per_arm, runs in ((20, 4), (50, 2), (100, 2)):
            for top_k in SIMULATED_K:
                yield Case(setting, 1000, per_arm, top_k, bench.seeds(runs))
    for per_arm, runs in ((10, 24), (20, 12), (50, 6)):
        for top_k in RTE_K:
            yield Case("rte", 164, per_arm, top_k, bench.seeds(runs))


def _measure(bench: Bench, cases: Sequence[Case]) -> dict[tuple[Case, str], dict[str, float]]:
    """Mean and standard error of regret and precision, and the most pulls, per case and rule."""
    with np.load(bench.data / "rte_snow2008.npz") as arrays:
        accuracy = arrays["accuracy"].astype(np.float64)
    found: dict[tuple[Case, str], dict[str, float]] = {}
    with ProcessPoolExecutor(bench.jobs, mp_context=get_context("spawn")) as pool:
        for case in cases:
            key = {"part": "sets", "case": repr(case), "rules": repr(dict(RULES))}
            kept = bench.recall(key)
            if kept is None:
                runs = list(pool.map(partial(_one_run, case, accuracy), range(case.runs)))
                kept = {rule: _averages([run[rule] for run in runs]) for rule in RULES}
                bench.keep(key, kept)
                say(f"sets: {case}")
            found |= {(case, rule): kept[rule] for rule in RULES}
    return found


def _one_run(case: Case, accuracy: NDArray[np.float64], run: int) -> dict[str, list[float]]:
    """All rules on the same rewards: regret, precision, most pulls of one arm."""
    draws = KeyedRandom(run, f"{case.setting} {case.per_arm} {case.top_k}")
    theta = _means(case, accuracy, draws.at(0))
    shape = (case.n_arms, _LONGEST * case.per_arm)
    rewards = draws.at(1).random(shape, dtype=np.float32) < theta[:, None]
    names = tuple(f"arm {i}" for i in range(case.n_arms))
    matrix = ScoreMatrix(rewards.astype(np.float32), names)
    found = {}
    for rule, (name, options) in RULES.items():
        wanted = {} if name == "uniform" else {"top_k": case.top_k, **options}
        make = partial(_make, name, wanted)
        world = SimulatedCalls(matrix, run, Conditions())
        budget = case.n_arms * case.per_arm
        [answer] = replay(make, world, [budget], seed=run, depth=case.top_k).answers
        chosen = answer.ranking
        found[rule] = [
            aggregate_regret(theta, chosen),
            top_k_precision(theta, chosen),
            float(answer.most_pulls),
        ]
    return found


def _make(name: str, options: Mapping[str, Any], problem: Any) -> Any:  # noqa: ANN401
    return make_selector(name, problem, **options)


def _means(
    case: Case, accuracy: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    if case.setting == "rte":
        return accuracy
    if case.setting == "uniform":
        return rng.random(case.n_arms)
    return np.where(np.arange(case.n_arms) < case.top_k, 0.6, 0.5)


def _averages(runs: Sequence[Sequence[float]]) -> dict[str, float]:
    values = np.array(runs)
    regret, precision, pulls = values.T
    root = np.sqrt(len(values))
    return {
        "regret": float(regret.mean()),
        "regret_se": float(regret.std(ddof=1) / root),
        "precision": float(precision.mean()),
        "precision_se": float(precision.std(ddof=1) / root),
        "most_pulls": float(pulls.max()),
        "mean_most_pulls": float(pulls.mean()),
    }


def _figure1() -> list[list[tuple[str, int, str]]]:
    return [[(s, q, "regret") for q in (20, 50, 100)] for s in ("uniform", "two")]


def _figure2() -> list[list[tuple[str, int, str]]]:
    return [[("rte", q, metric) for q in (10, 20, 50)] for metric in ("regret", "precision")]


def _draw(
    path: Path,
    found: Mapping[tuple[Case, str], Mapping[str, float]],
    panels: Sequence[Sequence[tuple[str, int, str]]],
) -> None:
    from matplotlib.figure import Figure

    with paper_style():
        figure = Figure(figsize=(7.2, 0.6 + 2.0 * len(panels)), layout="constrained")
        axes = figure.subplots(len(panels), len(panels[0]), squeeze=False)
        for row, line in enumerate(panels):
            for column, (setting, per_arm, metric) in enumerate(line):
                panel = axes[row, column]
                for index, rule in enumerate(RULES):
                    points = _points(found, setting, per_arm, rule)
                    x = [case.top_k for case, _ in points]
                    mean = [values[metric] for _, values in points]
                    plot_band(panel, x, mean, [v[f"{metric}_se"] for _, v in points], index)
                panel.set_title(f"{SETTINGS[setting]}, Q = {per_arm} n")
                panel.set_ylim(bottom=0)
                panel.grid(color="0.92", linewidth=0.5)
            axes[row, 0].set_ylabel("aggregate regret" if line[0][2] == "regret" else "precision")
        for panel in axes[-1]:
            panel.set_xlabel("K")
        finish(figure, list(RULES), path)


def _points(
    found: Mapping[tuple[Case, str], Mapping[str, float]], setting: str, per_arm: int, rule: str
) -> list[tuple[Case, Mapping[str, float]]]:
    chosen = [
        (case, values)
        for (case, name), values in found.items()
        if (case.setting, case.per_arm, name) == (setting, per_arm, rule)
    ]
    return sorted(chosen, key=lambda pair: pair[0].top_k)


def _regrets(found: Mapping[tuple[Case, str], Mapping[str, float]], settings: Sequence[str]) -> str:
    """Aggregate regret in thousandths; the best of a row in bold."""
    rows = []
    for case in dict.fromkeys(case for case, _ in found):
        if case.setting in settings:
            cells = [_thousandths(found[case, rule]) for rule in RULES]
            best = min(RULES, key=lambda rule: found[case, rule]["regret"])
            cells[list(RULES).index(best)] = f"**{cells[list(RULES).index(best)]}**"
            title = SETTINGS[case.setting] if case.setting != "rte" else "RTE"
            rows.append([f"{title}, {case.per_arm} n", str(case.top_k), str(case.runs), *cells])
    return markdown(["θ, Q", "K", "runs", *RULES], rows)


def _thousandths(values: Mapping[str, float]) -> str:
    return f"{1000 * values['regret']:.1f} ± {1000 * values['regret_se']:.1f}"


def _rte(found: Mapping[tuple[Case, str], Mapping[str, float]]) -> str:
    regrets = _regrets(found, ("rte",))
    [case] = [c for c in dict.fromkeys(c for c, _ in found) if _is_crowd_case(c)]
    rows = [
        [
            rule,
            f"{found[case, rule]['most_pulls']:.0f}",
            f"{found[case, rule]['mean_most_pulls']:.1f}",
            f"{found[case, rule]['precision']:.3f} ± {found[case, rule]['precision_se']:.3f}",
        ]
        for rule in RULES
    ]
    headers = ["Q = 10 n, K = 20", "most tasks of one worker", "mean over runs", "precision"]
    return regrets + "\n\n" + markdown(headers, rows)


def _is_crowd_case(case: Case) -> bool:
    return (case.setting, case.per_arm, case.top_k) == ("rte", 10, 20)
