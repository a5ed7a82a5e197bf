"""A whole study over an API, next to a bare loop over the same SDK's client.

    python -m benchmarks.engine.api_throughput --calls 1000 --rounds 3 --wire openai anthropic

A fake server in a process of its own answers after 50 ms. All sides send the same requests over
aiohttp, without the SDK's retries, and take turns in one run:

- bare: tasks that await the SDK's ``create`` under a semaphore, nothing else;
- aiohttp: the same with a POST of aiohttp's client, whose JSON is parsed;
- provider: the same with our provider, which also prices, checks and records;
- study: all that ``bestarm-agent select`` does: selecting, budget in dollars, rate limits, durable
  log and reply cache, scoring.

With ``--paced 10`` so many calls leave in a second, one by one; the study paces them itself. A call
alone costs more on every side: it shares no turn of the loop, no commit and no warm caches.

The median of the rounds is printed. The server takes one core of its own. With ``--inspect PYTHON``
inspect-ai does as many sums with one of the models and a scorer, in the environment of that
interpreter, which holds inspect-ai and openai:

    python -m benchmarks.engine.api_throughput --inspect inspect-env/bin/python
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from anthropic import AsyncAnthropic
from anthropic import DefaultAioHttpClient as AnthropicAioHttpClient
from openai import AsyncOpenAI, DefaultAioHttpClient

from bestarm_agent import Budget, Study
from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.providers.registry import create_provider

ROOT = Path(__file__).parents[2]
MODELS = {f"m{i}": 0.5 + 0.04 * i for i in range(10)}
EXAMPLES = 500
PRICE: Json = {"input": 1, "output": 5}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of calls took: calls per second of wall clock, CPU milliseconds per call."""

    calls_per_second: float
    cpu_ms: float


class Meter:
    """Measures the block it surrounds."""

    def __enter__(self) -> Meter:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cpu = time.process_time() - self._cpu
        self.wall = time.perf_counter() - self._wall

    def cost(self, calls: int) -> Cost:
        """Share what was measured among ``calls``."""
        return Cost(calls / self.wall, 1000 * self.cpu / calls)


@contextmanager
def server(latency_ms: float) -> Iterator[str]:
    """Run the fake server in another process; yield its base URL."""
    models = [f"{name}={share}" for name, share in MODELS.items()]
    command = [
        sys.executable,
        "-m",
        "tests.support.fake_api",
        *models,
        "--latency-ms",
        str(latency_ms),
    ]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            yield it.stdout.readline().strip()
        finally:
            it.terminate()


async def spread(
    calls: int, in_flight: int, call: Callable[[int], Awaitable[object]], pace: float = 0.0
) -> Cost:
    """Make the calls, so many at a time, or in a second; one before the clock opens the client."""
    gate = asyncio.Semaphore(in_flight)

    async def one(k: int) -> None:
        async with gate:
            await call(k)

    await one(0)
    with Meter() as meter:
        async with asyncio.TaskGroup() as tasks:
            for k in range(calls):
                tasks.create_task(one(k))
                if pace:
                    await asyncio.sleep(1 / pace)
    return meter.cost(calls)


def question(k: int) -> str:
    """The k-th addition."""
    return f"{17 + k % EXAMPLES}+{5 + 3 * (k % EXAMPLES)}"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A protocol, as the sides use it: below which path, and what a request is called there."""

    name: str
    base: str
    path: str
    limit: str
    bare: Callable[[str, int, int, float], Awaitable[Cost]]
    said: Callable[[Any], object]  # of a response's JSON


async def bare_openai(url: str, calls: int, in_flight: int, pace: float) -> Cost:
    """Await OpenAI's SDK."""
    transport = DefaultAioHttpClient()
    async with AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=transport
    ) as client:

        async def call(k: int) -> object:
            chat = await client.chat.completions.create(
                model=f"m{k % len(MODELS)}",
                messages=[{"role": "user", "content": question(k)}],
                max_completion_tokens=16,
            )
            return chat.choices[0].message.content

        return await spread(calls, in_flight, call, pace)


async def bare_anthropic(url: str, calls: int, in_flight: int, pace: float) -> Cost:
    """Await Anthropic's SDK."""
    transport = AnthropicAioHttpClient()
    async with AsyncAnthropic(
        base_url=url, api_key="none", max_retries=0, http_client=transport
    ) as client:

        async def call(k: int) -> object:
            message = await client.messages.create(
                model=f"m{k % len(MODELS)}",
                messages=[{"role": "user", "content": question(k)}],
                max_tokens=16,
            )
            return message.content[0]

        return await spread(calls, in_flight, call, pace)


VENDORS = {
    "openai": Vendor(
        "openai",
        "/v1",
        "/chat/completions",
        "max_completion_tokens",
        bare_openai,
        lambda body: body["choices"][0]["message"]["content"],
    ),
    "anthropic": Vendor(
        "anthropic",
        "",
        "/v1/messages",
        "max_tokens",
        bare_anthropic,
        lambda body: body["content"][0]["text"],
    ),
}


async def bare(vendor: Vendor, url: str, calls: int, in_flight: int, pace: float = 0.0) -> Cost:
    """Await the SDK."""
    return await vendor.bare(url, calls, in_flight, pace)


async def raw(vendor: Vendor, url: str, calls: int, in_flight: int) -> Cost:
    """Await aiohttp."""
    address = f"{url}{vendor.base}{vendor.path}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(k: int) -> object:
            body = {
                "model": f"m{k % len(MODELS)}",
                "messages": [{"role": "user", "content": question(k)}],
                vendor.limit: 16,
            }
            async with session.post(address, json=body) as response:
                return vendor.said(await response.json())

        return await spread(calls, in_flight, call)


