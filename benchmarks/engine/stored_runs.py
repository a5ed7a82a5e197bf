"""What reading a stored run costs: CPU seconds beyond imports, and peak memory, of each command.

    python -m benchmarks.engine.stored_runs --answers 100000 --answers 1000000

A run of 400 candidates, separate models or (`--grid`) 20 models with 20 prompts, is written by the
store itself, a log with its columns as a study writes it. Each command then reads it in a process
of its own, at last `show` without the columns. What the same command takes for a run of 400 answers
is subtracted: imports, and the opening of the store. `first page` is what `view` works out before
its page of a run shows anything. `resume` goes on with the run of a study whose budget is spent: it
prepares the study, and makes no call. Writing the columns is measured by itself, of all that an
answer takes.

    python -m benchmarks.engine.stored_runs --standings

prints what a standing of 4,000 and of 64,000 candidates takes, in a run of `auto` that goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from benchmarks.engine.api_throughput import MODELS, PRICE, server
from benchmarks.report import markdown, say

from bestarm_agent import Budget, Study
from bestarm_agent.config.goal_specs import SelectorSpec
from bestarm_agent.domain.events import (
    Asked,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Resumed,
    Started,
    Stopped,
    Told,
)
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Candidate, Json, Outcome, PromptTemplate, Score
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.selectors.types import Ask
from bestarm_agent.store.chunks import CHUNK, LogColumns
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import RunLog, Store

K = 400
FIRST_PAGE = """
import asyncio, sys
from bestarm_agent.store.store import Store
from bestarm_agent.view import server
from bestarm_agent.view.followed_run import FollowedRun

async def first_page(path):
    async with await Store.connect(path) as store:
        run = FollowedRun(store, path, (await store.find("latest")).id)
        async with run.refreshed():
            await run.standing()

