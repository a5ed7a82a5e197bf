"""A long run that is killed again and again: does it stay small, and do its amounts stay exact?

    python -m benchmarks.engine.soak [--pairs 1000000] [--kills 5] [--rule uniform]
    python -m benchmarks.engine.soak --every 60 [--minutes 25] [--rule uniform]

Candidates answer at once in this process. The run is ended by SIGKILL at equal shares of its pairs,
or every so many seconds of processor time until it has its pairs (or the minutes are over), and
resumed, each time in a new process. In the end every pair must have
been told once, the calls must be those of the pairs and of what was in flight when a process died,
and what the sessions reserved must have been settled or given back. Prints sizes, seconds and the
peak of every process, and what it costs to read the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from zlib import crc32

from benchmarks.engine.overhead import Meter

from bestarm_agent import Budget, Study
from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.setup.options import STORE_FILE, Options
from bestarm_agent.providers.base import Capabilities, Provider, ProviderOptions
from bestarm_agent.store.export import export_scores
from bestarm_agent.study import Archive

N_CANDIDATES = 200
MODELS = 20  # with as many prompts as it takes
IN_FLIGHT = 200
_POLL = 0.5  # seconds between two looks at how far the run has come


class Instant(Provider):
    """Answers at once, with a score that depends on the pair."""

    def capabilities(self, model: str) -> Capabilities:
        """Return that many calls may be in flight, for nothing."""
        return Capabilities(frozenset(), price_source="free", in_flight=IN_FLIGHT, by_example=True)

    async def generate(self, request: Request) -> Reply:
        """Return a fixed score of the pair."""
        i, j = crc32(request.candidate.encode()), int(request.example[1:])
        score = float((i * 7919 + j * 104729) % 1000 < 500 + i % 100)
        return Reply("46", usage=Usage(input=40, output=2), score=score)


def write_study(folder: Path, n_candidates: int, n_examples: int, rule: str) -> Path:
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


def log_size(store: Path, pairs: int) -> dict[str, float]:
    """Return the bytes per pair of events and replies, and of the whole file."""
    with closing(sqlite3.connect(store)) as connection, connection:
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


async def read(store: Path) -> None:
    """Print what `show`, `report` and `export` of the stored run cost."""
    with Meter() as meter:
        record = await Archive(store).record("latest")
    print(f"show: {record.standing.told:,} pairs, {meter.cpu:.2f} s CPU")
    with Meter() as meter:
        await Archive(store).write_report("latest", store.with_suffix(".html"))
    print(f"report: {meter.cpu:.2f} s CPU")
    with Meter() as meter:
        export_scores(await Archive(store).state("latest"), store.with_suffix(".csv"))
    print(f"export: {meter.cpu:.2f} s CPU", flush=True)


def line(title: str, found: Mapping[str, float]) -> None:
    """Print one line of figures."""
    print(f"{title:18}", *(f"{name} {value:,.4g}  " for name, value in found.items()), flush=True)


async def work(path: Path, pairs: int) -> None:
    """Begin or resume the run, until that many pairs were asked."""
    store = path.parent / "runs" / STORE_FILE
    began = time.monotonic()
    provider = Instant("instant", ProviderOptions(), path.parent)
    options = Options(providers={"instant": provider}, store=store)
    opened = Study.resume(options=options) if store.exists() else Study.open(path, options=options)
    async with opened as study:
        print(json.dumps({"opened after s": time.monotonic() - began}), flush=True)
        left = pairs - study.standing().asked
        if left > 0:
            await study.run(Budget(answers=left))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"peak MB": peak}), flush=True)


def told(store: Path) -> int:
    """Return how many pairs the store holds an outcome of."""
    if not store.exists():
        return 0
    runs = asyncio.run(Archive(store).runs())
    return runs[-1].n_told if runs else 0


def peak_of(pid: int) -> float:
    """Return the most memory that a live process has held, in MB; 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0.0
    lines = [one.split() for one in status.splitlines() if one.startswith("VmHWM:")]
    return int(lines[0][1]) / 1024 if lines else 0.0


def cpu_of(pid: int) -> float:
    """Return the processor seconds that a live process has used; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def session(
    path: Path, pairs: int, *, kill_at: float = math.inf, kill_after: float = math.inf
) -> dict[str, float]:
    """Run one process; kill it once so many pairs are told, or processor seconds used."""
    store, began, peak = path.parent / "runs" / STORE_FILE, time.monotonic(), 0.0
    command = [sys.executable, "-m", "benchmarks.engine.soak", "--work", str(path), str(pairs)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while child.poll() is None:
        time.sleep(_POLL)
        peak = max(peak, peak_of(child.pid))
        is_due = kill_at < math.inf and told(store) >= kill_at
        if is_due or cpu_of(child.pid) >= kill_after:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    assert child.stdout is not None
    said: dict[str, float] = {"told": told(store)}
    for found in child.stdout:
        said |= json.loads(found)
    assert child.returncode in (0, -signal.SIGKILL), "the run ended with an error"
    seconds, peak = time.monotonic() - began, max(peak, said.get("peak MB", 0.0))
    return {**said, "s": seconds, "peak MB": peak, "killed": float(child.returncode != 0)}


def check_amounts(store: Path, pairs: int, kills: int) -> dict[str, float]:
    """Check the log of the whole run against itself."""
    state = asyncio.run(Archive(store).state("latest"))
    n = state.n_told  # a pull that was charged for a killed process counts against the budget
    assert n == state.n_asked
    assert pairs - kills * 2 * IN_FLIGHT <= n <= pairs
    assert not state.pending
    assert sum(one.calls for one in state.spends()) == state.spend.calls
    charged = state.spend.calls - n
    assert 0 <= charged <= kills * 2 * IN_FLIGHT, f"{charged} calls too many"
    return {"pairs": n, "calls charged for kills": charged}


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every", type=float, help="processor seconds between two kills")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--rule", default="uniform")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(Path(options.work[0]), int(options.work[1])))
        return
    pairs, kills = options.pairs, options.kills
    with tempfile.TemporaryDirectory() as name:
        path = write_study(Path(name), N_CANDIDATES, -(-2 * pairs // N_CANDIDATES), options.rule)
        store = path.parent / "runs" / STORE_FILE
        if options.every:
            kills, ends = 0, time.monotonic() + 60 * options.minutes
            while told(store) < pairs and time.monotonic() < ends:
                found = session(path, pairs, kill_after=options.every)
                kills += bool(found["killed"])
                line(f"process {kills}", found)
            pairs = min(pairs, told(store) + 20 * IN_FLIGHT)
        else:
            for k in range(1, kills + 1):
                line(f"process {k}", session(path, pairs, kill_at=pairs * k // (kills + 1)))
        line("the last process", session(path, pairs))
        line("log", log_size(store, pairs))
        asyncio.run(read(store))
        line("amounts exact", check_amounts(store, pairs, kills))


if __name__ == "__main__":
    main()
