"""Write AlpacaEval's files of ``tests/interop/golden`` with alpaca_eval itself (0.6.6), offline.

Two mock models answer four questions. A function stands for OpenAI's model, which annotates; the
prompt, the random order of the answers, the parser and the files are AlpacaEval's.

    pip install alpaca-eval==0.6.6
    python benchmarks/interop/make_alpaca_eval.py tests/interop/golden
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from alpaca_eval import evaluate  # type: ignore[import-not-found, unused-ignore]
from alpaca_eval.decoders import openai  # type: ignore[import-not-found, unused-ignore]

QUESTIONS = ["Name a colour.", "Name a fruit.", "Name a river.", "Name nothing."]
ANSWERS = {
    "baseline": ["Red.", "An apple.", "The Rhine.", "Nothing."],
    "mock-good": ["Red, as rust.", "A ripe apple.", "The Rhine in spring.", "?"],
    "mock-weak": ["Red.", "An old shoe, which is not a fruit.", "Rhine", "?"],
}


def chance(prompt: str) -> float | None:
    """Return how likely the first answer is the better one; None where there is no verdict."""
    first, second = (prompt.split('"output": """')[part].split('"""')[0] for part in (1, 2))
    if "?" in first + second:
        return None
    if "shoe" in first + second:
        return 0.02 if "shoe" in first else 0.98
    return 1 / (1 + math.exp((len(second) - len(first)) / 4))


def completions(prompts: list[str], **_: Any) -> dict[str, list[Any]]:  # noqa: ANN401
    """Answer as OpenAI's models do: one token, with the probabilities of the likeliest ones."""
    found = []
    for prompt in prompts:
        first = chance(prompt)
        likely = {"neither": 1.0} if first is None else {"m": first, "M": 1 - first}
        tokens = [{"token": token, "logprob": math.log(p)} for token, p in likely.items()]
        text = max(likely, key=lambda token: likely[token])
        content = [{"token": text, "top_logprobs": tokens}]
        found.append({"text": text, "logprobs": {"content": content}})
    nothing = [0.0] * len(prompts)
    return {
        "completions": [one["text"] for one in found],
        "completions_all": found,
        "price_per_example": nothing,
        "time_per_example": nothing,
    }


def main(folder: Path) -> None:
    """Write one `annotations.json` per model."""
    openai.openai_completions = completions
    rows = {
        name: [
            {"instruction": question, "output": answer, "generator": name}
            for question, answer in zip(QUESTIONS, answers, strict=True)
        ]
        for name, answers in ANSWERS.items()
    }
    for name in ("mock-good", "mock-weak"):
        with tempfile.TemporaryDirectory() as place:
            evaluate(
                model_outputs=rows[name],
                reference_outputs=rows["baseline"],
                annotators_config="weighted_alpaca_eval_gpt4_turbo",
                output_path=place,
                precomputed_leaderboard=None,
                fn_metric="get_winrate",
                sort_by="win_rate",
                is_return_instead_of_print=True,
                caching_path=None,
            )
            [written] = Path(place).glob("*/annotations.json")
            kept = folder / "alpaca_eval" / name
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "annotations.json").write_bytes(written.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