asyncio.run(first_page(sys.argv[1]))
"""
AT = "2026-11-28T09:30:15.250000Z"
MOST_MB = 300
MOST_SECONDS = {100_000: 2.0, 1_000_000: 10.0}  # by the number of answers
STANDINGS = {4000: (20_000, 50), 64_000: (4000, 1000)}  # by candidates: answers, most ms of CPU
COMMANDS = (
    ["show"],
    ["first page"],
    ["answers"],
    ["report", "--out", "r.html"],
    ["export", "--out", "e.csv"],
    ["show"],
)
MOST_MICROSECONDS = 15  # that the columns of an answer take the run itself: of a call, about 1.5 %


async def write_run(path: Path, rule: str, n_answers: int, n_examples: int, n_prompts: int) -> None:
    """Store a run in which the candidates are asked in turn, each on the same examples."""
    prompts = [PromptTemplate(f"p{i}", text=f"{i}: {{{{ question }}}}=") for i in range(n_prompts)]
    candidates = tuple(
        Candidate("hf", f"model-{i // n_prompts}", prompts[i % n_prompts], {}, f"candidate {i}")
        for i in range(K)
    )
    examples = [f"example-{j}" for j in range(n_examples)]
    config: dict[str, Json] = {"selector": {"name": rule, "seed": 0}, "scorer": "exact_match"}
    begun: list[Event] = [
        Started("stored", AT, "0.1.0", config, ".."),
        CandidatesAdded(candidates, (0.25,) * K, ("study",) * K),
        ExamplesAdded(tuple(examples), tuple(f"{j:016x}" for j in range(n_examples))),
    ]
    async with await Store.connect(path) as store, await store.create("stored") as log:
        pairs = [(seq % K, seq // K) for seq in range(n_answers)]
        await put(log, LogColumns(RunState()), [*begun, *answers(0, pairs)])


def answers(first: int, pairs: Iterable[tuple[int, int]]) -> Iterator[Event]:
    """Yield asks and outcomes of these pairs from a number on, and the end of the run."""
    rng, chances = np.random.default_rng(0), np.linspace(0.5, 0.8, K)
    for seq, (row, column) in enumerate(pairs, first):
        score = float(rng.random() < chances[row])
        outcome = Outcome(
            Score(score, "46"),
            spend=Spend(answers=1, calls=1, tokens=12, usd_nanos=1500),
            reply_key=f"key-{seq}",
            usage=Usage(input=9, output=3),
            seconds=0.25 + float(rng.random()),
            usd_nanos=1500,
        )
        yield Asked(seq, row, column, "fewest answers")
        yield Told(seq, outcome, score)
    yield Stopped(AT, "budget", 2.5)


async def put(log: RunLog, columns: LogColumns, events: Iterable[Event]) -> None:
    """Write events to a log, with its columns."""
    for n, event in enumerate(events):
        line = line_of(event)
        log.append(event, line)
        columns.take([line])
        if n % 2000 == 1999:
            await log.flush()
            await columns.write(log.store, log.run_id)
    await log.flush()


async def write_study(folder: Path, rule: str, n_answers: int, n_examples: int) -> Path:
    """Store the run of a study that can be resumed: its first answer is bought, others are put."""
    rows = [{"id": f"e{j}", "q": f"{j}+{j}", "answer": str(2 * j)} for j in range(n_examples)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with server(0) as url:
        config = {
            "models": [f"openai/{name}" for name in MODELS],
            "params": {"temperature": [k * len(MODELS) / K for k in range(K // len(MODELS))]},
            "prompts": [{"plain": "{{ q }}"}],
            "dataset": {"path": "sums.jsonl", "target": "answer"},
            "scorer": "numeric",
            "selector": {"name": rule, "seed": 0},
            "budget": {"answers": n_answers},
            "providers": {"openai": {"base_url": f"{url}/v1", "price": PRICE}},
        }
        (folder / "study.json").write_text(json.dumps(config))
        async with Study.open(folder / "study.json") as study:
            standing = await study.run(Budget(answers=1))
    path = folder / "runs" / "runs.sqlite"
    async with await Store.connect(path) as store, await store.open(standing.run_id) as log:
        columns = LogColumns(state := RunState())
        await columns.read(store, log.run_id, columns.take, lambda moves: None)
        bought = {tuple(pair) for pair in state.asks[["candidate", "example"]].tolist()}
        # Rules that compare candidates on one order of examples begin with the one that was bought.
        first = {place for _, place in bought}
        places = sorted(range(n_examples), key=lambda place: place not in first)
        turns = ((seq % K, places[seq // K]) for seq in range(n_answers + len(bought)))
        left = [pair for pair in turns if pair not in bought][: n_answers - len(bought)]
        await put(log, columns, [Resumed(AT, "0.1.0"), *answers(len(bought), left)])
    return path


def written(path: Path, rule: str, n_answers: int, n_examples: int, n_prompts: int) -> None:
    """Write a run, in a process of its own."""
    asyncio.run(write_run(path, rule, n_answers, n_examples, n_prompts))


def study_written(folder: Path, rule: str, n_answers: int, n_examples: int) -> Path:
    """Write a run of a study, in a process of its own."""
    return asyncio.run(write_study(folder, rule, n_answers, n_examples))


def cost_of(command: list[str], path: Path) -> tuple[float, float]:
    """Return the CPU seconds, user and system, and the peak MB of one command's process."""
    program = [sys.executable, "-m", "bestarm_agent", *command, "--store", str(path)]
    if command == ["first page"]:
        program = [sys.executable, "-c", FIRST_PAGE, str(path)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, cwd=path.parent) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measured(rule: str, n_answers: int, n_prompts: int) -> list[list[str]]:
    """Return a row of each command, for a run of so many answers."""
    n_examples = max(2500, 2 * n_answers // K)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        stored, small = Path(folder) / "runs.sqlite", Path(folder) / "small.sqlite"
        # Linux counts the memory of whoever starts a process as that process's, too.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
            for path, n in ((stored, n_answers), (small, K)):
                writer.submit(written, path, rule, n, n_examples, n_prompts).result()
        cost_of(["show"], small)  # compiles what was not compiled
        for place, command in enumerate(COMMANDS):
            base = min(cost_of(command, small)[0] for _ in range(2))
            if is_last := place == len(COMMANDS) - 1:
                with closing(sqlite3.connect(stored)) as connection, connection:
                    connection.execute("DELETE FROM states")
            seconds, megabytes = cost_of(command, stored)
            bar = None if is_last else MOST_SECONDS.get(n_answers)
            name = f"`{command[0]}`{', columns lost' * is_last}"
            within = bar is None or (seconds - base <= bar and megabytes <= MOST_MB)
            figures = f"{seconds - base:.1f} s", f"{megabytes:.0f} MB"
            rows.append([name, f"`{rule}`", f"{n_answers:,}", *figures, "yes" if within else "no"])
            say(json.dumps(rows[-1]))
        rows.append(resumed(Path(folder), rule, n_answers, n_examples))
        say(json.dumps(rows[-1]))
        per_answer = asyncio.run(cost_of_columns(stored))
        is_within = "yes" if per_answer <= MOST_MICROSECONDS else "no"
        rows.append(["columns, an answer", f"`{rule}`", "", f"{per_answer:.1f} us", "", is_within])
        say(json.dumps(rows[-1]))
    return rows


def resumed(folder: Path, rule: str, n_answers: int, n_examples: int) -> list[str]:
    """Return the row of `resume`, beyond what it takes for a run of 400 answers."""
    costs = []
    for name, n in (("short", K), ("long", n_answers)):
        (folder / name).mkdir()
        # in a process of its own, as its memory would count as that of what it starts
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
            path = writer.submit(study_written, folder / name, rule, n, n_examples).result()
        costs.append(cost_of(["resume", "--quiet"], path))
    (base, _), (seconds, megabytes) = costs
    bar = MOST_SECONDS.get(n_answers)
    within = bar is None or (seconds - base <= bar and megabytes <= MOST_MB)
    figures = f"{seconds - base:.1f} s", f"{megabytes:.0f} MB"
    return ["`resume`", f"`{rule}`", f"{n_answers:,}", *figures, "yes" if within else "no"]


def standings(k: int, n_answers: int, most_ms: float) -> list[str]:
    """Return the row of a run with k candidates and 200 examples, after so many answers."""
    record = RunRecord(Selection(SelectorSpec(name="auto")).pairs)
    prompt, ids = PromptTemplate("plain", text="{{ question }}="), tuple(map(str, range(200)))
    candidates = tuple(
        Candidate("hf", f"model-{i // 64}", prompt, {"temperature": i % 64 / 64}, f"candidate {i}")
        for i in range(k)
    )
    joined = CandidatesAdded(candidates, (0.25,) * k, ("study",) * k)
    begun = Started("stored", AT, "0.1.0", {}, ".."), joined, ExamplesAdded(ids, ids)
    record.take([line_of(event) for event in begun])
    rng = np.random.default_rng(1)
    chances, pending = 0.2 + 0.6 * rng.random(k), list[Ask]()
    for _ in range(n_answers):
        for ask in record.pairs.ask(16 - len(pending)):
            record.record(Asked(ask.seq, *ask.pair, ask.reason))
            pending.append(ask)
        ask = pending.pop(int(rng.integers(len(pending))))
        score = float(rng.random() < chances[ask.pair.candidate])
        outcome = Outcome(Score(score), spend=Spend(1, 1, 12, 1500), usd_nanos=1500)
        record.record(Told(ask.seq, outcome, score))

    def milliseconds(*, of_new: bool) -> float:
        began = time.process_time()
        build_standing(record.state, record.pairs, "run", of_new=of_new)
        return 1000 * (time.process_time() - began)

    frame, whole = (min(milliseconds(of_new=new) for _ in range(7)) for new in (False, True))
    within = "yes" if whole <= most_ms else "no"
    return [f"{k:,}", f"{n_answers:,}", f"{frame:.0f} ms", f"{whole:.0f} ms", within]


async def cost_of_columns(path: Path) -> float:
    """Return the CPU microseconds that its columns add to what a run does for an answer."""
    async with await Store.connect(path) as store:
        run_id = (await store.find("latest")).id
        pages = [page async for page in store.lines_of(run_id, until=2 * CHUNK)]
        lines = [line for page in pages for line in page]
        seconds = []
        for taker in (RunState(), LogColumns(RunState())):
            taker.take(lines[:CHUNK])  # of which no columns are stored
            start = time.process_time()
            for line in lines[CHUNK:]:
                taker.take([line])
            if isinstance(taker, LogColumns):
                await taker.write(store, "measured")
            seconds.append(time.process_time() - start)
    return (seconds[1] - seconds[0]) / (CHUNK / 2) * 1e6


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, action="append")
    parser.add_argument("--rule", default="uniform")
    parser.add_argument("--grid", action="store_true", help="20 models with 20 prompts")
    parser.add_argument("--standings", action="store_true", help="measure standings, in memory")
    given = parser.parse_args()
    if given.standings:
        headers = ["candidates", "answers", "a frame", "a standing", "within its bar"]
        print(markdown(headers, [standings(k, *size) for k, size in STANDINGS.items()]))
        return
    n_prompts = 20 if given.grid else 1
    rows = [row for n in given.answers or [100_000] for row in measured(given.rule, n, n_prompts)]
    headers = ["command", "rule", "answers", "CPU beyond imports", "peak memory", "within its bar"]
    print(markdown(headers, rows))


if __name__ == "__main__":
    main()
