"""Figures 3 and 4 of Zhou et al. 2024: the best row of a score matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.papers.budget_table import PROMPTS
from benchmarks.papers.stored_studies import Bench, h1_of, markdown, percent, study

from bestarm_agent.simulation.curves import Curve
from bestarm_agent.simulation.figures import draw_grid
from bestarm_agent.simulation.replay_many import Plan, budget_shares

ALPACA = "alpaca_eval2_2024-03-05_semisynthetic.npz"
UCB_E, LRF_RULE = "ucb-e", "ucb-e-lrf"
ROW_MEAN, LRF = "benchmarks.baselines.row_mean:RowMean", "benchmarks.baselines.lrf:Lrf"
BASELINES = (ROW_MEAN, "filled-subset", LRF)
RULES = (UCB_E, LRF_RULE, *BASELINES)
METRICS = ("top1_eps0.001", "top1_eps0.01", "top1_p0.1", "ndcg10")
POINTS = 16
FEWER_SEEDS = 5  # of ``ucb-e-lrf`` on the larger, prompting matrices
SEEDS = {UCB_E: 20, ROW_MEAN: 10, "filled-subset": 10, LRF_RULE: 8, LRF: 8}


@dataclass(frozen=True, slots=True)
class Panel:
    """A column of Figure 3.

    Attributes:
        title: what the report calls the matrix.
        location: file, or file and task.
        highest: largest share of the cells tried.
        with_model: the same for ``ucb-e-lrf``, whose time grows fastest; None leaves it out.
        without_best: whether the best row is left out.
    """

    title: str
    location: str
    highest: float
    with_model: float | None
    without_best: bool = False


MODELS = (
    Panel("AlpacaEval", ALPACA, 1.0, 0.12),
    Panel("AlpacaEval, no annotator", ALPACA, 1.0, 0.15, without_best=True),
    Panel("LiveCodeBench", "livecodebench_gen_2024-04.npz", 1.0, 0.3),
    Panel("BFCL", "bfcl_2024-08-11.npz", 0.2, 0.15),
    Panel("GSM8K", "zeroeval_gsm8k.npz", 1.0, 0.3),
)
PROMPTING = (
    Panel("second letter", f"{PROMPTS}:second_word_letter", 0.12, 0.08),
    Panel("English to French", f"{PROMPTS}:translation_en-fr", 0.2, 0.1),
    Panel("taxonomy animal", f"{PROMPTS}:taxonomy_animal", 0.12, 0.08),
    Panel("larger animal", f"{PROMPTS}:larger_animal", 0.12, 0.08),
    Panel("sentiment", f"{PROMPTS}:sentiment", 0.25, 0.16),
)
ADAPTIVE_HIGHEST = 0.3  # adaptive rules need no more, and their time grows with it
WARM_UP = 0.05  # share before which the model is not fitted

ABLATED = (
    Panel("AlpacaEval, no annotator", ALPACA, 0.1, 0.1, without_best=True),
    Panel("LiveCodeBench", "livecodebench_gen_2024-04.npz", 0.2, 0.2),
)
ABLATION_SEEDS = 5
ABLATIONS: Mapping[str, Sequence[str]] = {
    "score only": ("benchmarks.baselines.score_only:ScoreOnly",),
    "batch": tuple(f"ucb-e-lrf[batch={b}]" for b in (2, 8, 128)),
    "ensemble": tuple(f"ucb-e-lrf[members={k}]" for k in (4, 16, 256)),
    "eta": tuple(f"ucb-e-lrf[eta={eta}]" for eta in (0.1, 0.5, 1, 10)),
    "warm-up": tuple(f"ucb-e-lrf[warm_up={share}]" for share in (0.005, 0.01, 0.1)),
    "rank": tuple(f"ucb-e-lrf[rank={r}]" for r in (2, 5)),
}


def run_best(bench: Bench) -> dict[str, str]:
    """Run Figure 3's studies, draw them, return the table by marker."""
    tables = []
    for name, panels in (("models", MODELS), ("prompts", PROMPTING)):
        found = {panel.title: _curves(bench, panel) for panel in panels}
        draw_grid(bench.out / f"paper1-figure3-{name}.svg", found, METRICS)
        tables += [_row(bench, panel, found[panel.title]) for panel in panels]
    return {"best": markdown(["matrix", "H1", *RULES], tables)}


