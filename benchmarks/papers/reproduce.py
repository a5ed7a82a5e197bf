"""Papers 1 and 5: the best row of a score matrix, and the K best of n arms.

    python -m benchmarks.papers.reproduce figure3 figure4 sets --data ../shared/data

Figures 3 and 4 of Zhou et al. 2024, and Figures 1 and 2 of Zhou, Chen and Li 2014, as tables. Three
quarters of an hour on two cores; ``--scale .3`` for a look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.replays import PROMPTS, curve_of, matrix_of
from benchmarks.report import Bench, markdown, percent, run
from numpy.typing import NDArray

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.curves import TARGET, hardness
from bestarm_agent.simulation.replay import SimulatedCalls, budget_shares
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.stats.keyed_random import KeyedRandom

ALPACA, LIVE = "alpaca_eval2_2024-03-05_semisynthetic.npz", "livecodebench_gen_2024-04.npz"
UCB_E, UCB_E_LRF = "ucb-e", "ucb-e-lrf"
ROW_MEAN, LRF = "benchmarks.baselines.row_mean:RowMean", "benchmarks.baselines.lrf:Lrf"
FILLED = "benchmarks.baselines.filled_subset:FilledSubset"
SEEDS = {UCB_E: 20, UCB_E_LRF: 8, ROW_MEAN: 10, FILLED: 10, LRF: 8}
NAMES = {ROW_MEAN: "row-mean", FILLED: "filled-subset", LRF: "lrf"}
WARM_UP = 0.05  # share before which the low-rank model is not fitted
POINTS = 16
_ROUNDING = 1e-9  # two means or precisions that differ by less are equal


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix of Figure 3."""

    title: str
    location: str  # file, or file and task
    highest: float  # largest share of the cells tried
    with_model: float  # the same for ``ucb-e-lrf``, whose time grows fastest
    without_best: bool = False

    def matrix(self, bench: Bench) -> ScoreMatrix:
        """Load it."""
        return matrix_of(bench, self.location, without_best=self.without_best)

    def shares(self, rule: str) -> tuple[float, ...]:
        """Budgets at which a rule answers; adaptive rules need no more than .3."""
        if rule.startswith(UCB_E_LRF):
            return budget_shares(WARM_UP, self.with_model, 10)
        if rule == LRF:
            return budget_shares(WARM_UP, min(self.highest, 0.3), 10)
        return budget_shares(0.005, min(self.highest, 0.3 if rule == UCB_E else 1.0), POINTS)


NO_ANNOTATOR = "AlpacaEval, no annotator"
PANELS = (
    Panel("AlpacaEval", ALPACA, 1.0, 0.12),
    Panel(NO_ANNOTATOR, ALPACA, 1.0, 0.15, without_best=True),
    Panel("LiveCodeBench", LIVE, 1.0, 0.3),
    Panel("BFCL", "bfcl_2024-08-11.npz", 0.2, 0.15),
    Panel("GSM8K", "zeroeval_gsm8k.npz", 1.0, 0.3),
    Panel("second letter", f"{PROMPTS}:second_word_letter", 0.12, 0.08),
    Panel("English to French", f"{PROMPTS}:translation_en-fr", 0.2, 0.1),
    Panel("taxonomy animal", f"{PROMPTS}:taxonomy_animal", 0.12, 0.08),
    Panel("larger animal", f"{PROMPTS}:larger_animal", 0.12, 0.08),
    Panel("sentiment", f"{PROMPTS}:sentiment", 0.25, 0.16),
)
ABLATED = (
    Panel(NO_ANNOTATOR, ALPACA, 0.1, 0.1, without_best=True),
    Panel("LiveCodeBench", LIVE, 0.2, 0.2),
)
ABLATIONS = (
    UCB_E_LRF,
    "benchmarks.baselines.score_only:ScoreOnly",
    *(f"ucb-e-lrf[batch={b}]" for b in (2, 8, 128)),
    *(f"ucb-e-lrf[members={k}]" for k in (4, 16, 256)),
    *(f"ucb-e-lrf[eta={eta}]" for eta in (0.1, 0.5, 1, 10)),
    *(f"ucb-e-lrf[warm_up={share}]" for share in (0.005, 0.01, 0.1)),
    *(f"ucb-e-lrf[rank={r}]" for r in (2, 5)),
)


