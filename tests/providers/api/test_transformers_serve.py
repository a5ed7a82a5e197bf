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
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.testing.provider_suite import answer_all
from tests.support.provider_calls import error, reply

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("fastapi", "uvicorn", "transformers", "torch")),
        reason="transformers serve needs transformers[serving] and torch",
    ),
]

EXAMPLES = Path(__file__).parents[3] / "examples" / "arithmetic"
MODEL = EXAMPLES / "models" / "sum-llama-113k"
PARAMS: dict[str, Json] = {"max_tokens": 6, "temperature": 0}
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
        "completion": True,
    }
    return OpenAIProvider.create("openai", options, Path())


@pytest.mark.timeout(180)
def test_it_adds_about_as_well_as_in_this_process(url: str) -> None:
    """The model answers about 85 % of plain additions right, and 88 % of chats."""
    lines = (EXAMPLES / "dataset.jsonl").read_text().splitlines()[:24]
    rows = [json.loads(line) for line in lines]
    sums = [f"{row['a']}+{row['b']}" for row in rows]
    asks = [Request(str(MODEL), text=f"{one}=", params=PARAMS) for one in sums]
    asks += [Request(str(MODEL), messages=(Message("user", one),), params=PARAMS) for one in sums]

    async def main() -> list[Reply]:
        async with provider_at(url) as provider:
            return await answer_all(provider, asks)

    found = asyncio.run(main())
    right = [one.text.strip() == row["answer"] for one, row in zip(found, rows * 2, strict=True)]
    # 48 draws at 0.85 and above: fewer than 33 with a probability below 0.003
    assert sum(right) >= 33
    for one in found:
        assert one.usage.input > 0
        assert 0 < one.usage.output <= 6
        assert one.sent == {"temperature": 0, "max_tokens": 6}


@pytest.mark.timeout(180)
def test_what_it_ignores_is_noticed_and_another_model_is_refused(url: str) -> None:
    message = (Message("user", "2+3"),)
    schema: dict[str, Json] = {"type": "object", "properties": {}, "title": "t"}
    asked = Request(str(MODEL), None, message, PARAMS, response_schema=schema, top_logprobs=2)
    found = reply(provider_at(url), asked)
    assert "gave no log probabilities although they were asked for" in found.notices
    refused = error(provider_at(url), Request("some/other", messages=message))
    assert refused.kind in (FailureKind.BAD_REQUEST, FailureKind.MODEL_NOT_FOUND)