def run_ablations(bench: Bench) -> dict[str, str]:
    """Run Figure 4's studies, draw them, return the table by marker."""
    seeds = bench.seeds(ABLATION_SEEDS)
    plan = {p.title: Plan(_grid(p, LRF_RULE), seeds) for p in ABLATED}
    found: dict[str, dict[str, Curve]] = {}
    rows = []
    for group, rules in ABLATIONS.items():
        for rule in (LRF_RULE, *rules) if group == "score only" else rules:
            cells = []
            for panel in ABLATED:
                matrix = bench.matrix(panel.location, without_best=panel.without_best)
                curve = study(bench, "ablations", matrix, rule, plan[panel.title])[rule]
                found.setdefault(panel.title, {})[_short(rule)] = curve
                cells += _ablation_cells(curve)
            rows.append([_short(rule), *cells])
    for panel, name in zip(ABLATED, ("alpaca", "livecodebench"), strict=True):
        groups = {
            group: {_short(rule): found[panel.title][_short(rule)] for rule in (LRF_RULE, *rules)}
            for group, rules in ABLATIONS.items()
        }
        draw_grid(bench.out / f"paper1-figure4-{name}.svg", groups, ("top1_eps0.001",))
    headers = ["rule"]
    for panel in ABLATED:
        headers += [f"{panel.title}: mean precision", "95 % from", "µs / pair"]
    return {"ablations": markdown(headers, rows)}


def _curves(bench: Bench, panel: Panel) -> dict[str, Curve]:
    matrix = bench.matrix(panel.location, without_best=panel.without_best)
    curves: dict[str, Curve] = {}
    for rule in SEEDS:
        if rule != LRF_RULE or panel.with_model is not None:
            plan = plan_of(bench, panel, rule)
            curves |= study(bench, "figure3", matrix, rule, plan)
    return {rule: curves[rule] for rule in RULES if rule in curves}


def plan_of(bench: Bench, panel: Panel, rule: str) -> Plan:
    """Budgets and seeds of a rule on a matrix."""
    fewer = rule == LRF_RULE and panel in PROMPTING
    return Plan(_grid(panel, rule), bench.seeds(FEWER_SEEDS if fewer else SEEDS[rule]))


def _grid(panel: Panel, rule: str) -> tuple[float, ...]:
    if rule == LRF_RULE and panel.with_model is not None:
        return budget_shares(WARM_UP, panel.with_model, 10)
    if rule == LRF:
        return budget_shares(WARM_UP, min(panel.highest, ADAPTIVE_HIGHEST), 10)
    limit = ADAPTIVE_HIGHEST if rule == UCB_E else 1.0
    return budget_shares(0.005, min(panel.highest, limit), POINTS)


def _row(bench: Bench, panel: Panel, curves: Mapping[str, Curve]) -> list[str]:
    """Budget to 95 % at eps = 0.001 / 0.01, and how far it was tried."""
    h1 = h1_of(bench.matrix(panel.location, without_best=panel.without_best))
    cells = [
        " / ".join(_reached(curves[rule], metric) for metric in ("top1_eps0.001", "top1_eps0.01"))
        if rule in curves
        else "not run"
        for rule in RULES
    ]
    return [panel.title, h1, *cells]


def _reached(curve: Curve, metric: str) -> str:
    share = curve.budget_to_95[metric]
    return f"> {percent(curve.budget_fraction[-1], 0)}" if share is None else percent(share)


def _ablation_cells(curve: Curve) -> list[str]:
    mean = curve.mean["top1_eps0.001"]
    error = curve.se["top1_eps0.001"].mean()
    return [
        f"{mean.mean():.2f} ± {error:.2f}",
        _reached(curve, "top1_eps0.001"),
        f"{1e6 * curve.seconds_per_decision:.0f}",
    ]


def _short(rule: str) -> str:
    return rule.removeprefix("ucb-e-lrf[").removesuffix("]")