def figure3(bench: Bench) -> dict[str, str]:
    """Smallest share from which precision stays at .95, at eps = .001 / .01."""
    rows = []
    for panel in PANELS:
        matrix = panel.matrix(bench)
        h1 = hardness(matrix.means)
        cells = []
        for rule, seeds in SEEDS.items():
            shares = panel.shares(rule)
            curve = curve_of(bench, "figure3", matrix, rule, shares, bench.seeds(seeds))
            cells.append(f"{_reached(curve, '0.001')} / {_reached(curve, '0.01')}")
        rows.append([panel.title, f"{h1:,.0f}", *cells])
    return {"best": markdown(["matrix", "H1", *(NAMES.get(r, r) for r in SEEDS)], rows)}


def figure4(bench: Bench) -> dict[str, str]:
    """Ablations of UCB-E-LRF."""
    rows = []
    for rule in ABLATIONS:
        cells = []
        for panel in ABLATED:
            matrix, shares = panel.matrix(bench), panel.shares(UCB_E_LRF)
            curve = curve_of(bench, "ablations", matrix, rule, shares, bench.seeds(5))
            mean, se = (np.mean(curve[f"top1_eps0.001{end}"]) for end in ("", "_se"))
            micro = 1e6 * curve["seconds_per_decision"]
            cells += [f"{mean:.2f} ± {se:.2f}", _reached(curve, "0.001"), f"{micro:.0f}"]
        rows.append([rule.rpartition(":")[2].removeprefix("ucb-e-lrf[").removesuffix("]"), *cells])
    heads = ["rule"]
    for panel in ABLATED:
        heads += [f"{panel.title}: mean precision", "95 % from", "µs / pair"]
    return {"ablations": markdown(heads, rows)}


def _reached(curve: Mapping[str, Any], gap: str) -> str:
    """The smallest share from which precision stays at 95 %."""
    shares = curve["budget_fraction"]
    below = np.flatnonzero(np.array(curve[f"top1_eps{gap}"]) < TARGET - _ROUNDING)
    first = int(below[-1]) + 1 if len(below) else 0
    return percent(shares[first]) if first < len(shares) else f"> {percent(shares[-1], 0)}"


SET_RULES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "uniform": ("uniform", {}),
    "SAR": ("benchmarks.baselines.sar:Sar", {}),
    "LUCB": ("benchmarks.baselines.lucb:Lucb", {}),
    "OptMAI, β = 0.8": ("opt-mai", {"beta": 0.8}),
    "OptMAI, β = 0.9": ("opt-mai", {"beta": 0.9}),
}
SETTINGS = {"uniform": "θ ~ U[0, 1]", "two": "θ = 0.6 / 0.5", "rte": "RTE"}
_LONGEST = 80  # columns per n-th of the budget: more than any rule pulls of one arm


@dataclass(frozen=True, slots=True)
class Case:
    """One point of a figure of paper 5."""

    setting: str  # key of ``SETTINGS``
    n_arms: int
    per_arm: int  # Q / n
    top_k: int
    runs: int


def sets(bench: Bench) -> dict[str, str]:
    """Aggregate regret in thousandths, and how many tasks the busiest worker gets."""
    with np.load(bench.data / "rte_snow2008.npz") as arrays:
        accuracy = arrays["accuracy"].astype(np.float64)
    cases = list(_cases(bench))
    tasks = {
        case: ({"part": "sets", **asdict(case)}, partial(_measure, case, accuracy))
        for case in cases
    }
    found = bench.all_found(tasks)
    crowd = next(c for c in cases if (c.setting, c.per_arm, c.top_k) == ("rte", 10, 20))
    rows = []
    for rule in SET_RULES:
        _, precision, pulls = np.array(found[crowd][rule]).T
        error = precision.std(ddof=1) / np.sqrt(len(precision))
        counts = [f"{pulls.max():.0f}", f"{pulls.mean():.1f}"]
        rows.append([rule, *counts, f"{precision.mean():.3f} ± {error:.3f}"])
    heads = ["Q = 10 n, K = 20", "most tasks of one worker", "mean over runs", "precision"]
    regrets = [[*_title(case), *_regrets(found[case])] for case in cases]
    return {
        "sets": markdown(["θ, Q", "K", "runs", *SET_RULES], regrets),
        "crowd": markdown(heads, rows),
    }


