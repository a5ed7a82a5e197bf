"""Cost of looking at a run: CPU time of a run at 200 calls a second, with and without `view`.

The viewer is another process, as `bestarm-agent view` is, with one page open on the run. Runs with
and without it alternate, each in a process of its own, so that a busy machine slows both. Calls are
replayed, each with a latency.

    python -m benchmarks.engine.view_cost [--runs 5] [--pairs 4000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
from contextlib import AsyncExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

import aiohttp
import numpy as np

from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.study import Study
from bestarm_agent.view.server import serve

_CANDIDATES, _EXAMPLES = 30, 1000
_LATENCY, _IN_FLIGHT = 0.1, 20  # 200 calls a second


def main() -> None:
    """Print the CPU seconds of each run, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=4000)
    args = parser.parse_args()
    seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        _write_world(Path(folder))
        for turn in range(2 * args.runs):
            seen = bool(turn % 2)
            seconds[seen].append(_one(Path(folder), f"{turn}.sqlite", args.pairs, seen=seen))
            cpu, wall = seconds[seen][-1]
            name = "with a viewer" if seen else "alone"
            print(f"{name:14} {cpu:6.2f} s CPU, {args.pairs / wall:5.0f} calls/s", flush=True)
    for part, name in enumerate(("CPU time", "wall-clock time")):
        alone, watched = (median(one[part] for one in seconds[key]) for key in (False, True))
        print(f"{name} with a viewer / alone: {watched / alone:.3f}")


def _write_world(folder: Path) -> None:
    rng = np.random.default_rng(0)
    chances = np.linspace(0.5, 0.8, _CANDIDATES)[:, None]
    scores = (rng.random((_CANDIDATES, _EXAMPLES)) < chances).astype(float)
    np.savez(folder / "scores.npz", scores=scores)
    examples = ({"id": str(j), "question": f"q{j}"} for j in range(_EXAMPLES))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, examples)))
    study = {
        "name": "view-cost",
        "models": [f"replay/{i}" for i in range(_CANDIDATES)],
        "prompts": [{"q": "{{ question }}"}],
        "dataset": "questions.jsonl",
        "scorer": "recorded",
        "providers": {"replay": {"path": "scores.npz", "latency_seconds": _LATENCY}},
        "limits": {"in_flight": _IN_FLIGHT},
        "selector": {"stop_when_separated": False},
    }
    (folder / "study.json").write_text(json.dumps(study))


def _one(folder: Path, store: str, pairs: int, *, seen: bool) -> tuple[float, float]:
    """Run once; return the run's CPU seconds and its wall-clock seconds."""
    context = multiprocessing.get_context("spawn")
    begun, ended = context.Event(), context.Event()
    results = context.Queue()
    run = context.Process(target=_run, args=(folder, store, pairs, begun, results))
    viewer = context.Process(target=_view, args=(folder / store, ended))
    run.start()
    begun.wait()
    if seen:
        viewer.start()
    found: tuple[float, float] = results.get()
    run.join()
    if seen:
        ended.set()
        viewer.join()
    return found


def _run(
    folder: Path,
    store: str,
    pairs: int,
    begun: Event,
    results: multiprocessing.Queue[tuple[float, float]],
) -> None:
    async def play() -> tuple[float, float]:
        async with Study.open(
            folder / "study.json", options=Options(store=folder / store)
        ) as study:
            begun.set()
            await asyncio.sleep(2)  # the viewer starts
            clock, before = asyncio.get_running_loop(), resource.getrusage(resource.RUSAGE_SELF)
            began = clock.time()
            await study.run(Budget(pulls=pairs))
            after = resource.getrusage(resource.RUSAGE_SELF)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return used, clock.time() - began

    results.put(asyncio.run(play()))


def _view(store: Path, ended: Event) -> None:
    async def look() -> None:
        async with AsyncExitStack() as stack:
            address = await stack.enter_async_context(serve([store]))
            session = await stack.enter_async_context(aiohttp.ClientSession(address))
            stream = await stack.enter_async_context(session.get("runs/0/latest/live"))
            reading = asyncio.create_task(_read(stream))
            await asyncio.to_thread(ended.wait)
            reading.cancel()

    asyncio.run(look())


async def _read(stream: aiohttp.ClientResponse) -> None:
    async for _ in stream.content.iter_any():
        continue


if __name__ == "__main__":
    main()
