"""The matrices on which ``auto`` was developed, and those on which it was confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.simulation.score_matrices import load_matrix

_PROMPTS = "rautoeval_prompting.npz"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a matrix is, and how much of it is run."""

    location: str  # file, or file and task, in the data folder
    half: str  # "development" or "confirmation"
    without_best: bool = False  # whether the row of the highest mean is left out
    rows: int = 0  # how many rows to draw at random; 0 for all


def _prompts(half: str, tasks: str) -> dict[str, Place]:
    return {task.replace("_", " "): Place(f"{_PROMPTS}:{task}", half) for task in tasks.split()}


# Fixed before anything was run. Development: the seven that earlier work had been tuned on, and of
# the other 31 those twelve whose name has the smallest SHA-256; the rest is for confirmation.
MATRICES: dict[str, Place] = {
    "LiveCodeBench": Place("livecodebench_gen_2024-04.npz", "development"),
    "SAT12": Place("aslib_sat12_indu.npz", "development"),
    "AlpacaEval, real, no annotator": Place(
        "alpaca_eval2_real_subset.npz", "development", without_best=True
    ),
    "GSM8K": Place("zeroeval_gsm8k.npz", "development"),
    "BFCL": Place("bfcl_2024-08-11.npz", "development"),
    "metabench, 400 models": Place("metabench_gsm8k.npz", "development", rows=400),
    "OpenLLM": Place("openllm2_bbh5_semisynthetic.npz", "development"),
    "CoQA": Place("rautoeval_coqa.npz", "development"),
    "formal": Place(f"{_PROMPTS}:informal_to_formal", "development"),
    **_prompts(
        "development",
        "antonyms letters_list rhymes sentiment singular_to_plural synonyms"
        " translation_en-de translation_en-es translation_en-fr word_in_context",
    ),
    "AlpacaEval, real": Place("alpaca_eval2_real_subset.npz", "confirmation"),
    "AlpacaEval": Place("alpaca_eval2_2024-03-05_semisynthetic.npz", "confirmation"),
    "AlpacaEval, no annotator": Place(
        "alpaca_eval2_2024-03-05_semisynthetic.npz", "confirmation", without_best=True
    ),
    "metabench": Place("metabench_gsm8k.npz", "confirmation"),
    "PSN-IRT": Place("psnirt_12x41871.npz", "confirmation"),
    "LLMRouter": Place("router_llmrouter_9models.npz", "confirmation"),
    "TriviaQA": Place("rautoeval_triviaqa.npz", "confirmation"),
    **_prompts(
        "confirmation",
        "cause_and_effect common_concept active_to_passive negation diff first_word_letter"
        " larger_animal orthography_starts_with second_word_letter sentence_similarity sum"
        " taxonomy_animal",
    ),
}


def scores_of(data: Path, place: Place) -> NDArray[np.float32]:
    """(K, N) scores; the few missing cells hold their row's mean."""
    matrix = load_matrix(str(data / place.location))
    scores = matrix.scores
    if place.without_best:
        scores = np.delete(scores, int(np.argmax(matrix.means)), axis=0)
    if place.rows:
        chosen = np.random.default_rng(400).choice(len(scores), place.rows, replace=False)
        scores = scores[np.sort(chosen)]
    means = np.nanmean(scores, axis=1, dtype=np.float64, keepdims=True)
    return np.asarray(np.where(np.isnan(scores), means, scores), dtype=np.float32)