async def provider(vendor: Vendor, url: str, calls: int, in_flight: int) -> Cost:
    """Await the provider."""
    options: dict[str, Json] = {"base_url": f"{url}{vendor.base}", "price": PRICE}
    async with create_provider(vendor.name, options, Path()) as opened:

        async def call(k: int) -> object:
            messages = (Message("user", question(k)),)
            params: dict[str, Json] = {"max_tokens": 16}
            return await opened.generate(
                Request(f"m{k % len(MODELS)}", messages=messages, params=params)
            )

        return await spread(calls, in_flight, call)


async def study(vendor: Vendor, url: str, calls: int, in_flight: int, pace: float = 0.0) -> Cost:
    """Run the study."""
    with tempfile.TemporaryDirectory() as name:
        path = write_study(Path(name), vendor, url, in_flight, pace)
        async with Study.open(path) as opened:
            await opened.run(Budget(answers=1))
            with Meter() as meter:
                standing = await opened.run(Budget(answers=calls))
            assert standing.told == calls + 1, standing.end
        return meter.cost(calls)


def write_study(folder: Path, vendor: Vendor, url: str, in_flight: int, pace: float = 0.0) -> Path:
    """Write a study of 10 models x 500 additions, of ``pace`` calls a second."""
    limits: dict[str, Json] = {"in_flight": in_flight}
    if pace:
        limits |= {"rpm": round(60 * pace), "shared": True}
    rows = [{"id": f"e{k}", "q": question(k), "answer": ""} for k in range(EXAMPLES)]
    for row in rows:
        row["answer"] = str(sum(map(int, row["q"].split("+"))))
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = {
        "models": [f"{vendor.name}/{name}" for name in MODELS],
        "prompts": [{"chat": [{"role": "user", "content": "{{ q }}"}]}],
        "params": {"max_tokens": 16},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "budget": {"usd": 100},
        "selector": {"name": "ucb-e", "stop_when_separated": False},
        "limits": {"in_flight": in_flight, "providers": {vendor.name: limits}},
        "providers": {vendor.name: {"base_url": f"{url}{vendor.base}", "price": PRICE}},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(config))
    return path


# Runs in another environment: python -c _INSPECT url calls in_flight
_INSPECT = """
import json, os, sys, tempfile, time
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate

url, calls, in_flight = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ["FAKE_API_KEY"] = "none"

def run(n):
    sums = [(17 + k, 5 + 3 * k) for k in range(n)]
    samples = [Sample(input=f"{a}+{b}", target=str(a + b)) for a, b in sums]
    task = Task(dataset=samples, solver=generate(), scorer=match())
    with tempfile.TemporaryDirectory() as logs:
        (log,) = eval(
            task, model="openai-api/fake/m0", model_base_url=url + "/v1", max_tokens=16,
            max_connections=in_flight, max_samples=in_flight, log_dir=logs, display="none",
        )
    assert log.status == "success", log.error

run(2)
cpu, wall = time.process_time(), time.perf_counter()
run(calls)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
print(json.dumps([calls / wall, 1000 * cpu / calls]))
"""


def inspect(python: str, url: str, calls: int, in_flight: int) -> Cost:
    """Let inspect-ai do the same, in its own environment."""
    command = [python, "-c", _INSPECT, url, str(calls), str(in_flight)]
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


SIDES: Mapping[str, Callable[..., Coroutine[Any, Any, Cost]]] = {
    "bare": bare,
    "aiohttp": raw,
    "provider": provider,
    "study": study,
}


PACED = ("bare", "study")


def measure(
    vendor: Vendor, url: str, calls: int, in_flight: int, rounds: int, pace: float = 0.0
) -> dict[str, Cost]:
    """Let the sides take turns; return their medians."""
    sides = {name: partial(SIDES[name], pace=pace) for name in PACED} if pace else SIDES
    costs: dict[str, list[Cost]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            costs[name].append(asyncio.run(side(vendor, url, calls, in_flight)))
    return {
        name: Cost(
            statistics.median(cost.calls_per_second for cost in found),
            statistics.median(cost.cpu_ms for cost in found),
        )
        for name, found in costs.items()
    }


def main() -> None:
    """Print all sides and how they compare with the bare loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--wire", choices=VENDORS, nargs="+", default=["openai"])
    parser.add_argument("--paced", type=float, default=0.0, metavar="CALLS", help="in a second")
    parser.add_argument("--inspect", metavar="PYTHON", help="an interpreter that has inspect-ai")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    print(f"{options.calls} calls, {options.latency_ms:g} ms, median of {options.rounds} rounds")
    print("wire       in flight  side            calls/s  of bare  CPU ms/call  of bare")
    with server(options.latency_ms) as url:
        for vendor in (VENDORS[name] for name in options.wire):
            for in_flight in options.in_flight:
                found = measure(
                    vendor, url, options.calls, in_flight, options.rounds, options.paced
                )
                if options.inspect:
                    found["inspect"] = inspect(options.inspect, url, options.calls, in_flight)
                alone = found["bare"]
                for name, cost in found.items():
                    print(
                        f"{vendor.name:9} {in_flight:10}  {name:14} {cost.calls_per_second:8.0f} "
                        f"{cost.calls_per_second / alone.calls_per_second:8.0%} "
                        f"{cost.cpu_ms:12.2f} {cost.cpu_ms / alone.cpu_ms:8.2f}"
                    )


if __name__ == "__main__":
    main()
