"""The models that ship with the arithmetic example, answered as a bare loop answers them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.testing.provider_suite import answer_all

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")

EXAMPLE = Path(__file__).parents[3] / "examples" / "arithmetic"
NAMES = sorted(path.parent.name for path in EXAMPLE.glob("models/*/model.safetensors"))
OPTIONS: dict[str, Json] = {
    "threads": 1,
    "completion": True,
    "dtype": "float32",
}  # as in the example's study
PARAMS = {"temperature": 0, "max_tokens": 8}

pytestmark = pytest.mark.skipif(not NAMES, reason="the example's models are not there")


def requests(name: str, n: int) -> list[Request]:
    lines = (EXAMPLE / "dataset.jsonl").read_text(encoding="utf-8").splitlines()[:n]
    sums = ["{a}+{b}".format(**json.loads(line)) for line in lines]
    plain = [f"{one}=" for one in sums] + [f"Q: {one}\nA:" for one in sums]
    model = f"models/{name}"
    said = [Request(model, messages=(Message("user", one),), params=PARAMS) for one in sums]
    return [Request(model, text=text, params=PARAMS) for text in plain] + said


def answers(name: str, asked: list[Request]) -> list[str]:
    async def main() -> list[str]:
        async with HfProvider.create("hf", OPTIONS, EXAMPLE) as provider:
            return [reply.text for reply in await answer_all(provider, asked)]

    return asyncio.run(main())


def one_by_one(name: str, asked: list[Request]) -> list[str]:
    """Batches of one: nothing to pad, nothing to mix up."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = EXAMPLE / "models" / name
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = []
    for request in asked:
        if request.text is None:
            messages = [{"role": "user", "content": request.messages[0].text}]
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
            inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
        else:
            inputs = tokenizer(request.text, return_tensors="pt")
        output = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        reply = output[0, inputs["input_ids"].shape[1] :]
        texts.append(tokenizer.decode(reply, skip_special_tokens=True))
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_batches_answer_as_single_prompts_do(name: str) -> None:
    asked = requests(name, 12)
    assert answers(name, asked) == one_by_one(name, asked)
