"""Reproduce the experiments of the certification paper (paper 3).

    python -m benchmarks.certification.reproduce published triviaqa --data ../shared/data

``published`` compares with what the authors' program gave, point by point. An hour of one core with
all repetitions; ``--scale .1`` takes some minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.certification.errors import DELTA, error_rates
from benchmarks.certification.worlds import (
    JUDGES,
    QUALITIES,
    Models,
    Prompts,
    crossings,
    load_models,
    load_prompts,
    shortest_certified,
    smallest_certified,
    split,
    toy_stream,
)
from benchmarks.report import Bench, Part, markdown, run
from scipy.stats import binom

from bestarm_agent.certification.betting import (
    METHODS,
    BetPrior,
    Goal,
    Method,
    chebyshev_prior,
)
from tests.support.portfolio_grids import GridMethod, published_prior

GOAL = Goal(0.1, DELTA)
GAMMAS = (0.99, 0.9, 0.7)
DELTAS = (0.1, 10 ** (-5 / 3), 10 ** (-7 / 3), 0.001)
LABELS = (100, 200, 300)
BETTING = ("portfolio", "plug-in")
# What the published code gave (100 runs; toy: labels at delta = 0.1 and 0.001)
TOY = {
    "published": {
        "r-eval": dict.fromkeys(("0.99", "0.9", "0.7"), (2769, 5504)),
        "r-autoeval": {"0.99": (378, 977), "0.9": (2247, 5081), "0.7": (7369, 15075)},
        "r-autoeval+": {"0.99": (381, 946), "0.9": (1350, 3205), "0.7": (2642, 5565)},
    },
    "chebyshev": {
        "r-eval": dict.fromkeys(("0.99", "0.9", "0.7"), (1830, 4363)),
        "r-autoeval": {"0.99": (402, 1052), "0.9": (1372, 4104), "0.7": (4613, 11917)},
        "r-autoeval+": {"0.99": (419, 1065), "0.9": (793, 2832), "0.7": (1785, 4331)},
    },
}
POINTS = {
    "150 r-eval best": (6.6025, 0.0413),
    "150 r-autoeval best": (6.4334, 0.0459),
    "150 r-autoeval med": (6.4263, 0.0459),
    "150 r-autoeval bad": (6.5609, 0.0421),
    "150 r-autoeval+ best": (6.2728, 0.0517),
    "150 r-autoeval+ med": (6.2738, 0.0522),
    "150 r-autoeval+ bad": (6.4916, 0.0444),
    "100 r-eval best": (7.0659, None),
    "100 r-autoeval best": (7.0775, None),
    "100 r-autoeval+ best": (6.6050, None),
    "200 r-eval best": (6.4244, None),
    "200 r-autoeval best": (6.2159, None),
    "200 r-autoeval+ best": (6.1825, None),
    "300 r-eval best": (6.2706, None),
    "300 r-autoeval best": (6.1628, None),
    "300 r-autoeval+ best": (6.1516, None),
}


def toy(bench: Bench) -> dict[str, str]:
    """Example 2: labels needed at four levels, with the published grid and with exact masses."""
    rows = []
    for grid, usual in (("chebyshev", 200), ("published", 100)):
        # the published toy script evaluates the density of an end point at 1e-10
        prior = chebyshev_prior() if grid == "chebyshev" else published_prior(floor=1e-10)
        for gamma in GAMMAS:
            for name in METHODS:
                if name == "r-eval" and gamma != GAMMAS[0]:
                    continue
                seeds = bench.seeds(usual)
                key = {"part": "toy", "grid": grid, "gamma": gamma, "name": name, "seeds": seeds}
                runs = np.array(bench.found(key, partial(_toy, prior, gamma, name, seeds)))
                cells = [_cell(runs[:, i], 0) for i in range(len(DELTAS))]
                reference = " / ".join(f"{x:,}" for x in TOY[grid][name][str(gamma)])
                shown = "any" if name == "r-eval" else f"{gamma:g}"
                rows.append([f"{grid}, γ {shown}, {name}", *cells, reference])
    heads = [f"δ = {delta:.3g}" for delta in DELTAS]
    return {"toy": markdown(["grid", *heads, "reference at 0.1 / 0.001"], rows)}


def _toy(prior: BetPrior, gamma: float, name: str, seeds: int) -> list[list[int]]:
    method = GridMethod(name, prior=prior)
    return [
        crossings(DELTAS, method, toy_stream(gamma, np.random.default_rng([seed, _digits(gamma)])))
        for seed in range(seeds)
    ]


def _digits(gamma: float) -> int:
    return int(1000 * gamma)


def contenders(betting: str, n: int) -> Iterator[tuple[str, str, Method]]:
    """The methods of Figure 4a, each with the judge it relies on."""
    yield "r-eval", "best", Method("r-eval", betting, horizon=n)
    for name in METHODS[1:]:
        for judge in JUDGES:
            yield f"{name} {judge}", judge, Method(name, betting, horizon=n)


def chosen(models: Models, betting: str, size: tuple[int, int], seed: int) -> dict[str, int]:
    """The row that each method chooses in one repetition; ``size``: labels, others per label."""
    parts = split(models.losses.shape[1], models.n_test, *size, seed)
    return {
        label: smallest_certified(models, judge, GOAL, method, parts)
        for label, judge, method in contenders(betting, size[0])
    }


def outcome(models: Models, row: int, size: tuple[int, int], seed: int) -> tuple[float, float]:
    """Average bits of a chosen model, and its loss on the examples that were set aside."""
    parts = split(models.losses.shape[1], models.n_test, *size, seed)
    return float(models.bits[row]), float(models.losses[row, parts.test].mean())


def quantisation(bench: Bench, task: str) -> dict[str, str]:
    """Figures 4a, 7a and 9: bits and loss of the chosen model against the labels."""
    seeds, rows = bench.seeds(100), []
    for betting in BETTING:
        key = {"part": task, "betting": betting, "labels": LABELS, "seeds": seeds}
        found = bench.found(key, partial(_quantised, bench.data, task, betting, seeds))
        for label, ends in found.items():
            array = np.array(ends)  # (labels, seeds, 2)
            cells = [_cell(array[i, :, 0], 3) for i in range(len(LABELS))]
            loss = array[:, :, 1].mean(axis=1).max()
            rows.append([f"{label}, {betting}", *cells, f"{loss:.4f}"])
    heads = [f"n = {n}" for n in LABELS]
    return {task: markdown(["bits of the chosen model", *heads, "largest mean loss"], rows)}


def _quantised(data: Path, task: str, betting: str, seeds: int) -> dict[str, Any]:
    models = load_models(data, task)
    by_label: dict[str, list[list[tuple[float, float]]]] = {}
    for n in LABELS:
        rows = [chosen(models, betting, (n, 3), seed) for seed in range(seeds)]
        for label in rows[0]:
            ends = [outcome(models, row[label], (n, 3), i) for i, row in enumerate(rows)]
            by_label.setdefault(label, []).append(ends)
    return by_label


def published(bench: Bench) -> dict[str, str]:
    """The reference points on TriviaQA: the published grid and the package's own bets."""
    seeds, rows = bench.seeds(100), []
    for key, (bits, loss) in POINTS.items():
        cells: list[str] = []
        for grid, digits in (("published", 4), ("chebyshev", 3), ("plug-in", 3)):
            where = {"part": "points", "point": key, "grid": grid, "seeds": seeds}
            ends = np.array(bench.found(where, partial(_point, bench.data, key, grid, seeds)))
            cells.append(_cell(ends[:, 0], digits))
            if grid == "published":
                mean = f"{ends[:, 1].mean():.4f}" + (f" ({loss})" if loss is not None else "")
        rows.append([key, f"{bits:.4f}", *cells, mean])
    heads = ["n, method, judge", "reference", "published grid", "64 nodes", "plug-in", "loss"]
    return {"published": markdown(heads, rows)}


