"""Programs as candidates: the protocol, and every way to misbehave."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Json, Message, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.providers.child_process import shown_tail
from bestarm_agent.providers.command import CommandProvider
from bestarm_agent.providers.failures import BilledError
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.processes import dies
from tests.support.provider_calls import error, replies, reply

PROGRAM = r"""
import json, os, signal, subprocess, sys, time

def answer(asked):
    what = (asked["prompt"] or "").split(" ")[0]
    if what == "hang":
        time.sleep(60)
    if what == "child":  # outlives its parent, and holds the pipes open
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(json.dumps(str(child.pid)), flush=True)
        os._exit(0)
    if what == "flood":
        for _ in range(1000):
            sys.stdout.write("x" * 10_000)
    if what == "garbage":
        return print("{no json", flush=True)
    if what == "chatter":
        return print("Using key " + os.environ["MY_KEY"], flush=True)
    if what == "array":
        return print("[1, 2]", flush=True)
    if what == "silent":
        sys.exit(0)
    if what == "fail":
        print("some trouble\napi_key=abcdefgh1234 " + os.environ.get("MY_KEY", ""),
              file=sys.stderr, flush=True)
        sys.exit(3)
    if what == "later":
        sys.exit(75)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "refuse":
        reply = {"error": "refused", "message": "no", "usd": 0.002, "usage": {"input": 3}}
    elif what == "dear":
        reply = {"text": "x", "usd": 5}
    elif what == "variables":
        reply = json.dumps(sorted(os.environ))
    elif what == "pid":
        reply = str(os.getpid())
    else:
        parts = [asked[key] for key in ("prompt", "inputs", "params", "messages")]
        reply = {"text": "|".join(map(str, parts)), "usage": {"input": 5, "output": 2},
                 "usd": 0.001, "calls": 2}
    print(json.dumps(reply), flush=True)

