"""`kill -9` of a study over two API servers and a local model, with a budget in dollars."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.events import Event, Told
from bestarm_agent.engine.setup.parts import STORE_FILE
from bestarm_agent.store.run_state import fold
from tests.engine.test_kill_and_resume import has_told, read, told_so_far
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, write_api_study
from tests.support.fake_api import Call, quality
from tests.support.fake_api.calls import tokens_of
from tests.support.fake_api.server import PATHS
from tests.support.processes import kill_once

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("transformers", "torch")),
    reason="the local model needs the extra hf",
)

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "arithmetic" / "models" / "sum-llama-60k"
N_EXAMPLES = 24
PAIRS = N_EXAMPLES * (len(OPENAI_MODELS) + len(ANTHROPIC_MODELS) + 1)
KILLED_AT = (60,)
BUDGET_NANOS = 20_000_000
INPUT_NANOS, OUTPUT_NANOS = 1_000, 5_000  # a token's price in write_api_study


@dataclass
class Server:
    """A server process, as the test sees it."""

    url: str
    shares: dict[str, float]
    paid: set[str] = field(default_factory=set)
    """Bodies that a stored reply answers."""
    before: int = 0
    """Requests received until the latest kill."""

    def received(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/fake/received") as response:
            rows: list[dict[str, Any]] = json.load(response)
        return rows

    def cost(self) -> int:
        """Nano-dollars of all good answers."""
        answer = quality(self.shares, seed=0)
        total = 0
        for row in self.received():
            if row["status"] == 200 and row["fault"] is None:
                call = Call(PATHS[row["path"]], row["body"])
                said = answer(call)
                assert isinstance(said, str)
                total += call.prompt_tokens * INPUT_NANOS + tokens_of(said) * OUTPUT_NANOS
        return total


@contextmanager
def serving(shares: dict[str, float], key: str, *more: str) -> Iterator[Server]:
    models = [f"{name}={share}" for name, share in shares.items()]
    options = ["--key", key, "--latency-ms", "20", "--jitter-ms", "20"]
    # none that makes everybody wait, which would take seconds
    options += ["--storm", "0.1", "--faults", "409", "dropped-mid-body", "malformed-json"]
    command = [sys.executable, "-m", "tests.support.fake_api", *models, *options, *more]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Server(process.stdout.readline().strip(), shares)
        process.terminate()


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
    program = "from bestarm_agent.cli.main import main; main()"
    command = [sys.executable, "-c", program, *map(str, arguments), "--quiet"]
    environ = {**os.environ, **KEYS}
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def note_what_is_paid(store: Path, servers: Sequence[Server]) -> None:
    """Note which bodies stored replies answer, and how many requests came so far."""
    _, replies = read(store)
    for server in servers:
        rows = server.received()
        numbers = [
            int(reply.request_id.removeprefix("req_"))
            for reply in replies
            if reply.request_id is not None and reply.model in server.shares
        ]
        server.paid = {json.dumps(rows[number]["body"]) for number in numbers}
        server.before = len(rows)


def assert_nothing_is_bought_again(servers: Sequence[Server]) -> None:
    for server in servers:
        later = {json.dumps(row["body"]) for row in server.received()[server.before :]}
        assert server.paid.isdisjoint(later), "a stored reply was bought again"


def kill_and_resume(folder: Path, servers: Sequence[Server]) -> Path:
    """Run the study, killing it on the way; return its store."""
    shutil.copytree(MODEL, folder / "tiny")
    openai, anthropic = servers
    changes = {
        "models": [
            *(f"openai/{name}" for name in OPENAI_MODELS),
            *(f"anthropic/{name}" for name in ANTHROPIC_MODELS),
            "hf/tiny",
        ],
        "prompts": [{"plain": "{{ a }}+{{ b }}="}],
        "budget": {"usd": BUDGET_NANOS / 1e9},
        "limits": {"in_flight": 8, "max_attempts": 8},
    }
    path = write_api_study(
        folder, f"{openai.url}/v1", anthropic.url, n_examples=N_EXAMPLES, changes=changes
    )
    store = folder / "runs" / STORE_FILE
    arguments: list[str | Path] = ["select", "--candidates", path]
    for told in KILLED_AT:
        process = start(folder, *arguments)
        kill_once(process, partial(has_told, store, told))
        assert process.returncode == -signal.SIGKILL, "it was killed on its way"
        assert_nothing_is_bought_again(servers)
        note_what_is_paid(store, servers)
        arguments = ["resume", "--store", store]
    last = start(folder, *arguments)
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    assert_nothing_is_bought_again(servers)
    return store


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_kill_loses_nothing_and_overspends_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        keys = KEYS.values()
        shares = (OPENAI_MODELS, ANTHROPIC_MODELS)
        servers = [
            stack.enter_context(serving(dict(models), key))
            for models, key in zip(shares, keys, strict=True)
        ]
        store = kill_and_resume(tmp_path, servers)
        requests = sum(len(server.received()) for server in servers)
        cost = sum(server.cost() for server in servers)
    events, _ = read(store)
    assert told_so_far(store) == PAIRS
    assert_told_once(events)
    state = fold(events)
    assert cost <= state.spend.usd_nanos <= BUDGET_NANOS, "more is booked than was bought"
    assert state.spend.calls >= requests + N_EXAMPLES, "every request is booked"
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert not any(key.encode() in path.read_bytes() for key in KEYS.values()), path


def assert_told_once(events: Sequence[Event]) -> None:
    tells = Counter(event.seq for event in events if isinstance(event, Told))
    assert sorted(tells) == list(range(PAIRS)), "every pair is told"
    assert set(tells.values()) == {1}, "and told once"
