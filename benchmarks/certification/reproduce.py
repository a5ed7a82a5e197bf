"""Reproduce the experiments of the certification paper, and go beyond them.

    python -m benchmarks.certification.reproduce --data ../shared/data --out docs/reproduction

Fills the marked places of ``certification.md`` and draws its figures. Finished parts are kept under
``--work``; delete a file there to measure that part again. One process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.certification.errors import error_rates, savings
from benchmarks.certification.report import write_report
from benchmarks.certification.worlds import (
    JUDGES,
    QUALITIES,
    Models,
    Prompts,
    crossings,
    load_models,
    load_prompts,
    plain_choice,
    shortest_certified,
    smallest_certified,
    split,
    toy_rounds,
    toy_stream,
)
from benchmarks.papers.parts import Parts, reproduce

from bestarm_agent.certification.betting import (
    METHODS,
    BetPrior,
    Goal,
    Method,
    RiskTest,
    chebyshev_prior,
    risk_interval,
)
from tests.support.portfolio_grids import GridMethod, published_prior

GOAL = Goal(0.1, 0.1)
GAMMAS = (0.99, 0.9, 0.7)
DELTAS = (0.1, 10 ** (-5 / 3), 10 ** (-7 / 3), 0.001)
LABELS = tuple(range(100, 301, 20))
WIDTHS = (100, 200, 500, 1000, 2000, 5000, 10_000)


def toy(_data: Path, repetitions: int) -> dict[str, Any]:
    """Example 2: labels needed at four levels, with the published grid and with exact masses."""
    published = published_prior(floor=1e-10)  # as in the published toy script
    return {
        "chebyshev": _toy(chebyshev_prior(), repetitions),
        "published": _toy(published, repetitions // 2),
    }


def _toy(prior: BetPrior, repetitions: int) -> dict[str, Any]:
    return {
        str(gamma): {
            name: [
                crossings(
                    DELTAS,
                    GridMethod(name, prior=prior),
                    toy_stream(gamma, np.random.default_rng([seed, int(1000 * gamma)])),
                )
                for seed in range(repetitions)
            ]
            for name in METHODS
            if name != "r-eval" or gamma == GAMMAS[0]
        }
        for gamma in GAMMAS
    }


def weights(_data: Path, repetitions: int) -> dict[str, Any]:
    """Example 1: weights of 100 factors over the rounds."""
    found: dict[str, Any] = {}
    for betting in ("portfolio", "plug-in"):
        for gamma in GAMMAS:
            paths = []
            for seed in range(repetitions):
                test = RiskTest(Goal(0.12, 0.001), Method(betting=betting, n_factors=100))
                rounds = toy_rounds(5000, gamma, np.random.default_rng([seed, 7]))
                path = []
                for start in range(0, 5000, 50):
                    part = slice(start, start + 50)
                    path.append(test.weights.tolist())
                    test.extend(rounds.losses[part], rounds.guesses[part], rounds.others[part])
                paths.append(path)
            found[f"{betting} {gamma}"] = np.mean(paths, axis=0).round(6).tolist()
    return found


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


def quantisation(data: Path, repetitions: int, task: str) -> dict[str, Any]:
    """Figures 4a, 7a and 9: bits and loss of the chosen model against the labels."""
    models = load_models(data, task)
    found: dict[str, Any] = {"risks": models.losses.mean(axis=1).tolist()}
    for betting in ("portfolio", "plug-in"):
        by_label: dict[str, list[list[tuple[float, float]]]] = {}
        for n in LABELS:
            rows = [chosen(models, betting, (n, 3), seed) for seed in range(repetitions)]
            for label in rows[0]:
                ends = [outcome(models, row[label], (n, 3), i) for i, row in enumerate(rows)]
                by_label.setdefault(label, []).append(ends)
        found[betting] = by_label
    return found


def published_grid(data: Path, repetitions: int) -> dict[str, Any]:
    """The reference points: n = 100, 150, 200, 300 on TriviaQA with the published grid."""
    models = load_models(data, "triviaqa")
    found: dict[str, Any] = {}
    for n in (100, 150, 200, 300):
        for name in METHODS:
            for judge in JUDGES:
                if (name == "r-eval" or n != 150) and judge != "best":
                    continue
                for grid in ("published", "chebyshev", "plug-in"):
                    method, ends = _method(name, grid, n), []
                    for seed in range(repetitions):
                        parts = split(models.losses.shape[1], models.n_test, n, 3, seed)
                        row = smallest_certified(models, judge, GOAL, method, parts)
                        ends.append(outcome(models, row, (n, 3), seed))
                    found[f"{n} {name} {judge} {grid}"] = ends
    return found


def _method(name: str, grid: str, n: int) -> Method:
    if grid == "plug-in":
        return Method(name, grid, horizon=n)
    return GridMethod(name) if grid == "published" else Method(name)


def boxes(data: Path, repetitions: int) -> dict[str, Any]:
    """Figures 1 and 6: n = 150, five unlabelled examples per label."""
    models, n, ratio = load_models(data, "triviaqa"), 150, 5
    found: dict[str, Any] = {}
    for betting in ("plug-in", "portfolio"):
        by_label: dict[str, list[tuple[float, float]]] = {}
        for seed in range(repetitions):
            parts = split(models.losses.shape[1], models.n_test, n, ratio, seed)
            rows = chosen(models, betting, (n, ratio), seed)
            rows["eval"] = plain_choice(models.losses[:, parts.labelled].mean(axis=1), GOAL.risk)
            for judge in JUDGES:
                means = models.guesses[judge][:, parts.others].mean(axis=1)
                rows[f"autoeval {judge}"] = plain_choice(means, GOAL.risk)
            for label, row in rows.items():
                by_label.setdefault(label, []).append(outcome(models, row, (n, ratio), seed))
        found[betting] = by_label
    return found


def prompting(data: Path, repetitions: int) -> dict[str, Any]:
    """Figures 4b and 8: the shortest certified of 25 prompts, by quality of the judge."""
    tasks = load_prompts(data)
    return {
        betting: {
            task: _prompting(prompts, betting, repetitions) for task, prompts in tasks.items()
        }
        for betting in ("portfolio", "plug-in")
    }


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


def intervals(_data: Path, repetitions: int) -> dict[str, Any]:
    """Figure 10: 99.9 % intervals for the toy example."""
    found: dict[str, Any] = {}
    for gamma in GAMMAS:
        for name in METHODS:
            ends = []
            for seed in range(repetitions):
                rounds = toy_rounds(WIDTHS[-1], gamma, np.random.default_rng([seed, 11]))
                ends.append(
                    [
                        risk_interval(
                            rounds.losses[:n],
                            rounds.guesses[:n],
                            rounds.others[:n],
                            delta=0.001,
                            method=Method(name),
                            tolerance=2e-4,
                        )
                        for n in WIDTHS
                    ]
                )
            found[f"{gamma} {name}"] = ends
    return found


PARTS: Parts = {
    "toy": (toy, 200),
    "weights": (weights, 20),
    "triviaqa": (lambda data, n: quantisation(data, n, "triviaqa"), 100),
    "coqa": (lambda data, n: quantisation(data, n, "coqa"), 100),
    "boxes": (boxes, 500),
    "prompting": (prompting, 100),
    "errors": (error_rates, 2000),
    "savings": (savings, 40),
    "intervals": (intervals, 6),
    "published": (published_grid, 100),
}


if __name__ == "__main__":
    reproduce("certification", PARTS, write_report, __doc__)
