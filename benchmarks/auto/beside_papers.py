"""``auto`` beside the two rules that need a model or a history: UCB-E-LRF and PULSE.

They are the package's own selectors, one call in flight; ``auto`` is its compiled second writing,
in the same shuffled worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.auto import light_auto
from benchmarks.auto.found import GAPS, Found, plain_form, ratio, shares_of
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.papers.stored_studies import Bench, markdown, measured
from benchmarks.pulse.reproduce import FILE, build_pool

from bestarm_agent.engine.setup.history import learn_once
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.stats.models.history_validation import HistoryModel


@dataclass(frozen=True, slots=True)
class Rival:
    """A selector of the package, its options, and whether it is given the history."""

    name: str
    options: Mapping[str, Any]
    with_history: bool = False


MODELLED: Mapping[str, Rival | None] = {  # None: auto
    "auto": None,
    "ucb-e-lrf": Rival("ucb-e-lrf", {}),
    "ucb-e-lrf, batch 8, 16 members": Rival("ucb-e-lrf", {"batch": 8, "members": 16}),
    "ucb-e-lrf, batch 2": Rival("ucb-e-lrf", {"batch": 2}),
}
LEARNED: Mapping[str, Rival | None] = {
    "auto": None,
    "auto, history": Rival("auto", {}, with_history=True),
    "pulse, batch 1, no history": Rival("pulse", {"batch": 1}),
    "pulse, batch 8, no history": Rival("pulse", {"batch": 8}),
    "pulse, batch 1": Rival("pulse", {"batch": 1}, with_history=True),
    "pulse, batch 8": Rival("pulse", {"batch": 8}, with_history=True),
    "pulse, batch 8, focused": Rival("pulse", {"batch": 8, "focus": 0.5}, with_history=True),
}
# seeds and the largest budget in pulls: a model fitted every other pull takes seconds a run
MODELLED_ON = {
    "AlpacaEval, no annotator": (6, 12_300),
    "SAT12": (6, 7_300),
    "AlpacaEval, real, no annotator": (12, 8_400),
    "LiveCodeBench": (24, 6_500),
    "cause and effect": (24, 4_000),
    "common concept": (24, 4_000),
    "formal": (24, 4_000),
}
POOL = "OpenLLM, 50 models"  # the best one, one .0114 below it, and the 48 after that
LEARNED_ON = {
    "LiveCodeBench": (20, 20_000),
    "GSM8K": (20, 20_000),
    "SAT12": (20, 20_000),
    "BFCL": (20, 20_000),
    "metabench, 400 models": (12, 20_000),
    POOL: (8, 30_000),
    "AlpacaEval, real, no annotator": (20, 20_000),
    "sentiment": (12, 20_000),
    "antonyms": (12, 20_000),
    "letters list": (12, 20_000),  # up to here looked at while the use of history was built
    "AlpacaEval, no annotator": (12, 20_000),
    "larger animal": (12, 20_000),
    "taxonomy animal": (12, 20_000),
    "second word letter": (12, 20_000),
}


@cache
def halves(data: Path, title: str, split: int = 9) -> tuple[ScoreMatrix, ScoreMatrix]:
    """A random half of the rows to choose from, and the other half as history."""
    if title == POOL:
        pool = build_pool(load_matrix(str(data / f"{FILE}:scores")), 0.01, 50)
        return pool, load_matrix(str(data / f"{FILE}:history"))
    matrix = _whole(data, title)
    order = np.random.default_rng(split).permutation(len(matrix.scores))
    half = len(order) // 2
    parts = [np.sort(rows) for rows in (order[half:], order[:half])]
    current, past = (
        ScoreMatrix(matrix.scores[rows], tuple(matrix.names[i] for i in rows)) for rows in parts
    )
    return current, past


@cache
def _whole(data: Path, title: str) -> ScoreMatrix:
    scores = scores_of(data, MATRICES[title])
    return ScoreMatrix(scores, tuple(map(str, range(len(scores)))))


@cache
def _lesson(data: Path, work: Path, title: str) -> HistoryModel:
    return learn_once(halves(data, title)[1].scores.astype(float), work)


def _answers(
    rival: Rival | None,
    matrix: ScoreMatrix,
    seed: int,
    budgets: list[int],
    lesson: HistoryModel | None,
) -> list[int]:
    """Rows of the matrix that are named at each budget."""
    world = SimulatedCalls(matrix, seed, Conditions())
    if rival is None:
        return _named_by_auto(matrix, world, seed, budgets)
    options = dict(rival.options)
    if lesson is not None:
        factors = lesson.factors.at(np.asarray(world.columns))
        options["history"] = HistoryModel(factors, lesson.validation)
    make = partial(make_selector, rival.name, **options)
    return [answer.best for answer in replay(make, world, budgets, seed=seed).answers]


def _named_by_auto(
    matrix: ScoreMatrix, world: SimulatedCalls, seed: int, budgets: list[int]
) -> list[int]:
    """Run afresh for each budget, and told it."""
    shuffled = matrix.scores[world.rows][:, world.columns]
    scores = np.ascontiguousarray(shuffled, dtype=np.float32)
    named = []
    for budget in budgets:
        rng = np.random.default_rng([seed, budget])
        [best] = light_auto.answers(scores, np.array([budget]), light_auto.Variant(), rng)
        named.append(world.rows[best])
    return named


def measure(
    bench: Bench, title: str, rival: Rival | None, seeds: int, most: int, *, halved: bool
) -> dict[str, Any]:
    """Run one rule with every seed."""
    matrix = halves(bench.data, title)[0] if halved else _whole(bench.data, title)
    given = rival is not None and rival.with_history
    lesson = _lesson(bench.data, bench.work, title) if given else None
    shares = shares_of(len(matrix.scores), matrix.scores.size, most)
    budgets = [round(share * matrix.scores.size) for share in shares]
    named = [_answers(rival, matrix, seed, budgets, lesson) for seed in range(seeds)]
    regrets = matrix.means.max() - matrix.means[np.array(named)]
    return plain_form(shares, regrets.T.tolist())


def run_modelled(bench: Bench, jobs: int) -> dict[str, str]:
    """Beside UCB-E-LRF, on whole matrices."""
    return _tables(bench, jobs, "modelled", MODELLED_ON, MODELLED)


def run_learned(bench: Bench, jobs: int) -> dict[str, str]:
    """Beside PULSE, on half of the candidates; the other half is its history."""
    for title in LEARNED_ON:  # before the workers need it
        _lesson(bench.data, bench.work, title)
    return _tables(bench, jobs, "learned", LEARNED_ON, LEARNED)


def _tables(
    bench: Bench,
    jobs: int,
    part: str,
    places: Mapping[str, tuple[int, int]],
    rules: Mapping[str, Rival | None],
) -> dict[str, str]:
    values = _run(bench, jobs, part, places, rules)
    found = {key: Found.of(value) for key, value in values.items()}
    titles, rivals = tuple(places), tuple(rules)[1:]
    own = [name for name in rules if name.startswith("auto")]
    rows = [
        [title, str(bench.seeds(places[title][0])), *(found[title, r].cell() for r in rules)]
        for title in titles
    ]
    for name, gap in product(own, GAPS):
        ratios = [ratio(found, titles, (r,), gap, name) if r != name else "" for r in rivals]
        rows.append([f"`{name}` relative to it, ε = {gap:g}", "", "", *ratios])
    for gap in GAPS:
        means = [np.mean([found[t, r].average(gap) for t in titles]) for r in rules]
        rows.append([f"mean precision, ε = {gap:g}", "", *(f"{100 * m:.1f}" for m in means)])
    table = markdown(["matrix", "seeds", *rules], rows)
    return {part: f"{table}\n\n{_beside_the_best(found, titles, rules)}"}


def _beside_the_best(
    found: Mapping[tuple[str, str], Found],
    titles: Sequence[str],
    rules: Mapping[str, Rival | None],
) -> str:
    """A line for the rivals without history and one for those with it."""
    lines = []
    for given, what in ((False, "has no history"), (True, "is given the history")):
        rivals = [
            name
            for name, rule in rules.items()
            if rule and rule.name != "auto" and rule.with_history == given
        ]
        own = "auto, history" if given else "auto"
        if rivals:
            ratios = (f"{ratio(found, titles, rivals, gap, own)} at ε = {gap:g}" for gap in GAPS)
            best = f"- `{own}` relative to the best rival on each matrix that {what}"
            lines.append(f"{best}: {'; '.join(ratios)}.")
    return "\n".join(lines)


def _run(
    bench: Bench,
    jobs: int,
    part: str,
    places: Mapping[str, tuple[int, int]],
    rules: Mapping[str, Rival | None],
) -> dict[tuple[str, str], Any]:
    """Measure what was not measured before, in parallel, the slow rules first."""
    wanted = {}
    for name in reversed(tuple(rules)):
        for title, (usual, most) in places.items():
            seeds, halved = bench.seeds(usual), part == "learned"
            key = {"part": part, "matrix": title, "rule": name, "seeds": seeds, "most": most}
            make = partial(measure, bench, title, rules[name], seeds, most, halved=halved)
            wanted[title, name] = (key, make)
    return measured(bench, wanted, jobs)


PARTS: Mapping[str, Callable[[Bench, int], dict[str, str]]] = {
    "modelled": run_modelled,
    "learned": run_learned,
}