def _point(data: Path, point: str, grid: str, seeds: int) -> list[tuple[float, float]]:
    models, (labels, name, judge) = load_models(data, "triviaqa"), point.split(" ")
    n, ends = int(labels), []
    method = GridMethod(name) if grid == "published" else Method(name)
    if grid == "plug-in":
        method = Method(name, grid, horizon=n)
    for seed in range(seeds):
        parts = split(models.losses.shape[1], models.n_test, n, 3, seed)
        row = smallest_certified(models, judge, GOAL, method, parts)
        ends.append(outcome(models, row, (n, 3), seed))
    return ends


def prompting(bench: Bench) -> dict[str, str]:
    """Figures 4b and 8: the shortest certified of 25 prompts, by quality of the judge."""
    seeds, rows = bench.seeds(100), []
    shown = (QUALITIES[0], QUALITIES[3], QUALITIES[6])
    for betting in BETTING:
        tasks = {
            task: bench.found(
                {"part": "prompting", "task": task, "betting": betting, "seeds": seeds},
                partial(_prompting, prompts, betting, seeds),
            )
            for task, prompts in load_prompts(bench.data).items()
        }
        for name in METHODS:
            cells = []
            for quality in shown:
                key = f"{name} {'bad' if name == 'r-eval' else quality}"
                runs = np.array([[end[0] for end in task[key]] for task in tasks.values()])
                cells.append(_cell(runs.mean(axis=0), 1))
            bad = [
                np.mean([end[2] > task["risk"] and not end[3] for end in ends])
                for task in tasks.values()
                for key, ends in task.items()
                if key.rpartition(" ")[0] == name
            ]
            rows.append([f"{name}, {betting}", *cells, f"{np.mean(bad):.2%}"])
    heads = ["mean length chosen", *(f"{quality} judge" for quality in shown)]
    return {"prompting": markdown([*heads, "bad prompts chosen"], rows)}


