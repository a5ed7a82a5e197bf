"""Python functions as candidates: loading, accounting, misbehaviour."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Finish, Json, Message, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError
from bestarm_agent.providers import python as python_module
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import BilledError
from bestarm_agent.providers.python import PythonProvider
from bestarm_agent.providers.replay import ReplayProvider
from bestarm_agent.providers.threads import DaemonThreads
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.virtual_time import run_virtual

PROGRAMS = """
import asyncio
import os
from types import SimpleNamespace
from bestarm_agent import CandidateError

def echo(task):
    return f"{task.prompt}|{task.inputs['n']}|{task.params.get('depth', 0)}"

async def slow(task):
    await asyncio.sleep(0.01 * task.inputs["n"])
    return {"text": echo(task), "usage": {"input": 3, "output": task.inputs["n"]}, "usd": "0.001"}

async def own_timeout(task):
    raise TimeoutError("inside")

async def chain(task):
    draft = await task.models.ask("tape/good", task.prompt)
    final = await task.models.ask("tape/best", [{"role": "user", "content": draft.text}])
    return final.text + "!"

def blocking_chain(task):
    return task.models.ask_blocking("tape/good", task.prompt)

async def endless(task):
    while True:
        await task.models.ask("tape/good", task.prompt)

async def careful(task):
    try:
        await endless(task)
    except CandidateError:
        return "had to stop"

async def leaves_calls(task):
    asyncio.create_task(task.models.ask("tape/slow", task.prompt))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return "done"

async def blocks_itself(task):
    return task.models.ask_blocking("tape/good", task.prompt)

async def undeclared(task):
    return await task.models.ask("tape/other", task.prompt)

async def heats(task):
    return await task.models.ask("tape/good", task.prompt, temperature=2)

async def fails_inside(task):
    return await task.models.ask("tape/busy", task.prompt)

def gives_up(task):
    raise CandidateError("no answer after 5 steps")

def refuses(task):
    return {"error": "refused", "message": "not that", "usd": 0.002, "usage": {"input": 7}}

def breaks(task):
    return 1 / 0

def leaks_a_variable(task):
    return {}[os.environ["MY_KEY"]]

def leaks_its_place(task):
    raise CandidateError(f"{__file__} with {os.environ['MY_KEY']}")

def leaks_a_key(task):
    raise PermissionError("401: sk-proj-11112222 is no key")

def reports_a_variable(task):
    return {"error": "refused", "message": f"not with {os.environ['MY_KEY']}"}

def exits(task):
    raise SystemExit(3)

def stops(task):
    raise StopIteration

def number(task):
    return 42

def nonsense(task):
    return {"text": "x", "tokens": 3}

def greedy(task):
    return {"text": "x", "usage": {"input": 900, "output": 200}}

def an_object(task):
    return SimpleNamespace(text="42", finish="length", usage=SimpleNamespace(input=1, output=2))

class Agent:
    async def __call__(self, task):
        return task.messages[-1].role