answer(json.load(sys.stdin))
"""

BOUNDS: Mapping[str, Json] = {
    "max_calls": 2,
    "max_tokens": 10,
    "max_gpu_seconds": 0,
    "usd_per_call": "0.01",
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def build(base: Path, **options: Json) -> CommandProvider:
    argv = [sys.executable, "program.py"]
    return CommandProvider.create("command", {"argv": argv, **BOUNDS, **options}, base)


def ask(what: str) -> Request:
    return Request("mine", text=what, params={"depth": 1}, inputs={"n": 1}, example=what)


def failed(provider: CommandProvider, request: Request) -> BilledError:
    found = error(provider, request)
    assert isinstance(found, BilledError)
    return found


class TestConformance(ProviderSuite):
    adapters = ("command",)

    @pytest.fixture
    def case(self, base: Path) -> ProviderCase:
        return ProviderCase(
            build=lambda: build(base, in_flight=2),
            requests=[ask(f"hello {n}") for n in range(3)],
            failing=[ask(what) for what in ("fail", "garbage", "refuse", "killed", "silent")],
            nonsense=(),
        )


class TestOnUvloop(TestConformance):
    """Some web servers run it; a start that is cancelled must not leave a program behind."""

    @pytest.fixture
    def case(self, base: Path) -> ProviderCase:
        return ProviderCase(
            build=lambda: build(base, in_flight=2),
            requests=[ask(f"hello {n}") for n in range(3)],
            failing=[ask(what) for what in ("fail", "silent")],
            nonsense=(),
            run=pytest.importorskip("uvloop").run,
        )


def test_what_is_read_and_written(base: Path) -> None:
    chat = Request("mine", messages=(Message("user", "hi"),))
    plain, from_chat = replies(build(base), ask("hello"), chat)
    assert plain.text == "hello|{'n': 1}|{'depth': 1}|None"
    assert from_chat.text == "None|{}|{}|[{'role': 'user', 'content': 'hi'}]"
    assert (plain.usage, plain.usd_nanos) == (Usage(input=5, output=2), 1_000_000)
    assert plain.calls == 2


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        ("garbage", FailureKind.MALFORMED_REPLY, "no answer: it wrote b'{no json"),
        ("array", FailureKind.MALFORMED_REPLY, "must be a text, a mapping or an object"),
        ("silent", FailureKind.MALFORMED_REPLY, "no answer: it wrote b''"),
        ("flood", FailureKind.MALFORMED_REPLY, "wrote more than 50,000 bytes and was killed"),
        ("fail", FailureKind.INTERNAL, "ended with exit code 3; it wrote: some trouble / "),
        ("later", FailureKind.SERVER, "ended with exit code 75"),
        ("killed", FailureKind.SERVER, "was killed by signal 9"),
    ],
)
def test_misbehaviour_says_nothing_about_quality(
    base: Path, what: str, kind: FailureKind, message: str
) -> None:
    provider = build(base, most_output_bytes=50_000)
    found = failed(provider, ask(what))
    assert found.kind is kind
    assert found.blame is not Blame.CANDIDATE
    assert message in str(found)
    assert found.spend == provider.bound(ask(what)), "it may have paid for something"


def test_what_it_reports_is_booked(base: Path) -> None:
    found = failed(build(base), ask("refuse"))
    assert (found.kind, found.blame) == (FailureKind.REFUSED, Blame.CANDIDATE)
    assert found.spend == Spend(calls=1, tokens=3, usd_nanos=2_000_000)
    found = failed(build(base), ask("dear"))
    assert (found.kind, found.fatal) == (FailureKind.BAD_REQUEST, True), "beyond its bounds"
    assert found.spend.usd_nanos == 5_000_000_000


def test_one_that_hangs_is_killed(base: Path) -> None:
    found = failed(build(base, timeout_seconds=0.5), ask("hang"))
    assert found.kind is FailureKind.TIMEOUT
    assert "did not answer within 0.5 s and was killed" in str(found)


def test_cancelling_kills_it_and_the_next_is_replies(base: Path) -> None:
    provider = build(base, in_flight=1)

    async def main() -> Reply:
        async with provider:
            await provider.generate(ask("pid"))
            hanging = asyncio.create_task(provider.generate(ask("hang")))
            await asyncio.sleep(0.05)  # wherever the call is by then
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return await provider.generate(ask("hello"))

    assert asyncio.run(main()).text.startswith("hello")


def test_what_it_leaves_behind_is_killed_and_does_not_hold_the_answer_up(base: Path) -> None:
    assert dies(int(reply(build(base), ask("child")).text))


def test_keys_do_not_leak(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "top-secret-value")
    monkeypatch.setenv("MY_KEY", "very-hidden-value")
    variables = reply(build(base, env={"MODE": "fast"}), ask("variables")).text
    assert "OPENAI_API_KEY" not in variables
    assert "MY_KEY" not in variables
    assert "MODE" in variables
    for what, said in (
        ("fail", "api_key=[redacted] [redacted]"),
        ("chatter", "it wrote b'Using key [redacted]"),
    ):
        found = str(failed(build(base, pass_env=["MY_KEY"]), ask(what)))
        assert said in found
        assert "very-hidden-value" not in found
        assert "abcdefgh1234" not in found


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("used sk-proj-abcdefghijklmnop today", "used [redacted] today"),
        ('{"api_key": "hush"}', '{"api_key": "[redacted]'),
        ("max_tokens: 5", "max_tokens: 5"),
        ("one\n\n two \nthree\n", "two / three"),
    ],
)
def test_what_looks_like_a_secret_is_cut_out(written: str, shown: str) -> None:
    assert shown_tail(written.encode(), {}) == shown


def test_nothing_goes_through_a_shell(base: Path) -> None:
    options: Mapping[str, Json] = {"argv": ["echo", '"$HOME; rm -rf /"']}
    assert (
        reply(CommandProvider.create("command", options, base), ask("x")).text == "$HOME; rm -rf /"
    )


def test_a_study_may_be_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "study" / "answer.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho '\"here\"'\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    provider = CommandProvider.create("command", {"argv": ["./answer.sh"]}, Path("study"))
    assert reply(provider, ask("x")).text == "here"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no-such-program"], "command/mine: the program no-such-program is not in PATH"),
        (["./absent.sh"], "./absent.sh does not exist"),
        (["./program.py"], "./program.py is not executable; run chmod"),
    ],
)
def test_programs_are_checked_before_they_are_needed(
    base: Path, argv: list[str], message: str
) -> None:
    provider = CommandProvider.create("command", {"argv": argv}, base)
    with pytest.raises(ConfigError, match=message):
        provider.check("mine")
    assert failed(provider, ask("x")).fatal
    assert failed(provider, ask("x")).spend == Spend()


@pytest.mark.parametrize(
    ("options", "message"), [({}, "`argv` is missing"), ({"argv": []}, "`argv`")]
)
def test_options_are_checked(base: Path, options: Mapping[str, Json], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CommandProvider.create("command", options, base)


def test_the_fingerprint_is_of_the_program_and_its_files(base: Path) -> None:
    (base / "rules.txt").write_text("x")
    first = build(base).fingerprint("mine")
    others = [build(base, version="2"), build(base, env={"A": "1"}), build(base, sources=["*.txt"])]
    assert len({first, *(other.fingerprint("mine") for other in others)}) == 4
    assert build(base, timeout_seconds=5).fingerprint("mine") == first
    (base / "program.py").write_text(PROGRAM + "# changed\n")
    assert build(base).fingerprint("mine") != first
