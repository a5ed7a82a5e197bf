"""A storm: two processes over one store, faulty servers, kills; and what must hold at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from urllib.parse import quote

from bestarm_agent.domain.events import Event, Told
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Outcome
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import Store
from tests.support.api_studies import (
    ANTHROPIC_MODELS,
    OPENAI_MODELS,
    FastClock,
    write_api_study,
)
from tests.support.fake_api import Call, FakeApi, Fault, Said, in_thread, quality, storm
from tests.support.fake_api.faults import PASSING
from tests.support.fake_api.server import Received
from tests.support.judge_answers import mark_in
from tests.support.processes import OUTPUT, start_command

KEYS = {
    "OPENAI_API_KEY": "sk-storm/5d81c2+Zk7QwLmEb90xT4==",
    "ANTHROPIC_API_KEY": "sk-gale/77ab0e+Rv3HyNpUc18sK6==",
}
SHARES = {**OPENAI_MODELS, **ANTHROPIC_MODELS}
NAMES = ("one", "two")
_JUDGE = "grader"
_GOOD = (None, Fault.NO_USAGE, Fault.LYING_HEADERS)  # a status of 200 with these is an answer
_STEP_SECONDS = 0.05  # between looks at the servers, and between the two Ctrl-C
_ATTEMPTS = 8  # at a call
_TIMEOUT_SECONDS = 1200  # of the fast clock: one that passes on a busy machine is no fault
_SLACK_SECONDS = 0.5  # that a busy server may take to see a request that was sent
_SPEED = 10  # of the clock: what would wait for a minute waits for 6 seconds


@dataclass(frozen=True)
class Storm:
    """What is done to the runs.

    Attributes:
        n_examples: rows of the dataset; each run asks six models about each, and a judge.
        kills: processes that are ended early, by SIGKILL and by a double Ctrl-C in turn.
        share: of the attempts that meet a fault.
        in_flight: calls in flight in each process.
        seed: of the faults.
        refuses: whether rate limits are among the faults.
    """

    n_examples: int
    kills: int
    share: float = 0.25
    in_flight: int = 32
    seed: int = 3
    refuses: bool = True

    @property
    def pairs(self) -> int:
        """Number of pairs of each run."""
        return self.n_examples * len(SHARES)

    @property
    def cap(self) -> int:
        """Cap on the calls of each run."""
        return 8 * self.pairs


@dataclass
class Aftermath:
    """What a storm left behind."""

    storm: Storm
    folder: Path
    seconds: float
    received: list[Received]
    killed_at: list[float]
    events: list[Sequence[Event]] = field(default_factory=list)

    def faults(self) -> Counter[str]:
        """Count the faults by kind."""
        return Counter(str(one.fault) for one in self.received if one.fault is not None)

    def recorded(self) -> list[Spend]:
        """Return what each run recorded as its spend."""
        states = [fold(events) for events in self.events]
        return [state.spend + state.pending_spend for state in states]

    def untold(self) -> int:
        """Count the pairs that were not told exactly once."""
        tells = [Counter(e.seq for e in events if isinstance(e, Told)) for events in self.events]
        return sum(told[seq] != 1 for told in tells for seq in range(self.storm.pairs))

    def not_scored(self) -> list[Outcome]:
        """Return what became of the pairs without a score."""
        told = [event for events in self.events for event in events if isinstance(event, Told)]
        return [event.outcome for event in told if event.outcome.failure]

    def given_up(self) -> list[Outcome]:
        """Return the pairs that were given up before all attempts at a call were made."""
        return [failed for failed in self.not_scored() if failed.spend.calls < _ATTEMPTS]

    def bought_again(self) -> list[float]:
        """Return how long before a kill each reply was answered that was bought again later.

        Infinite where no process was ended between the two purchases.
        """
        answered: dict[str, list[Received]] = {}
        for one in self.received:
            if one.status == 200 and one.fault in _GOOD and one.done_at is not None:
                answered.setdefault(json.dumps(one.body, sort_keys=True), []).append(one)
        return [
            self._before_kill(first, second)
            for same in answered.values()
            for first, second in pairwise(same)
        ]

    def _before_kill(self, first: Received, second: Received) -> float:
        assert first.done_at is not None
        earliest = first.at - _SLACK_SECONDS
        kills = (at for at in self.killed_at if earliest <= at <= second.at)
        return next((max(0.0, at - first.done_at) for at in kills), float("inf"))

    def leaks(self) -> list[str]:
        """List the files that hold a key, plain or encoded."""
        texts = {text for key in KEYS.values() for text in forms(key)}
        files = {path.name: path for path in self.folder.rglob("*") if path.is_file()}
        contents = {name: path.read_bytes() for name, path in files.items()}
        return sorted(
            f"{name}: {text!r}"
            for name, content in contents.items()
            for text in texts
            if text in content
        )

    def broken_promises(self) -> list[str]:
        """Say what does not hold; nothing if all is well."""
        calls = sum(spend.calls for spend in self.recorded())
        again = self.bought_again()
        checks = {
            f"{len(self.received)} requests, {calls} recorded": len(self.received) <= calls,
            f"a run passed its cap: {self.recorded()}": all(
                spend.calls <= self.storm.cap for spend in self.recorded()
            ),
            f"{self.untold()} pairs not told exactly once": not self.untold(),
            f"pairs given up early: {self.given_up()}": not self.given_up(),
            f"{again.count(float('inf'))} replies bought twice without a kill": float("inf")
            not in again,
            f"keys in files: {self.leaks()}": not self.leaks(),
        }
        return [said for said, holds in checks.items() if not holds]


def forms(key: str) -> Iterator[bytes]:
    """Yield a key, the inner part of its base64 at each alignment, and its URL encoding."""
    yield key.encode()
    for shift in range(3):
        encoded = b64encode(bytes(shift) + key.encode()).rstrip(b"=")
        yield encoded[4 * (shift > 0) : -4]
    yield quote(key, safe="").encode()


def weather(of: Storm, folder: Path) -> Aftermath:
    """Run two processes through a storm until both have finished; return what they left.

    Requires the folder to be empty.
    """
    # with no refusals as many attempts fail in each of the other ways
    faults = [one for one in PASSING if of.refuses or not one.startswith("429")]
    share = of.share * len(faults) / len(PASSING)
    servers = [
        FakeApi(
            answer=_answers,
            script=storm(share, faults, seed=of.seed),
            key=key,
            request_id=partial("req_{1}_{0}".format, key[-12:]),  # stands in errors, too
            more_headers={"x-echo": key, "x-echo-2": b64encode(key.encode()).decode()},
        )
        for key in KEYS.values()
    ]
    began = time.monotonic()
    with in_thread(servers[0]), in_thread(servers[1]):
        runners = [_Runner(name, of, folder, servers) for name in NAMES]
        killed_at = _kill(of, runners, servers)
        for runner in runners:
            runner.finish()
    received = sorted((r for server in servers for r in server.received), key=lambda r: r.at)
    after = Aftermath(of, folder, time.monotonic() - began, received, killed_at)
    after.events = asyncio.run(_events(folder / "store.sqlite"))
    return after


def _kill(of: Storm, runners: Sequence[_Runner], servers: Sequence[FakeApi]) -> list[float]:
    """End running processes at even distances in requests; return when."""
    killed_at: list[float] = []
    step = 1.2 * of.pairs / (of.kills + 1)
    for number in range(of.kills):
        while sum(len(server.received) for server in servers) < (number + 1) * step and any(
            runner.is_running for runner in runners
        ):
            time.sleep(_STEP_SECONDS)
        runner = runners[number % 2]
        if runner.is_running:
            killed_at.append(runner.end(gently=number % 4 >= 2))
            runner.start()
    return killed_at


class _Runner:
    """Starts one run's process, again and again.

    Args:
        name: of the run.
        of: the storm.
        folder: of the study, the store and the output.
        servers: of OpenAI's protocol and of Anthropic's.
    """

    def __init__(self, name: str, of: Storm, folder: Path, servers: Sequence[FakeApi]) -> None:
        self._name = name
        self._folder = folder / name
        self._store = folder / "store.sqlite"
        one, other = servers
        changes = {
            "name": name,
            "dataset": {"path": "questions.jsonl"},
            "scorer": {
                "name": "rubric",
                "model": f"openai/{_JUDGE}",
                "rubric": "Is the sum right?",
                "model_options": {"price": {"input": 1, "output": 5}},
            },
            "limits": {
                "in_flight": of.in_flight,
                "max_attempts": _ATTEMPTS,
                "timeout_seconds": _TIMEOUT_SECONDS,
            },
            "budget": {"calls": of.cap},
            "selector": {
                "name": "ucb-e",
                "stop_when_separated": False,
                "seed": NAMES.index(name),
            },
        }
        self._study = write_api_study(
            self._folder, one.openai_url, other.url, n_examples=of.n_examples, changes=changes
        )
        rows = [
            {"id": f"e{i}", "a": 17 + i, "b": 5 + 3 * i, "question": f"{17 + i}+{5 + 3 * i}"}
            for i in range(of.n_examples)
        ]
        (self._folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        self._process = self._started("select", "--candidates", str(self._study))

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process.is_alive()

    def start(self) -> None:
        """Go on with the run, or begin it if it had not begun."""
        run = asyncio.run(_run_id(self._store, self._name)) if self._store.exists() else None
        begin = ("select", "--candidates", str(self._study))
        self._process = self._started(*(begin if run is None else ("resume", run)))

    def end(self, *, gently: bool) -> float:
        """End the process by SIGKILL, or by two Ctrl-C; return when."""
        assert self._process.pid is not None
        at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            if gently:
                os.kill(self._process.pid, signal.SIGINT)
                time.sleep(_STEP_SECONDS)
            at = time.monotonic()
            os.kill(self._process.pid, signal.SIGINT if gently else signal.SIGKILL)
        self._process.join()
        return at

    def finish(self) -> None:
        """Let the run come to its end; write its report and an export.

        Raises:
            AssertionError: it did not.
        """
        self._process.join()
        code = self._process.exitcode
        run = asyncio.run(_run_id(self._store, self._name))
        said = (self._folder / OUTPUT).read_text()[-2000:]
        assert code == 0, f"run {self._name} ended with {code}: {said}"
        assert run is not None
        for command in (
            ["report", run, "--out", str(self._folder / "report.html")],
            ["export", run, "--out", str(self._folder / "scores.csv")],
        ):
            process = self._started(*command)
            process.join()
            assert process.exitcode == 0, command

    def _started(self, *arguments: str) -> BaseProcess:
        command = [*arguments, "--store", str(self._store)]
        return start_command(self._folder, command, KEYS, let_clocks_run_fast)


def let_clocks_run_fast() -> None:
    """Let the clocks of this process run fast."""
    clock, as_it_was = FastClock(_SPEED), Clock.sleep

    async def sleep(own: Clock, seconds: float, unless: asyncio.Event | None = None) -> None:
        await as_it_was(own, seconds / _SPEED, unless)

    Clock.now = lambda _: clock.now()  # type: ignore[method-assign, assignment]
    Clock.sleep = sleep  # type: ignore[method-assign, assignment]


async def _run_id(store: Path, name: str) -> str | None:
    async with await Store.connect(store) as opened:
        return next((run.id for run in await opened.runs() if run.name == name), None)


async def _events(store: Path) -> list[Sequence[Event]]:
    async with await Store.connect(store, create=False) as opened:
        runs = {run.name: run.id for run in await opened.runs()}
        return [await opened.events_of(runs[name]) for name in NAMES]


_of_candidates = quality(SHARES)


def _answers(call: Call) -> Said | str:
    """Add numbers, or grade a sum; the grader repeats its key in every form."""
    if call.model != _JUDGE:
        return _of_candidates(call)
    key = KEYS["OPENAI_API_KEY"]
    encoded = (b64encode(bytes(shift) + key.encode()).decode() for shift in range(3))
    said = " ".join((key, *encoded, quote(key, safe="")))
    verdict = {"mark": mark_in(call.prompt), "verdict": _verdict(call.prompt)}
    return json.dumps({**verdict, "explanation": said})


def _verdict(prompt: str) -> int:
    a, b = map(int, re.findall(r"(\d+)\s*\+\s*(\d+)", prompt)[-1])
    return 9 if re.search(rf"\b{a + b}\b", prompt) else 2
