"""A shipped model behind ``transformers serve``, spoken to through the ``openai`` provider."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread

import pytest

from bestarm_agent.domain.values import Json, Message, Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.testing.provider_suite import answer_all

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("fastapi", "uvicorn", "transformers", "torch")),
        reason="transformers serve needs transformers[serving] and torch",
    ),
]

EXAMPLES = Path(__file__).parents[3] / "examples" / "arithmetic"
MODEL = EXAMPLES / "models" / "sum-llama-113k"
STARTS_WITHIN = 90.0  # seconds, on a busy machine


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def watch(process: subprocess.Popen[str], up: Event) -> None:
    """Read what the server says to its end, and note when it is up."""
    assert process.stderr is not None
    for line in process.stderr:
        if "Uvicorn running" in line:
            up.set()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    serve = ["serve", str(MODEL), "--device", "cpu", "--port", str(port), "--host", "127.0.0.1"]
    program = "from transformers.cli.transformers import main; main()"
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *serve]
    up = Event()
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        watcher = Thread(target=watch, args=(process, up))
        watcher.start()
        try:
            assert up.wait(STARTS_WITHIN), "transformers serve did not come up"
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            watcher.join()


def provider_at(url: str) -> ApiProvider:
    options: dict[str, Json] = {
        "base_url": url,
        "key": "none",
        "max_tokens_field": "max_tokens",
        "text": "completions",
    }
    return OpenAIProvider.create("openai", options, Path())


def sums(n: int) -> list[dict[str, str | int]]:
    lines = (EXAMPLES / "dataset.jsonl").read_text().splitlines()[:n]
    return [json.loads(line) for line in lines]


def answered(url: str, *requests: Request) -> list[Reply]:
    async def main() -> list[Reply]:
        async with provider_at(url) as provider:
            return await answer_all(provider, requests)

    return asyncio.run(main())


@pytest.mark.timeout(180)
def test_it_adds_about_as_well_as_in_this_process(url: str) -> None:
    """The model answers about 85 % of plain additions right, and 88 % of chats."""
    rows = sums(24)
    params: dict[str, Json] = {"max_tokens": 6, "temperature": 0}
    plain = [Request(str(MODEL), text=f"{r['a']}+{r['b']}=", params=params) for r in rows]
    chats = [
        Request(str(MODEL), messages=(Message("user", f"{r['a']}+{r['b']}"),), params=params)
        for r in rows
    ]
    replies = answered(url, *plain, *chats)
    right = [
        reply.text.strip() == row["answer"] for reply, row in zip(replies, rows * 2, strict=True)
    ]
    # 48 draws at 0.85 and above: fewer than 33 with a probability below 0.003
    assert sum(right) >= 33
    for reply in replies:
        assert reply.usage.input > 0
        assert 0 < reply.usage.output <= 6
        assert reply.sent == {"temperature": 0, "max_tokens": 6}


@pytest.mark.timeout(180)
def test_what_it_ignores_is_noticed(url: str) -> None:
    message = (Message("user", "2+3"),)
    schema: dict[str, Json] = {"type": "object", "properties": {}, "title": "t"}
    params: dict[str, Json] = {"max_tokens": 6, "temperature": 0}
    asked = Request(
        str(MODEL), messages=message, params=params, top_logprobs=2, response_schema=schema
    )
    (reply,) = answered(url, asked)
    assert "gave no log probabilities although they were asked for" in reply.notices


@pytest.mark.timeout(180)
def test_another_model_is_refused(url: str) -> None:
    async def main() -> None:
        async with provider_at(url) as provider:
            request = Request("some/other", messages=(Message("user", "2+3"),))
            with pytest.raises(ProviderError) as caught:
                await provider.generate(request)
            assert caught.value.kind in (FailureKind.BAD_REQUEST, FailureKind.MODEL_NOT_FOUND)

    asyncio.run(main())