agent = Agent()
not_a_function = 3
"""

TAPE = [
    {"candidate": "good", "example": "e", "text": "draft", "input_tokens": 5, "usd": 0.001},
    {"candidate": "best", "example": "e", "text": "42", "output_tokens": 7, "usd": 0.01},
    {"candidate": "slow", "example": "e", "text": "late", "input_tokens": 9, "seconds": 500},
    {"candidate": "busy", "example": "e", "error": "overloaded", "retry_after": 3},
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "programs.py").write_text(PROGRAMS)
    return tmp_path


def ask(function: str, n: int = 1, **params: Json) -> Request:
    return Request(
        f"programs:{function}",
        text=f"prompt {n}",
        params=params,
        candidate="mine",
        example="e",
        inputs={"n": n},
    )


def build(base: Path, options: Mapping[str, Json] | None = None) -> PythonProvider:
    rows = "".join(json.dumps(row) + "\n" for row in TAPE)
    (base / "tape.jsonl").write_text(rows)
    provider = PythonProvider.create("python", options or {}, base)

    def lookup(name: str, model: str) -> Provider:
        return ReplayProvider.create(name, {"path": "tape.jsonl"}, base)

    provider.set_providers(lookup)
    return provider


CHAINED: Mapping[str, Json] = {
    "models": ["tape/good", "tape/best", "tape/slow", "tape/busy"],
    "max_calls": 3,
    "max_tokens": 1000,
    "usd_per_call": "0.05",
    "max_gpu_seconds": 0,
}


def answered(provider: PythonProvider, request: Request) -> Reply:
    async def main() -> Reply:
        async with provider:
            return await provider.generate(request)

    reply: Reply = run_virtual(main())
    return reply


def failed(provider: PythonProvider, request: Request) -> BilledError:
    with pytest.raises(ProviderError) as caught:
        answered(provider, request)
    assert isinstance(caught.value, BilledError)
    return caught.value


def threads(base: Path) -> ProviderCase:
    return ProviderCase(
        build=lambda: PythonProvider.create("python", {"params": ["depth"]}, base),
        requests=[ask("echo", n, depth=n) for n in range(5)],
        failing=[ask("gives_up"), ask("breaks"), ask("exits"), ask("refuses"), ask("absent")],
        nonsense=["programs:absent", "absent:echo", "programs", "programs:not_a_function"],
    )


def coroutines(base: Path) -> ProviderCase:
    options: Mapping[str, Json] = {"max_tokens": 20, "usd_per_call": "0.01", "max_gpu_seconds": 0}
    return ProviderCase(
        build=lambda: PythonProvider.create("python", options, base),
        requests=[ask("slow", n) for n in range(1, 6)],
        failing=[ask("slow", 100), ask("number"), ask("stops")],
        nonsense=["programs:slow:x", "1:2"],
    )


def chains(base: Path) -> ProviderCase:
    return ProviderCase(
        build=lambda: build(base, CHAINED),
        requests=[ask("chain"), ask("careful"), ask("leaves_calls")],
        failing=[ask("endless"), ask("undeclared"), ask("fails_inside")],
        run=run_virtual,
    )


@pytest.mark.parametrize("made", [threads, coroutines, chains])
class TestConformance(ProviderSuite):
    adapters = ("python",)

    @pytest.fixture
    def case(self, base: Path, made: Callable[[Path], ProviderCase]) -> ProviderCase:
        return made(base)


def test_what_functions_get_and_return(base: Path) -> None:
    provider = PythonProvider.create("python", {}, base)
    reply = answered(provider, ask("echo", 4, depth=2))
    assert reply.text == "prompt 4|4|2"
    assert (reply.calls, reply.usage, reply.usd_nanos) == (1, Usage(), None)
    request = Request("programs:agent", messages=(Message("system", "a"), Message("user", "b")))
    assert answered(provider, request).text == "user", "an object may be called, and gets messages"
    reply = answered(provider, ask("an_object"))
    assert (reply.text, reply.finish, reply.usage.total) == ("42", Finish.LENGTH, 3)


def test_a_chain_costs_what_its_calls_cost(base: Path) -> None:
    provider = build(base, CHAINED)
    reply = answered(provider, ask("chain"))
    assert reply.text == "42!"
    assert (reply.calls, reply.usage) == (2, Usage(input=5, output=7))
    assert reply.usd_nanos == 11_000_000
    assert provider.capabilities("programs:chain").priced is False, "a tape lacks a price"
    assert provider.bound(ask("chain")) == Spend(calls=3, tokens=1000, usd_nanos=50_000_000)


def test_a_blocking_chain_is_metered_and_its_reply_not_counted_twice(base: Path) -> None:
    provider = build(base, CHAINED)

    async def main() -> Reply:
        async with provider:
            return await provider.generate(ask("blocking_chain"))

    reply = asyncio.run(main())
    assert (reply.text, reply.calls, reply.usage.total) == ("draft", 1, 5)
    assert reply.usd_nanos == 1_000_000


def test_no_call_is_sent_that_could_break_the_bounds(base: Path) -> None:
    error = failed(build(base, CHAINED), ask("endless"))
    assert (error.kind, error.blame) == (FailureKind.GAVE_UP, Blame.CANDIDATE)
    assert "max_calls: 3 (4)" in str(error)
    assert error.spend == Spend(calls=3, tokens=15, usd_nanos=3_000_000)
    assert answered(build(base, CHAINED), ask("careful")).calls == 3
    dollars: Mapping[str, Json] = {**CHAINED, "max_calls": 99, "usd_per_call": "0.0025"}
    error = failed(build(base, dollars), ask("endless"))
    assert error.spend.usd_nanos == 2_000_000


def test_calls_left_under_way_are_ended_and_counted_with_their_bound(base: Path) -> None:
    async def main() -> tuple[Reply, float]:
        async with build(base, CHAINED) as provider:
            reply = await provider.generate(ask("leaves_calls"))
            return reply, asyncio.get_running_loop().time()

    reply, seconds = run_virtual(main())
    assert (reply.calls, reply.usage.total) == (1, 9)
    assert seconds < 1


def test_a_failure_inside_stays_what_it_is(base: Path) -> None:
    error = failed(build(base, CHAINED), ask("fails_inside"))
    assert (error.kind, error.transient, error.retry_after) == (FailureKind.OVERLOADED, True, 3)
    assert error.spend == Spend(calls=1)


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("gives_up", FailureKind.GAVE_UP, "no answer after 5 steps"),
        ("refuses", FailureKind.REFUSED, "not that"),
        ("breaks", FailureKind.INTERNAL, "ZeroDivisionError (programs.py:"),
        ("exits", FailureKind.INTERNAL, "SystemExit"),
        ("stops", FailureKind.INTERNAL, "StopIteration"),
        ("number", FailureKind.INTERNAL, "must be a text, a mapping or an object"),
        ("nonsense", FailureKind.INTERNAL, "unknown field `tokens`"),
        ("blocks_itself", FailureKind.INTERNAL, "await task.models.ask"),
        ("own_timeout", FailureKind.INTERNAL, "raised TimeoutError"),  # its own mistake
        ("undeclared", FailureKind.MODEL_NOT_FOUND, "tape/other, which it did not declare"),
        ("heats", FailureKind.MODEL_NOT_FOUND, "does not honour temperature"),
    ],
)
def test_who_is_to_blame(base: Path, function: str, kind: FailureKind, message: str) -> None:
    error = failed(build(base, CHAINED), ask(function))
    blames = {FailureKind.INTERNAL: Blame.HARNESS, FailureKind.MODEL_NOT_FOUND: Blame.PROVIDER}
    assert (error.kind, error.blame) == (kind, blames.get(kind, Blame.CANDIDATE))
    assert error.fatal == (kind is FailureKind.MODEL_NOT_FOUND), "of this program alone"
    assert message in str(error)
    assert str(base) not in str(error), "no path of this machine"


def test_what_failed_answers_cost(base: Path) -> None:
    bounds: Mapping[str, Json] = {"max_calls": 4, "max_tokens": 50, "usd_per_call": "0.02"}
    provider = PythonProvider.create("python", bounds, base)
    assert failed(provider, ask("breaks")).spend == provider.bound(ask("breaks"))
    reported = failed(provider, ask("refuses")).spend
    assert reported == Spend(calls=1, tokens=7, usd_nanos=2_000_000)
    chained = build(base, CHAINED)
    assert failed(chained, ask("breaks")).spend == Spend(), "nothing went through our clients"


def test_an_answer_that_does_not_come_in_time(base: Path) -> None:
    error = failed(
        PythonProvider.create("python", {"timeout_seconds": 0.5}, base), ask("slow", 1000)
    )
    assert (error.kind, error.transient) == (FailureKind.TIMEOUT, True)
    assert "did not answer within 0.5 s" in str(error)


def test_an_answer_beyond_its_bounds_withdraws_the_candidate(base: Path) -> None:
    error = failed(PythonProvider.create("python", {"max_tokens": 1000}, base), ask("greedy"))
    assert (error.kind, error.fatal) == (FailureKind.BAD_REQUEST, True)
    assert "max_tokens: 1000 (1100)" in str(error)
    assert error.spend.tokens == 1100, "the truth is booked"


def test_nothing_is_added_to_the_path_and_neighbours_are_imported_with_a_dot(
    tmp_path: Path,
) -> None:
    package = tmp_path / "chains"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "qa.py").write_text(
        "from .tools import shout\ndef answer(task):\n    return shout(task.prompt)\n"
    )
    (package / "tools.py").write_text("def shout(text):\n    return text.upper()\n")
    before = list(sys.path)
    provider = PythonProvider.create("python", {}, tmp_path)
    assert answered(provider, Request("chains.qa:answer", text="hi")).text == "HI"
    assert sys.path == before
    assert "chains" not in sys.modules


def test_two_studies_may_name_their_modules_alike(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "chain.py").write_text(f"def answer(task):\n    return {name!r}\n")
        provider = PythonProvider.create("python", {}, folder)
        texts.append(answered(provider, Request("chain:answer", text="")).text)
    assert texts == ["one", "two"]


def test_an_edited_program_is_read_anew_and_has_another_fingerprint(base: Path) -> None:
    old = PythonProvider.create("python", {}, base)
    fingerprint = old.fingerprint("programs:echo")
    (base / "programs.py").write_text("def echo(task):\n    return 'edited'\n")
    new = PythonProvider.create("python", {}, base)
    assert new.fingerprint("programs:echo") != fingerprint
    assert answered(new, ask("echo")).text == "edited"


def test_what_else_is_part_of_the_fingerprint(base: Path) -> None:
    (base / "rules.txt").write_text("be short")
    plain = build(base).fingerprint("programs:echo")
    versions = build(base, {"version": "2"}).fingerprint("programs:echo")
    sources = build(base, {"sources": ["*.txt"]}).fingerprint("programs:echo")
    models = build(base, CHAINED).fingerprint("programs:echo")
    assert len({plain, versions, sources, models}) == 4
    with pytest.raises(ConfigError, match="matches no file"):
        build(base, {"sources": ["absent/*"]}).fingerprint("programs:echo")


def test_installed_modules_are_found_too() -> None:
    provider = PythonProvider.create("python", {}, Path("/nonexistent"))
    provider.check("json:dumps")
    assert provider.fingerprint("json:dumps") == provider.fingerprint("json:loads")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("import tools\n", "import a file next to it with a dot: `from . import tools`"),
        ("raise SystemExit(1)\n", "SystemExit: 1"),
        ("def (:\n", "SyntaxError"),
        ("import no_such_package\n", "No module named 'no_such_package'"),
    ],
)
def test_import_errors_are_the_users(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "tools.py").write_text("")
    (tmp_path / "chain.py").write_text(content)
    with pytest.raises(ConfigError) as caught:
        PythonProvider.create("python", {}, tmp_path).check("chain:answer")
    assert message in str(caught.value)
    assert "_bestarm_study_" not in str(caught.value)


def test_models_need_a_bound_and_a_study(base: Path) -> None:
    with pytest.raises(ConfigError, match="`models` need `max_calls`"):
        PythonProvider.create("python", {"models": ["hf/x"]}, base)
    with pytest.raises(ConfigError, match="must be `provider/model`"):
        PythonProvider.create("python", {"models": ["x"], "max_calls": 1}, base)
    with pytest.raises(ConfigError, match="have no providers"):
        PythonProvider.create("python", CHAINED, base).check("programs:echo")


def test_a_hanging_thread_holds_up_neither_others_nor_the_end(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (base / "hanging.py").write_text(
        "import threading\nrelease = threading.Event()\n"
        "def answer(task):\n    release.wait(60)\n    return 'late'\n"
    )
    monkeypatch.setattr(python_module, "_CLOSE_SECONDS", 0.05)
    provider = PythonProvider.create("python", {"threads": 2}, base)

    async def main() -> str:
        async with provider:
            hanging = asyncio.create_task(provider.generate(Request("hanging:answer", text="")))
            await asyncio.sleep(0.01)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return (await provider.generate(ask("echo"))).text

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(main()) == "prompt 1|1|0"
    assert "1 blocking calls did not end" in caplog.text
    module = next(m for name, m in sys.modules.items() if name.endswith(".hanging"))
    module.release.set()


def test_no_more_threads_than_allowed() -> None:
    lock, active, most = threading.Lock(), 0, 0
    together = threading.Barrier(3)

    def work() -> None:
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        together.wait(10.0)  # however busy the machine is
        threading.Event().wait(0.005)
        with lock:
            active -= 1

    async def main() -> None:
        threads = DaemonThreads(3)
        async with asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(threads.run(work, "test"))
        await threads.close(1.0)

    asyncio.run(main())
    assert most == 3


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("leaks_a_variable", "raised KeyError (programs.py:"),
        ("leaks_its_place", "./programs.py with [redacted]"),
        ("leaks_a_key", "401: [redacted] is no key"),
        ("reports_a_variable", "not with [redacted]"),
    ],
)
def test_what_a_program_says_holds_no_secret_and_no_place_of_this_machine(
    base: Path, monkeypatch: pytest.MonkeyPatch, function: str, shown: str
) -> None:
    monkeypatch.setenv("MY_KEY", "very-hidden-value")
    said = str(failed(build(base), ask(function)))
    assert shown in said
    assert not any(text in said for text in ("very-hidden-value", "sk-proj", str(base)))
