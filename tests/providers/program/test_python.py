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
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import Finish, Json, Message, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.providers import python as python_module
from bestarm_agent.providers.failures import BilledError
from bestarm_agent.providers.python import PythonProvider
from bestarm_agent.providers.replay import ReplayProvider
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.provider_calls import error, reply
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

async def chain(task):
    draft = await task.models.ask("tape/good", task.prompt)
    final = await task.models.ask("tape/best", [{"role": "user", "content": draft.text}])
    return final.text + "!"

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

async def flood(task):
    asks = [asyncio.create_task(task.models.ask("tape/good", task.prompt)) for _ in range(4)]
    return [await ask for ask in asks][0]

class Agent:
    async def __call__(self, task):
        return task.messages[-1].role

agent = Agent()
not_a_function = 3
Used = SimpleNamespace(input=1, output=2)
COST = {"usd": 0.002, "usage": {"input": 7}}
"""
MORE = {
    "def gives_up": "raise CandidateError('no answer after 5 steps')",
    "def refuses": "return {'error': 'refused', 'message': 'not that', **COST}",
    "def breaks": "return 1 / 0",
    "def exits": "raise SystemExit(3)",
    "def stops": "raise StopIteration",
    "def number": "return 42",
    "def nonsense": "return {'text': 'x', 'tokens': 3}",
    "def greedy": "return {'text': 'x', 'usage': {'input': 900, 'output': 200}}",
    "def an_object": "return SimpleNamespace(text='42', finish='length', usage=Used)",
    "def leaks_a_variable": "return {}[os.environ['MY_KEY']]",
    "def leaks_its_place": "raise CandidateError(f\"{__file__} with {os.environ['MY_KEY']}\")",
    "def leaks_a_key": "raise PermissionError('401: sk-proj-11112222 is no key')",
    "def reports_a_variable": "return {'error': 'refused', 'message': os.environ['MY_KEY'] + '!'}",
    "def blocking_chain": "return task.models.ask_blocking('tape/good', task.prompt)",
    "async def own_timeout": "raise TimeoutError('inside')",
    "async def blocks_itself": "return task.models.ask_blocking('tape/good', task.prompt)",
    "async def undeclared": "return await task.models.ask('tape/other', task.prompt)",
    "async def heats": "return await task.models.ask('tape/good', task.prompt, temperature=2)",
    "async def fails_inside": "return await task.models.ask('tape/busy', task.prompt)",
}

TAPE = [
    {"candidate": "good", "example": "e", "text": "draft", "input_tokens": 5, "usd": 0.001},
    {"candidate": "best", "example": "e", "text": "42", "output_tokens": 7, "usd": 0.01},
    {"candidate": "slow", "example": "e", "text": "late", "input_tokens": 9, "seconds": 500},
    {"candidate": "busy", "example": "e", "error": "overloaded", "retry_after": 3},
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    more = [f"{head}(task):\n    {body}\n" for head, body in MORE.items()]
    (tmp_path / "programs.py").write_text("\n".join([PROGRAMS, *more]))
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


def plain(base: Path, **options: Json) -> PythonProvider:
    return PythonProvider.create("python", options, base)


def build(base: Path, **options: Json) -> PythonProvider:
    """A provider whose functions may call the models of a tape."""
    (base / "tape.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TAPE))
    provider = plain(base, **options)
    provider.set_providers(
        lambda name, model: ReplayProvider.create(name, {"path": "tape.jsonl"}, base)
    )
    return provider


CHAINED: Mapping[str, Json] = {
    "models": ["tape/good", "tape/best", "tape/slow", "tape/busy"],
    "max_calls": 3,
    "max_tokens": 1000,
    "usd_per_call": "0.05",
    "max_gpu_seconds": 0,
}


def answered(provider: PythonProvider, request: Request) -> Reply:
    return reply(provider, request, run_virtual)


def failed(provider: PythonProvider, request: Request) -> BilledError:
    found = error(provider, request, run_virtual)
    assert isinstance(found, BilledError)
    return found


def threads(base: Path) -> ProviderCase:
    return ProviderCase(
        build=lambda: plain(base, params=["depth"]),
        requests=[ask("echo", n, depth=n) for n in range(5)],
        failing=[ask("gives_up"), ask("breaks"), ask("exits"), ask("refuses"), ask("absent")],
        nonsense=["programs:absent", "absent:echo", "programs", "programs:not_a_function"],
    )


def coroutines(base: Path) -> ProviderCase:
    return ProviderCase(
        build=lambda: plain(base, max_tokens=20, usd_per_call="0.01", max_gpu_seconds=0),
        requests=[ask("slow", n) for n in range(1, 6)],
        failing=[ask("slow", 100), ask("number"), ask("stops")],
        nonsense=["programs:slow:x", "1:2"],
        run=run_virtual,
    )


def chains(base: Path) -> ProviderCase:
    return ProviderCase(
        build=lambda: build(base, **CHAINED),
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
    provider = plain(base)
    found = answered(provider, ask("echo", 4, depth=2))
    assert found.text == "prompt 4|4|2"
    assert (found.calls, found.usage, found.usd_nanos) == (1, Usage(), None)
    request = Request("programs:agent", messages=(Message("system", "a"), Message("user", "b")))
    assert answered(provider, request).text == "user", "an object may be called, and gets messages"
    found = answered(provider, ask("an_object"))
    assert (found.text, found.finish, found.usage.total) == ("42", Finish.LENGTH, 3)


def test_a_chain_costs_what_its_calls_cost(base: Path) -> None:
    provider = build(base, **CHAINED)
    found = answered(provider, ask("chain"))
    assert (found.text, found.calls) == ("42!", 2)
    assert (found.usage, found.usd_nanos) == (Usage(input=5, output=7), 11_000_000)
    assert provider.capabilities("programs:chain").priced is False, "a tape lacks a price"
    assert provider.bound(ask("chain")) == Spend(calls=3, tokens=1000, usd_nanos=50_000_000)


def test_a_blocking_chain_is_metered_and_its_reply_not_counted_twice(base: Path) -> None:
    found = reply(build(base, **CHAINED), ask("blocking_chain"))
    assert (found.text, found.calls, found.usage.total) == ("draft", 1, 5)
    assert found.usd_nanos == 1_000_000


def test_no_call_is_sent_that_could_break_the_bounds(base: Path) -> None:
    found = failed(build(base, **CHAINED), ask("endless"))
    assert (found.kind, found.blame) == (FailureKind.GAVE_UP, Blame.CANDIDATE)
    assert "max_calls: 3 (4)" in str(found)
    assert found.spend == Spend(calls=3, tokens=15, usd_nanos=3_000_000)
    assert answered(build(base, **CHAINED), ask("careful")).calls == 3
    dollars: Mapping[str, Json] = {**CHAINED, "max_calls": 99, "usd_per_call": "0.0025"}
    found = failed(build(base, **dollars), ask("endless"))
    assert found.spend.usd_nanos == 2_000_000


def test_calls_left_under_way_are_ended_and_counted_with_their_bound(base: Path) -> None:
    async def main() -> tuple[Reply, float]:
        async with build(base, **CHAINED) as provider:
            reply = await provider.generate(ask("leaves_calls"))
            return reply, asyncio.get_running_loop().time()

    reply, seconds = run_virtual(main())
    assert (reply.calls, reply.usage.total) == (1, 9)
    assert seconds < 1


def test_a_failure_inside_stays_what_it_is(base: Path) -> None:
    found = failed(build(base, **CHAINED), ask("fails_inside"))
    assert (found.kind, found.transient, found.retry_after) == (FailureKind.OVERLOADED, True, 3)
    assert found.spend == Spend(calls=1)


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("gives_up", FailureKind.GAVE_UP, "no answer after 5 steps"),
        ("flood", FailureKind.GAVE_UP, "max_calls: 3 (4)"),  # at once
        ("refuses", FailureKind.REFUSED, "not that"),
        ("breaks", FailureKind.INTERNAL, "ZeroDivisionError (programs.py:"),
        ("exits", FailureKind.INTERNAL, "SystemExit"),
        ("stops", FailureKind.INTERNAL, "stops raised StopIteration (programs.py:"),
        ("number", FailureKind.INTERNAL, "must be a text, a mapping or an object"),
        ("nonsense", FailureKind.INTERNAL, "unknown field `tokens`"),
        ("blocks_itself", FailureKind.INTERNAL, "await task.models.ask"),
        ("own_timeout", FailureKind.INTERNAL, "raised TimeoutError"),  # its own mistake
        ("undeclared", FailureKind.MODEL_NOT_FOUND, "tape/other, which it did not declare"),
        ("heats", FailureKind.MODEL_NOT_FOUND, "does not honour temperature"),
    ],
)
def test_who_is_to_blame(base: Path, function: str, kind: FailureKind, message: str) -> None:
    found = failed(build(base, **CHAINED), ask(function))
    blames = {FailureKind.INTERNAL: Blame.HARNESS, FailureKind.MODEL_NOT_FOUND: Blame.PROVIDER}
    assert (found.kind, found.blame) == (kind, blames.get(kind, Blame.CANDIDATE))
    assert found.fatal == (kind is FailureKind.MODEL_NOT_FOUND), "of this program alone"
    assert message in str(found)
    assert str(base) not in str(found), "no path of this machine"


def test_what_failed_answers_cost(base: Path) -> None:
    bounds: Mapping[str, Json] = {"max_calls": 4, "max_tokens": 50, "usd_per_call": "0.02"}
    provider = plain(base, **bounds)
    assert failed(provider, ask("breaks")).spend == provider.bound(ask("breaks"))
    reported = failed(provider, ask("refuses")).spend
    assert reported == Spend(calls=1, tokens=7, usd_nanos=2_000_000)
    chained = build(base, **CHAINED)
    assert failed(chained, ask("breaks")).spend == Spend(), "nothing went through our clients"


def test_an_answer_that_does_not_come_in_time(base: Path) -> None:
    found = failed(plain(base, timeout_seconds=0.5), ask("slow", 1000))
    assert (found.kind, found.transient) == (FailureKind.TIMEOUT, True)
    assert "did not answer within 0.5 s" in str(found)


def test_an_answer_beyond_its_bounds_withdraws_the_candidate(base: Path) -> None:
    found = failed(plain(base, max_tokens=1000), ask("greedy"))
    assert (found.kind, found.fatal) == (FailureKind.BAD_REQUEST, True)
    assert "max_tokens: 1000 (1100)" in str(found)
    assert found.spend.tokens == 1100, "the truth is booked"


def test_nothing_is_added_to_the_path_and_neighbours_are_imported_with_a_dot(
    tmp_path: Path,
) -> None:
    (tmp_path / "chains").mkdir()
    for name, text in (
        ("__init__", ""),
        ("qa", "from .tools import shout\ndef answer(task):\n    return shout(task.prompt)\n"),
        ("tools", "def shout(text):\n    return text.upper()\n"),
    ):
        (tmp_path / "chains" / f"{name}.py").write_text(text)
    before = list(sys.path)
    assert answered(plain(tmp_path), Request("chains.qa:answer", text="hi")).text == "HI"
    assert sys.path == before
    assert "chains" not in sys.modules


def test_two_studies_may_name_their_modules_alike(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "chain.py").write_text(f"def answer(task):\n    return {name!r}\n")
        assert answered(plain(folder), Request("chain:answer", text="")).text == name


def test_an_edited_program_is_read_anew_and_has_another_fingerprint(base: Path) -> None:
    old = plain(base)
    fingerprint = old.fingerprint("programs:echo")
    (base / "programs.py").write_text("def echo(task):\n    return 'edited'\n")
    new = plain(base)
    assert new.fingerprint("programs:echo") != fingerprint
    assert answered(new, ask("echo")).text == "edited"


def test_what_else_is_part_of_the_fingerprint(base: Path) -> None:
    (base / "rules.txt").write_text("be short")
    usual = build(base).fingerprint("programs:echo")
    versions = build(base, version="2").fingerprint("programs:echo")
    sources = build(base, sources=["*.txt"]).fingerprint("programs:echo")
    models = build(base, **CHAINED).fingerprint("programs:echo")
    assert len({usual, versions, sources, models}) == 4
    with pytest.raises(ConfigError, match="matches no file"):
        build(base, sources=["absent/*"]).fingerprint("programs:echo")


def test_installed_modules_are_found_too() -> None:
    provider = plain(Path("/nonexistent"))
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
        plain(tmp_path).check("chain:answer")
    assert message in str(caught.value)
    assert "_bestarm_study_" not in str(caught.value)


def test_the_name_of_a_file_is_told_from_that_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text("def answer(task): ...\n")
    with pytest.raises(ConfigError, match=r"; name the module without `\.py`$"):
        plain(tmp_path).check("chain.py:answer")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["hf/x"]}, "`models` need `max_calls`"),
        ({"models": ["x"], "max_calls": 1}, "must be `provider/model`"),
        (CHAINED, "have no providers"),
    ],
)
def test_models_need_a_bound_and_a_study(
    base: Path, options: Mapping[str, Json], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plain(base, **options).check("programs:echo")


def test_a_hanging_thread_holds_up_neither_others_nor_the_end(
    base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (base / "hanging.py").write_text(
        "import threading\nrelease = threading.Event()\n"
        "def answer(task):\n    release.wait(60)\n    return 'late'\n"
    )
    monkeypatch.setattr(python_module, "_CLOSE_SECONDS", 0.05)
    provider = plain(base, threads=2)

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
        ("reports_a_variable", "[redacted]!"),
    ],
)
def test_what_a_program_says_holds_no_secret_and_no_place_of_this_machine(
    base: Path, monkeypatch: pytest.MonkeyPatch, function: str, shown: str
) -> None:
    monkeypatch.setenv("MY_KEY", "very-hidden-value")
    said = str(failed(build(base), ask(function)))
    assert shown in said
    assert not any(text in said for text in ("very-hidden-value", "sk-proj", str(base)))
