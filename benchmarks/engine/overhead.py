"""What selecting, ledger, store, scoring and display cost per call, next to a bare asyncio loop.

    python -m benchmarks.engine.overhead --calls 4000 --in-flight 200

Both sides answer from the same `replay` provider, at no latency and at 50 ms. The bare loop only
awaits the provider under a semaphore; the study does all that `bestarm-agent select` does.

    python -m benchmarks.engine.overhead --rule ucb-e --models 40 4000

compares studies of so many separate models instead, each with 16,000 pairs in all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
from rich.console import Console

from bestarm_agent import Budget, Study
from bestarm_agent.cli.progress import LiveTable
from bestarm_agent.cli.run import run_shown
from bestarm_agent.domain.values import Json, Request
from bestarm_agent.providers.registry import create_provider

CANDIDATES, EXAMPLES = 60, 500
PAIRS = 16_000  # where numbers of models are compared


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of calls took.

    Attributes:
        calls_per_second: by the wall clock.
        cpu_ms: CPU milliseconds per call, all threads, user and system.
    """

    calls_per_second: float
    cpu_ms: float


def write_study(
    folder: Path,
    latency: float,
    rule: str = "auto",
    n_candidates: int = CANDIDATES,
    n_examples: int = EXAMPLES,
    spread: float = 0.3,
) -> Path:
    """Write a study over recorded scores; every candidate is a model of its own.

    ``spread``: how far the worst is below the best.
    """
    rng = np.random.default_rng(1)
    with (folder / "scores.jsonl").open("w") as file:
        for i in range(n_candidates):
            for j in range(n_examples):
                score = float(rng.random() < 0.5 + spread * i / n_candidates)
                record = {"candidate": f"c{i}", "example": f"e{j}", "score": score}
                file.write(json.dumps(record) + "\n")
    lines = [json.dumps({"id": f"e{j}", "question": f"q{j}"}) for j in range(n_examples)]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    study = {
        "name": "overhead",
        "models": [f"replay/c{i}" for i in range(n_candidates)],
        "prompts": [{"q": "{{ question }}"}],
        "dataset": "questions.jsonl",
        "scorer": "recorded",
        "selector": {"name": rule},
        "providers": {"replay": {"path": "scores.jsonl", "latency_seconds": latency}},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Measures the block it surrounds."""

    def __enter__(self) -> Meter:
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cpu = cpu_seconds() - self._cpu
        self.wall = time.perf_counter() - self._wall

    def cost(self, calls: int) -> Cost:
        """Share what was measured among ``calls``."""
        return Cost(calls / self.wall, 1000 * self.cpu / calls)


async def bare(folder: Path, latency: float, calls: int, in_flight: int) -> Cost:
    """Await the provider, nothing else."""
    options: dict[str, Json] = {"path": "scores.jsonl", "latency_seconds": latency}
    gate = asyncio.Semaphore(in_flight)
    async with create_provider("replay", options, folder) as provider:

        async def call(k: int) -> None:
            request = Request(f"c{k % CANDIDATES}", text="q", example=f"e{k // CANDIDATES}")
            async with gate:
                await provider.generate(request)

        await call(0)  # opens the file
        with Meter() as meter:
            async with asyncio.TaskGroup() as tasks:
                for k in range(calls):
                    tasks.create_task(call(k))
    return meter.cost(calls)


async def study(path: Path, calls: int, in_flight: int) -> Cost:
    """Run the study with a live table drawn to nowhere."""
    console = Console(file=StringIO(), force_terminal=True, width=120, height=40)
    overrides = {"limits.in_flight": in_flight, "limits.providers.replay.in_flight": in_flight}
    async with Study.open(path, overrides=overrides) as opened:
        await opened.run(Budget(answers=1))
        with Meter() as meter:
            standing = await run_shown(
                opened, None, LiveTable(console), lambda opened: opened.run(Budget(answers=calls))
            )
        assert standing.told == calls + 1, (standing.told, standing.end)
    return meter.cost(calls)


def compare_models(rule: str, numbers: list[int], calls: int, in_flight: int) -> None:
    """Print what a call costs with so many separate models."""
    for n in numbers:
        with tempfile.TemporaryDirectory() as name:
            # equally good ones, or a study might end before all calls are made
            path = write_study(Path(name), 0.0, rule, n, PAIRS // n, spread=0.0)
            cost = asyncio.run(study(path, calls, in_flight))
        print(f"  {n:5} models  {cost.cpu_ms:.3f} ms CPU/call")


def main() -> None:
    """Print both sides and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--rule", default="auto")
    parser.add_argument("--models", type=int, nargs="+", help="numbers of models to compare")
    options = parser.parse_args()
    if options.models:
        compare_models(options.rule, options.models, options.calls, options.in_flight)
        return
    print(f"{options.calls} calls, {options.in_flight} in flight, {CANDIDATES} candidates")
    for latency in (0.0, 0.05):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = write_study(folder, latency, options.rule)
            alone = asyncio.run(bare(folder, latency, options.calls, options.in_flight))
            whole = asyncio.run(study(path, options.calls, options.in_flight))
        print(f"latency {1000 * latency:g} ms")
        for label, cost in (("bare loop", alone), ("study", whole)):
            print(
                f"  {label:9} {cost.calls_per_second:8.0f} calls/s  {cost.cpu_ms:.3f} ms CPU/call"
            )
        print(f"  overhead  {whole.cpu_ms - alone.cpu_ms:.3f} ms CPU/call")


if __name__ == "__main__":
    main()
