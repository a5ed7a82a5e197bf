"""The models that ship with the arithmetic example, answered as a bare loop answers them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.values import Message, Request
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.testing.provider_suite import answer_all

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")

EXAMPLE = Path(__file__).parents[3] / "examples" / "arithmetic"
NAMES = sorted(path.parent.name for path in EXAMPLE.glob("models/*/model.safetensors"))
PARAMS = {"temperature": 0, "max_tokens": 8}

pytestmark = pytest.mark.skipif(not NAMES, reason="the example's models are not there")


def sums(n: int) -> list[dict[str, Any]]:
    lines = (EXAMPLE / "dataset.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:n]]


def requests(name: str, n: int) -> list[Request]:
    texts = ["{a}+{b}=", "Q: {a}+{b}\nA:"]
    plain = [
        Request(model=f"models/{name}", text=text.format(**row), params=PARAMS)
        for text in texts
        for row in sums(n)
    ]
    said = [
        Request(
            model=f"models/{name}",
            messages=(Message("user", "{a}+{b}".format(**row)),),
            params=PARAMS,
        )
        for row in sums(n)
    ]
    return plain + said


def answers(name: str, asked: list[Request]) -> list[str]:
    async def main() -> list[str]:
        async with HfProvider.create("hf", {"threads": 1}, EXAMPLE) as provider:
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
            messages = [{"role": "user", "content": request.messages[0].content}]
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


@pytest.mark.slow
def test_the_models_can_add_and_differ() -> None:
    rows = sums(200)
    shares = {}
    for name in NAMES:
        asked = requests(name, len(rows))[: len(rows)]
        right = [
            row["answer"] == text for row, text in zip(rows, answers(name, asked), strict=True)
        ]
        shares[name] = sum(right) / len(rows)
    assert max(shares.values()) > 0.3  # chance is below 0.02
    assert max(shares.values()) - min(shares.values()) > 0.1