def _title(case: Case) -> list[str]:
    return [f"{SETTINGS[case.setting]}, {case.per_arm} n", str(case.top_k), str(case.runs)]


def _regrets(found: Mapping[str, list[list[float]]]) -> list[str]:
    """The mean regret of each rule with its error; the best in bold."""
    regrets = {rule: 1000 * np.array(found[rule])[:, 0] for rule in SET_RULES}
    best = min(regrets, key=lambda rule: float(regrets[rule].mean()))
    cells = []
    for rule, values in regrets.items():
        cell = f"{values.mean():.1f} ± {values.std(ddof=1) / np.sqrt(len(values)):.1f}"
        cells.append(f"**{cell}**" if rule == best else cell)
    return cells


def _cases(bench: Bench) -> Iterator[Case]:
    """Fewer repetitions where they are dear: a run of 100 n pulls averages much by itself."""
    for setting in ("uniform", "two"):
        for per_arm, runs in ((20, 4), (50, 2), (100, 2)):
            for top_k in (10, 50, 200, 500):
                yield Case(setting, 1000, per_arm, top_k, bench.seeds(runs))
    for per_arm, runs in ((10, 24), (20, 12), (50, 6)):
        for top_k in range(10, 101, 10):
            yield Case("rte", 164, per_arm, top_k, bench.seeds(runs))


def _measure(case: Case, accuracy: NDArray[np.float64]) -> dict[str, list[list[float]]]:
    """Regret, precision and most pulls of one arm, of all rules on the same rewards."""
    found: dict[str, list[list[float]]] = {rule: [] for rule in SET_RULES}
    for seed in range(case.runs):
        draws = KeyedRandom(seed, f"{case.setting} {case.per_arm} {case.top_k}")
        theta = _means(case, accuracy, draws.at(0))
        shape = (case.n_arms, _LONGEST * case.per_arm)
        rewards = (draws.at(1).random(shape, dtype=np.float32) < theta[:, None]).astype(np.float32)
        budget = case.n_arms * case.per_arm
        problem = Problem(*shape, seed=seed, budget=budget, track_intervals=False)
        for rule, (name, options) in SET_RULES.items():
            wanted = {} if name == "uniform" else {"top_k": case.top_k, **options}
            world, pairs = SimulatedCalls(rewards, seed), make_selector(name, problem, **wanted)
            while asks := pairs.ask(min(1, budget - pairs.table.n_asked)):
                pairs.tell([world.outcome(asks[0])])
            chosen = [world.rows[i] for i in pairs.answer.leading(case.top_k)]
            found[rule].append([*_set_errors(theta, chosen), float(pairs.table.n_scored.max())])
    return found


def _set_errors(theta: NDArray[np.float64], chosen: Sequence[int]) -> tuple[float, float]:
    """Aggregate regret (Zhou, Chen and Li 2014, eq. 1) and precision (section 6.2) of a set.

    An arm that ties with the K-th best is one of the K best.
    """
    best = np.sort(theta)[-len(chosen) :]
    right = theta[list(chosen)] >= best[0] - _ROUNDING
    return float(best.mean() - theta[list(chosen)].mean()), float(right.mean())


def _means(
    case: Case, accuracy: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    if case.setting == "rte":
        return accuracy
    if case.setting == "uniform":
        return rng.random(case.n_arms)
    return np.where(np.arange(case.n_arms) < case.top_k, 0.6, 0.5)


if __name__ == "__main__":
    parts = {"figure3": figure3, "figure4": figure4, "sets": sets}
    run(parts, Path(__file__).with_name("README.md"), __doc__)
