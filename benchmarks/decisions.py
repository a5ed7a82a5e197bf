"""Measure decisions: how good what is taken is, and whether what is said of it comes true.

Studies are drawn from the shared score matrices: 4 to 24 rows, and 60, 120 or 250 examples drawn
with replacement. `auto` runs each to its own stop, and the product's own code makes the decision.
The truth is the mean of a row over its whole matrix.

    python benchmarks/decisions.py ../shared/data --seeds 12

prints the mean regret of `take`, how often its `chance` comes true, in how many of the candidates
that are about as good the stated bound holds (they take turns at being the cheapest), and how
often the number of examples that should prove the lead does.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from bestarm_agent.domain.events import CandidatesAdded, Event, ExamplesAdded, Started
from bestarm_agent.domain.values import Candidate, PromptTemplate
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.store.run_state import fold

MATRICES = (
    "bfcl_2024-08-11",
    "livecodebench_gen_2024-04",
    "metabench_gsm8k",
    "psnirt_12x41871",
    "router_llmrouter_9models",
    "zeroeval_gsm8k",
    "rautoeval_triviaqa",
    "aslib_sat12_indu",
)
PROMPT = PromptTemplate("p", text="{{ question }}")


def standing_of(pairs: Pairs, k: int, n: int, end: str) -> Standing:
    """Return the standing of a run of the product, made from what its rule has seen."""
    candidates = tuple(Candidate("p", f"m{i}", PROMPT, {}, f"m{i}") for i in range(k))
    ids = tuple(f"e{j}" for j in range(n))
    events: list[Event] = [
        Started("study", "2026-01-01T00:00:00+00:00", "0.1.0", {}, "."),
        ExamplesAdded(ids, ids),
        CandidatesAdded(candidates, tuple(0.0 for _ in candidates)),
    ]
    return decided(replace(build_standing(fold(events), pairs, "run", broken={}), end=end))


def run(scores: np.ndarray, seed: int, *, for_new: bool = False) -> tuple[Pairs, str]:
    """Let `auto` choose among (K, N) scores until it stops by itself."""
    k, n = scores.shape
    problem = Problem(k, n, seed=seed, open_ended=True, for_new=for_new)
    pairs = make_selector("auto", problem)
    while asks := pairs.ask(8):
        pairs.tell([Tell(one.seq, State.DONE, float(scores[one.pair])) for one in asks])
    stop = pairs.stopped()
    return pairs, "exhausted" if stop is None else stop.value


def main() -> None:
    """Run the studies, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--forecasts", action="store_true", help="add the examples that are named")
    given = parser.parse_args()
    found: defaultdict[str, list[float]] = defaultdict(list)
    for name in MATRICES:
        path = given.data / f"{name}.npz"
        matrix = np.nan_to_num(np.load(path)["scores"].astype(np.float32).astype(float))
        matrix = np.clip(matrix, 0.0, 1.0)
        truth = matrix.mean(axis=1)
        for n in (60, 120, 250):
            for seed in range(given.seeds):
                rng = np.random.default_rng([seed, n, len(matrix)])
                k = min(len(matrix), int(rng.integers(4, 25)))
                # of the better half, as people choose their candidates
                able = np.argsort(-truth)[: max(k, len(matrix) // 2)]
                rows = rng.choice(able, k, replace=False)
                columns = rng.integers(0, matrix.shape[1], n)
                pairs, end = run(matrix[np.ix_(rows, columns)], seed)
                measure(standing_of(pairs, k, n, end), truth[rows], found)
                if given.forecasts:
                    forecast(standing_of(pairs, k, n, end), matrix[rows], columns, rng, found)
    for key, values in found.items():
        error = np.std(values) / len(values) ** 0.5
        print(f"{key:52}{np.mean(values):8.4f} ± {error:.4f}   ({len(values)})")


def measure(standing: Standing, truth: np.ndarray, found: dict[str, list[float]]) -> None:
    """Compare a decision with the truth."""
    decision, winner = standing.decision, standing.winner
    assert winner is not None
    own, best = truth[winner.index], truth.max()
    found["regret of take"].append(best - own)
    found["regret of a random candidate"].append(best - truth.mean())
    if decision.chance is not None:
        found["chance that none is better: said"].append(decision.chance)
        found["chance that none is better: true"].append(float(own >= best))
    index = {row.candidate.label: row for row in standing.rows}
    equals = [index[label] for label in decision.as_good]
    found["has some that are about as good"].append(float(bool(equals)))
    for row in equals:
        assert row.against is not None
        found["about as good: regret"].append(best - truth[row.index])
        found["about as good: bound (9 in 10)"].append(max(0.0, row.against.most_behind))
        found["about as good: bound holds"].append(
            float(own - truth[row.index] <= max(0.0, row.against.most_behind) + 1e-12)
        )
    worse = [index[label] for label in decision.worse]
    found["worse: is really better"] += [float(truth[row.index] > own) for row in worse]
    found["undecided: candidates"].append(len(decision.undecided))
    if decision.proved and standing.new_examples is not None and standing.new_examples.shown:
        found["proved for new ones: true"].append(float(own >= best))


def forecast(
    standing: Standing,
    matrix: np.ndarray,
    columns: np.ndarray,
    rng: np.random.Generator,
    found: dict[str, list[float]],
) -> None:
    """Add as many examples as are said to prove the lead, and see whether they do."""
    said = standing.new_examples
    more = None if said is None else said.examples_needed
    found["a forecast is made"].append(float(more is not None))
    if more is None or said is None or more <= said.n_examples or more > 20 * len(columns):
        return
    drawn = np.concatenate([columns, rng.integers(0, matrix.shape[1], more - len(columns))])
    pairs, _ = run(matrix[:, drawn], 0, for_new=True)
    after = pairs.answer
    winner = standing.winner
    assert winner is not None
    found["a forecast comes true"].append(
        float(after.ranking()[0] == winner.index and not after.on_new.rivals(winner.index))
    )


if __name__ == "__main__":
    main()