def _prompting(prompts: Prompts, betting: str, repetitions: int) -> dict[str, Any]:
    parts = [split(prompts.losses.shape[1], 100, 200, 9, seed) for seed in range(repetitions)]

    def rows(name: str, quality: str, risk: float) -> list[int | None]:
        method, goal = Method(name, betting, horizon=200), Goal(risk, 0.1)
        return [shortest_certified(prompts, quality, goal, method, part) for part in parts]

    risk = 0.05
    while None in rows("r-autoeval", "gooderer", risk) and risk < 0.95:
        risk = round(risk + 0.05, 2)
    longest = int(np.argmax(prompts.lengths))
    found: dict[str, Any] = {"risk": risk}
    for name in METHODS:
        for quality in QUALITIES[:1] if name == "r-eval" else QUALITIES:
            ends = []
            for row, part in zip(rows(name, quality, risk), parts, strict=True):
                at = longest if row is None else row
                loss = float(prompts.losses[at, part.test].mean())
                true = float(prompts.losses[at].mean())
                ends.append((float(prompts.lengths[at]), loss, true, row is None))
            found[f"{name} {quality}"] = ends
    return found


def errors(bench: Bench) -> dict[str, str]:
    """False certifications, with the chance of so many or more at the promised rate."""
    runs = bench.seeds(2000)
    found = bench.found({"part": "errors", "runs": runs}, partial(error_rates, bench.data, runs))
    worlds: dict[str, dict[str, int]] = {}
    for key, count in found["false"].items():
        world, kind, name = key.split("|")
        worlds.setdefault(f"{world}, {kind}", {})[name] = count
    rows = []
    for world, counts in worlds.items():
        cells = [f"{100 * counts[m] / runs:.1f} %" if m in counts else "" for m in METHODS]
        p = min(float(binom.sf(count - 1, runs, DELTA)) for count in counts.values())
        rows.append([world, *cells, f"{p:.2f}"])
    return {"errors": markdown([f"{runs:,} runs, δ = {DELTA}", *METHODS, "smallest p"], rows)}


def _cell(values: Any, digits: int) -> str:  # noqa: ANN401 - an array
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


if __name__ == "__main__":
    parts: dict[str, Part] = {
        "toy": toy,
        "triviaqa": partial(quantisation, task="triviaqa"),
        "coqa": partial(quantisation, task="coqa"),
        "published": published,
        "prompting": prompting,
        "errors": errors,
    }
    run(parts, Path(__file__).with_name("README.md"), __doc__)
