"""What large studies cost: opening, a pull, the log, reading a stored run.

    python -m benchmarks.engine.large_studies [--pulls 2000] [--pairs 100000]

Candidates answer at once in this process, so all that is measured is ours. Each line comes from a
process of its own, which also tells its peak memory. CPU seconds count all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from zlib import crc32

from benchmarks.engine.overhead import Meter

from bestarm_agent import Budget, Study
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Usage
from bestarm_agent.engine.setup.open_run import STORE_FILE, Options
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.base_provider import BaseProvider, ProviderOptions
from bestarm_agent.runs import Archive
from bestarm_agent.store.export import export_scores

SIZES = ((60, 500), (200, 100_000), (1_000, 500), (4_000, 500))
MODELS = 20  # with as many prompts as it takes
IN_FLIGHT = 200


class Instant(BaseProvider):
    """Answers at once, with a score that depends on the pair."""

    def capabilities(self, model: str) -> Capabilities:
        """Return that many calls may be in flight, for nothing."""
        return Capabilities(frozenset(), in_flight=IN_FLIGHT, by_example=True)

    async def generate(self, request: Request) -> Reply:
        """Return a fixed score of the pair."""
        i, j = crc32(request.candidate.encode()), int(request.example[1:])
        score = float((i * 7919 + j * 104729) % 1000 < 500 + i % 100)
        return Reply("46", usage=Usage(input=40, output=2), score=score)


def write_study(folder: Path, n_candidates: int, n_examples: int, rule: str = "auto") -> Path:
    """Write a study; return the path of its file."""
    with (folder / "questions.jsonl").open("w") as file:
        for j in range(n_examples):
            file.write(json.dumps({"id": f"e{j}", "question": f"What is {j} + {j % 97}?"}) + "\n")
    study = {
        "name": "large",
        "models": [f"instant/m{i}" for i in range(MODELS)],
        "prompts": [{f"p{i}": f"{i} {{{{ question }}}}"} for i in range(n_candidates // MODELS)],
        "dataset": "questions.jsonl",
        "scorer": "recorded",
        "selector": {"name": rule, "stop_when_separated": False},
        "limits": {"in_flight": IN_FLIGHT},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def peak_mb() -> float:
    """Most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def run(path: Path, pulls: int) -> dict[str, float]:
    """Open a study, make one pull, then more; return what they cost."""
    provider = Instant("instant", ProviderOptions(), path.parent)
    async with AsyncExitStack() as stack:
        with Meter() as opening:
            options = Options(providers={"instant": provider})
            study = await stack.enter_async_context(Study.open(path, options=options))
        with Meter() as first:
            await study.run(Budget(pulls=1))
        with Meter() as more:
            standing = await study.run(Budget(pulls=pulls))
        with Meter() as display:
            study.standing()
    n_told = standing.told - 1
    return {
        "open CPU s": opening.cpu,
        "first pull CPU s": first.cpu,
        "ms CPU/pull": 1000 * more.cpu / n_told,
        "calls/s": n_told / more.wall,
        "standing ms": 1000 * display.cpu,
        "peak MB": peak_mb(),
    }


async def bare(pulls: int) -> dict[str, float]:
    """Await the provider alone, as often."""
    provider = Instant("instant", ProviderOptions(), Path())
    with Meter() as meter:
        for k in range(pulls):
            await provider.generate(Request(f"m{k % 60}", text="q", example=f"e{k // 60}"))
    return {"ms CPU/pull": 1000 * meter.cpu / pulls, "calls/s": pulls / meter.wall}


def log_size(store: Path, pairs: int) -> dict[str, float]:
    """Return the bytes per pair of events and replies, and of the whole file."""
    with sqlite3.connect(store) as connection:
        events, replies = (
            connection.execute(f"select sum(length(payload)) from {table}").fetchone()[0]
            for table in ("events", "replies")
        )
    connection.close()
    whole = store.stat().st_size
    return {
        "log B/pair": events / pairs,
        "reply B/pair": replies / pairs,
        "file B/pair": whole / pairs,
    }


async def show(store: Path) -> dict[str, float]:
    """Read a stored run as ``show`` does."""
    with Meter() as meter:
        record = await Archive(store).record("latest")
    return {"pairs": record.standing.told, "show CPU s": meter.cpu, "peak MB": peak_mb()}


async def report(store: Path) -> dict[str, float]:
    """Write a stored run's report."""
    with Meter() as meter:
        path = await Archive(store).write_report("latest", store.with_suffix(".html"))
    size = path.stat().st_size / 1e6
    return {"report CPU s": meter.cpu, "peak MB": peak_mb(), "MB": size}


async def export(store: Path) -> dict[str, float]:
    """Export a stored run's scores as CSV."""
    with Meter() as meter:
        export_scores(await Archive(store).state("latest"), store.with_suffix(".csv"))
    return {"export CPU s": meter.cpu, "peak MB": peak_mb()}


def line(title: str, found: Mapping[str, float]) -> None:
    """Print one line of figures."""
    print(f"{title:18}", *(f"{name} {value:,.4g}  " for name, value in found.items()), flush=True)


def measured(*arguments: str) -> dict[str, float]:
    """Measure in a new process."""
    command = [sys.executable, "-m", "benchmarks.engine.large_studies", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pulls", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        name, *rest = options.part
        print(json.dumps(part(name, rest)))
        return
    line("provider alone", asyncio.run(bare(options.pulls)))
    for k, n in SIZES:
        with tempfile.TemporaryDirectory() as name:
            path = write_study(Path(name), k, n)
            line(f"{k:,} x {n:,}", measured("--part", "run", str(path), str(options.pulls)))
    with tempfile.TemporaryDirectory() as name:
        path = write_study(Path(name), 200, -(-2 * options.pairs // 200))
        line("stored", measured("--part", "run", str(path), str(options.pairs)))
        store = path.parent / "runs" / STORE_FILE
        line("", log_size(store, options.pairs))
        for name in PARTS:
            line("", measured("--part", name, str(store)))


PARTS = {"show": show, "report": report, "export": export}


def part(name: str, arguments: list[str]) -> dict[str, float]:
    """Measure one part, in this process."""
    if name == "run":
        return asyncio.run(run(Path(arguments[0]), int(arguments[1])))
    return asyncio.run(PARTS[name](Path(arguments[0])))


if __name__ == "__main__":
    main()
