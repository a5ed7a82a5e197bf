"""Real prompts routed to the models that ship with the arithmetic example."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Example, Json
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.preselection.records import RouterSettings
from bestarm_agent.preselection.serve import Service

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("sklearn", reason="needs the extra preselect")

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
MODELS = sorted(path.parent for path in EXAMPLE.glob("models/*/model.safetensors"))
FORMATS = ("{a}+{b}=", "{a} + {b} =", "Q: {a}+{b}\nA:")
N_TRAINED, N_TRIED = 150, 45

pytestmark = pytest.mark.skipif(not MODELS, reason="the example's models are not there")


def prompts() -> list[Example]:
    """Sums as users may write them, in turn in each format."""
    lines = (EXAMPLE / "dataset.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[: N_TRAINED + N_TRIED]]
    texts = [FORMATS[i % 3].format(a=row["a"], b=row["b"]) for i, row in enumerate(rows)]
    return [
        Example(row["id"], {"text": text}, row["answer"])
        for row, text in zip(rows, texts, strict=True)
    ]


async def routed(store: Path) -> tuple[list[Counter[str]], float, float]:
    """Train on some prompts, reopen the router, and try it on others.

    Returns:
        By format, how often each model was the first choice; the share of right answers of the
        first choices; the same of the model that is best on all prompts together.
    """
    study: dict[str, Json] = {
        "models": [f"hf/{path}" for path in MODELS],
        "prompts": [{"asis": "{{ text }}"}],
        "params": {"temperature": 0, "max_tokens": 6},
        "dataset": str(EXAMPLE / "dataset.jsonl"),
        "scorer": "numeric",
        "providers": {"hf": {"threads": 1}},
    }
    examples, settings = prompts(), RouterSettings(collect=30, n_components=3, seed=1)
    chosen: list[Counter[str]] = [Counter(), Counter(), Counter()]
    right: Counter[str] = Counter()
    for part, k in ((examples[:N_TRAINED], 2), (examples[N_TRAINED:], len(MODELS))):
        given = {"settings": settings, "examples": examples, "options": Options(store=store)}
        async with Service.open(study, **given) as service:  # type: ignore[arg-type]
            assert service.router.version == (k > 2)
            for i, example in enumerate(part):
                served = await service.serve(example, k)
                assert served is not None
                if k == 2:
                    continue
                first, *_ = served.answers
                chosen[i % 3][first.candidate] += 1
                right["first"] += first.score == 1.0
                right.update(one.candidate for one in served.answers if one.score == 1.0)
    first_right = right.pop("first")
    return chosen, first_right / N_TRIED, max(right.values()) / N_TRIED


@pytest.mark.slow
def test_the_router_learns_which_model_suits_which_prompts(tmp_path: Path) -> None:
    chosen, right, best_single = asyncio.run(routed(tmp_path / "runs.sqlite"))
    favourites = [count.most_common(1)[0][0] for count in chosen]
    assert "sum-llama-113k" in favourites[0]  # right 91 % of the time here, and never at the last
    assert "sum-llama-113k" not in favourites[2]
    assert right > best_single
