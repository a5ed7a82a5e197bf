"""Reproduce the experiments of the preselection paper (paper 4), and route real prompts.

    python -m benchmarks.preselection.reproduce --data ../shared/data

Nine minutes of one core with the default repetitions; ``--scale .1`` takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.preselection.rules import RULES
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray

from bestarm_agent.preselection.features import PromptFeatures
from bestarm_agent.preselection.rule import FloatArray, IntArray
from bestarm_agent.preselection.worth import Table, route
from tests.support.bandit_model import replay_model

SETTINGS = [(n, d, k) for n in (10, 20, 50) for d, k in ((5, 2), (5, 5), (10, 3))]
LENGTH = 500
PAPER_RULES = ("cppl", "max-theta", "epsilon-greedy", "mm")
ROUTERS = ("random", *PAPER_RULES, "linucb")
FIRST_PROMPTS = 500  # prompts from which the text features are made: the first to arrive


def synthetic_rounds(
    n: int, d: int, length: int, seed: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Theta and contexts uniform on the unit interval and cube (section 6.1)."""
    rng = np.random.default_rng([seed, 1])
    theta = rng.random(d)
    for _ in range(length):
        contexts = rng.random((n, d))
        yield contexts, contexts @ theta


def solver_rounds(path: Path, seed: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """SAT instances without replacement, utility exp(-10 seconds) (section 6.2)."""
    with np.load(path) as data:
        features, arms, runtime = (
            data[name].astype(np.float64) for name in ("features", "arm_features", "runtime")
        )
    instances = filtered(features)
    for i in np.random.default_rng([seed, 2]).permutation(len(instances)):
        yield np.array([np.kron(instances[i], arm) for arm in arms]), -10.0 * runtime[i]


def filtered(raw: FloatArray) -> FloatArray:
    """Prepare (N, p) features as section 6.2 does: scale them to [0, 1] and drop some.

    Those of a variance below .01 go, then one of the two most correlated, while their correlation
    exceeds .95: the one more correlated with the rest (the paper leaves it open). A missing value
    becomes the feature's mean.
    """
    known = raw[:, np.isfinite(raw).any(axis=0)]
    filled = np.where(np.isfinite(known), known, np.nanmean(known, axis=0))
    scaled: FloatArray = (filled - filled.min(axis=0)) / np.maximum(np.ptp(filled, axis=0), 1e-12)
    scaled = scaled[:, scaled.var(axis=0) >= 0.01]
    correlation = np.abs(np.corrcoef(scaled, rowvar=False))
    np.fill_diagonal(correlation, 0.0)
    left = np.ones(len(correlation), dtype=np.bool_)
    while correlation.max() > 0.95:
        pair = np.array(np.unravel_index(correlation.argmax(), correlation.shape))
        drop = pair[correlation[pair].sum(axis=1).argmax()]
        left[drop] = False
        correlation[drop, :] = correlation[:, drop] = 0.0
    return scaled[:, left]


def regrets(
    rule: str,
    rounds: Callable[[int], Iterator[tuple[FloatArray, FloatArray]]],
    size: tuple[int, int],
    k: int,
    n_ranked: int,
    seeds: int,
) -> list[float]:
    """Cumulative weak regret (eq. 9) at the end of each repetition."""
    ends = []
    for seed in range(seeds):
        made = RULES[rule](*size, seed)
        ends.append(float(replay_model(made, rounds(seed), k, n_ranked=n_ranked, seed=seed)[-1]))
    return ends


def figure1(bench: Bench) -> dict[str, str]:
    """Synthetic contexts, winner feedback."""
    seeds, tasks = bench.seeds(100), {}
    for n, d, k in SETTINGS:
        for rule in PAPER_RULES:
            key = {"part": "figure1", "n": n, "d": d, "k": k, "rule": rule, "seeds": seeds}
            make = partial(_synthetic, n, d)
            tasks[f"n={n} d={d} k={k}", rule] = (
                key,
                partial(regrets, rule, make, (n, d), k, 1, seeds),
            )
    return {"figure1": _regret_table(bench.all_found(tasks), seeds)}


def _synthetic(n: int, d: int, seed: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    return synthetic_rounds(n, d, LENGTH, seed)


def figure2(bench: Bench) -> dict[str, str]:
    """SAT solver configurations; rankings and winners as feedback."""
    seeds, tasks = bench.seeds(50), {}
    rounds = partial(solver_rounds, bench.data / "sat_swgcp_saps.npz")
    for feedback in ("ranking", "winner"):
        for k in (2, 3, 5):
            n_ranked = k if feedback == "ranking" else 1
            for rule in PAPER_RULES:
                key = {"part": "figure2", "k": k, "feedback": feedback, "rule": rule}
                tasks[f"k={k} {feedback}", rule] = (
                    {**key, "seeds": seeds},
                    partial(regrets, rule, rounds, (20, 28), k, n_ranked, seeds),
                )
    return {"figure2": _regret_table(bench.all_found(tasks), seeds)}


def _regret_table(found: Mapping[tuple[str, str], Sequence[float]], seeds: int) -> str:
    """Regret at the end, and how far above CPPL's, in standard errors of the paired difference."""
    rows = []
    for title in dict.fromkeys(title for title, _ in found):
        cppl = np.array(found[title, "cppl"])
        cells = [_regret(np.array(found[title, rule]), cppl) for rule in PAPER_RULES]
        rows.append([title, *cells])
    return markdown([f"{seeds} repetitions", *PAPER_RULES], rows)


def _regret(ends: FloatArray, cppl: FloatArray) -> str:
    error = ends.std(ddof=1) / np.sqrt(len(ends))
    apart = ends - cppl
    spread = apart.std(ddof=1) / np.sqrt(len(ends))
    beside = f" ({apart.mean() / spread:+.1f})" if spread else ""
    return f"{ends.mean():.1f} ± {error:.1f}{beside}"


def router_table(path: Path, order: IntArray) -> Table:
    """Real prompts and nine models; text features are made from the prompts that come first."""
    with np.load(path) as data:
        texts = [str(text) for text in data["prompt_text"]]
        scores = data["scores"].astype(np.float64)
    features = PromptFeatures(16)
    features.fit([texts[i] for i in order[:FIRST_PROMPTS]])
    return Table(scores, features.vectors(texts), np.zeros(len(scores)))


def routed(path: Path, length: int, rule: str, seeds: int) -> Any:  # noqa: ANN401 - JSON
    """Qualities of each repetition: best of two, in the second half, and the first named there."""
    runs = []
    for seed in range(seeds):
        order: NDArray[np.intp] = np.random.default_rng([seed, 3]).permutation(length)
        table = router_table(path, order)
        # where the rule learns a theta, it starts at zero: every model equal
        flat = {} if rule in ("random", "mm", "linucb") else {"spread": 0.0}
        n_models = len(table.utility)
        made = RULES[rule](n_models, n_models * table.prompts.shape[1], seed, **flat)
        chosen = route(made, table, order, 2)
        quality = table.gained(chosen, order)
        first = table.gained(chosen[:, :1], order)
        half = length // 2
        runs.append([quality.mean(), quality[half:].mean(), first[half:].mean()])
    return np.array(runs).tolist()


def router(bench: Bench) -> dict[str, str]:
    """Real prompts, nine models."""
    path = bench.data / "router_llmrouter_9models.npz"
    table = router_table(path, np.arange(FIRST_PROMPTS))
    seeds, length = bench.seeds(3), table.utility.shape[1]
    tasks = {
        rule: (
            {"part": "router", "rule": rule, "seeds": seeds},
            partial(routed, path, length, rule, seeds),
        )
        for rule in ROUTERS
    }
    rows = []
    for rule, runs in bench.all_found(tasks).items():
        best, late, first = np.mean(runs, axis=0)
        error = np.std([run[0] for run in runs], ddof=1) / np.sqrt(len(runs))
        rows.append([rule, f"{best:.3f} ± {error:.3f}", f"{late:.3f}", f"{first:.3f}"])
    for size, label in ((1, "single"), (2, "pair")):
        fixed = max(
            table.utility[list(rows)].max(axis=0).mean()
            for rows in combinations(range(len(table.utility)), size)
        )
        rows.append([f"always the best {label}", f"{fixed:.3f}", "", ""])
    rows.append(["oracle", f"{table.utility.max(axis=0).mean():.3f}", "", ""])
    title = f"{length:,} prompts, {seeds} orders"
    heads = [title, "best of 2", "2nd half", "first named, 2nd half"]
    return {"router": markdown(heads, rows)}


if __name__ == "__main__":
    parts = {"figure1": figure1, "figure2": figure2, "router": router}
    run(parts, Path(__file__).with_name("README.md"), __doc__)
