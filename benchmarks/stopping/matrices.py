"""The score matrices on which stopping rules are tried, whole or cut to a common size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bestarm_agent.simulation.npz_scores import Reading
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.stats.keyed_random import KeyedRandom

ROWS, COLUMNS = 6, 120  # of a cut matrix
WHOLE = 20_000  # cells up to which a matrix is also tried whole
PROMPTS = "rautoeval_prompting.npz"
# where a matrix is, by the name that it has in the report
FILES: Mapping[str, str] = {
    "AlpacaEval stand-in": "alpaca_eval2_2024-03-05_semisynthetic.npz",
    "AlpacaEval, real part": "alpaca_eval2_real_subset.npz",
    "SAT12": "aslib_sat12_indu.npz",
    "BFCL": "bfcl_2024-08-11.npz",
    "LiveCodeBench": "livecodebench_gen_2024-04.npz",
    "metabench GSM8K": "metabench_gsm8k.npz",
    "BBH and others": "openllm2_bbh5_semisynthetic.npz:scores",
    "BBH and others, other half": "openllm2_bbh5_semisynthetic.npz:history",
    "PSN-IRT": "psnirt_12x41871.npz",
    "CoQA, quantised": "rautoeval_coqa.npz",
    "TriviaQA, quantised": "rautoeval_triviaqa.npz",
    "LLM router": "router_llmrouter_9models.npz",
    "RTE": "rte_snow2008.npz",
    "ZeroEval GSM8K": "zeroeval_gsm8k.npz",
    "SAPS run times": "sat_swgcp_saps.npz:runtime",
}
READINGS = {"sat_swgcp_saps.npz:runtime": Reading(cutoff=2.1, transposed=True)}
MADE = ("made: two coins", "made: all level but one", "made: rare successes", "made: rare failures")


@dataclass(frozen=True, slots=True)
class Case:
    """A matrix under the name of the report, and how it was made.

    Attributes:
        name: name in the report.
        matrix: what is replayed; the truth is that of this matrix, also where it was cut.
    """

    name: str
    matrix: ScoreMatrix


def cases(data: Path) -> list[Case]:
    """Made matrices, then all stored ones, cut."""
    made = [Case(name, worst_case(name)) for name in MADE]
    return made + [Case(name, cut(_load(data, place))) for name, place in _all(data).items()]


def whole_cases(data: Path) -> list[Case]:
    """The stored matrices of at most ``WHOLE`` cells, as they are, tasks of prompting left out."""
    found = [Case(name, _load(data, place)) for name, place in FILES.items()]
    return [c for c in found if c.matrix.scores.size <= WHOLE]


def cut(matrix: ScoreMatrix, rows: int = ROWS, columns: int = COLUMNS) -> ScoreMatrix:
    """The best two candidates, others at even steps of the ranking, on a random set of examples.

    Examples with the fewest missing scores come first; among equals the draw is random. What has no
    score there is left out.
    """
    order = np.argsort(-matrix.means, kind="stable")
    places = np.unique(
        np.linspace(2, len(order) - 1, min(rows, len(order)) - 2).round().astype(int)
    )
    scores = matrix.scores[order[[0, 1, *places]]]
    missing = np.isnan(scores).sum(axis=0)
    shuffled = KeyedRandom(0, "cut").at(0).random(scores.shape[1])
    taken = np.lexsort((shuffled, missing))[:columns]
    kept = scores[:, taken]
    kept = kept[~np.isnan(kept).all(axis=1)]
    return ScoreMatrix(kept, tuple(f"row {i}" for i in range(len(kept))), source=matrix.source)


def worst_case(name: str) -> ScoreMatrix:
    """Independent 0/1 rows, the best one cell ahead: a wrong answer is near."""
    heads = {
        "made: two coins": (61, 60),
        "made: all level but one": (61, 60, 60, 60, 60, 60),
        "made: rare successes": (4, 3, 3, 2, 1, 1),
        "made: rare failures": (119, 118, 118, 117, 117, 116),
    }[name]
    random = KeyedRandom(0, name)
    rows = [random.at(i).permutation(np.arange(COLUMNS) < n) for i, n in enumerate(heads)]
    return ScoreMatrix(
        np.array(rows, dtype=np.float32), tuple(f"row {i}" for i in range(len(rows))), source=name
    )


def best_rows(matrix: ScoreMatrix) -> frozenset[int]:
    """The rows of the highest mean; ties within rounding."""
    means = matrix.means
    return frozenset(np.flatnonzero(means >= means.max() - 1e-9).tolist())


def _all(data: Path) -> dict[str, str]:
    with np.load(data / PROMPTS, allow_pickle=False) as arrays:
        tasks = [key.removeprefix("true__") for key in arrays if key.startswith("true__")]
    return dict(FILES) | {f"prompts: {t.replace('_', ' ')}": f"{PROMPTS}:{t}" for t in tasks}


def _load(data: Path, place: str) -> ScoreMatrix:
    matrix = load_matrix(str(data / place), reading=READINGS.get(place))
    return replace(matrix, costs=None, source=place)
