"""Stops: one flag for all stages of a study, signals, and no second run beside the first."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run

import pytest

from bestarm_agent import Feedback, Options, Study, find_best, optimize, select
from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import BudgetEndedError
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run import new_run
from bestarm_agent.one_call import _Function
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.replay import ReplayProvider
from bestarm_agent.report.markdown import markdown
from bestarm_agent.report.words import budget_line
from bestarm_agent.study import Archive
from tests.optimization.test_proposer_calls import asking_study, calls_of
from tests.support.commands import Command, command
from tests.support.studies import events_of, resume_all, store_of, write_study
from tests.test_confirm import confirming

__all__ = ["command"]

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _heeds_ctrl_c() -> Iterator[None]:
    """Heed Ctrl-C: a job in the background of a script begins with the signal ignored.

    Programs that a test starts would inherit that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    """Press Ctrl-C, for the main thread."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def asks(path: Path) -> int:
    return sum(isinstance(event, Asked) for event in events_of(path))


def no_thread_goes_on() -> bool:
    return not [one for one in threading.enumerate() if one.name == "bestarm-agent"]


@contextmanager
def _opening(provider: type[Provider], act: object) -> Iterator[None]:
    """A provider that never gets ready: while it is awaited, ``act`` happens."""

    async def start(_self: Provider) -> None:
        assert callable(act)
        act()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(provider, "start", start)
        yield


# while a study opens


def test_ctrl_c_while_find_best_opens_calls_nothing_and_leaves_no_thread() -> None:
    called: list[int] = []

    def evaluate(candidate: int, _example: int) -> float:
        called.append(candidate)
        return 1.0

    with _opening(_Function, interrupt), pytest.raises(KeyboardInterrupt):
        find_best(evaluate, [0, 1], range(50), show=False)
    assert no_thread_goes_on()
    assert called == []


def test_ctrl_c_while_select_opens_asks_nothing(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    with _opening(ReplayProvider, interrupt), pytest.raises(KeyboardInterrupt):
        select(path, show=False)
    assert no_thread_goes_on()
    assert asks(path) == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_the_command_opens_a_study(
    tmp_path: Path, command: Command, number: signal.Signals
) -> None:
    path = write_study(tmp_path)
    with _opening(ReplayProvider, lambda: os.kill(os.getpid(), number)):
        done = command("select", path)
    assert done.code == 130
    assert "stopped while the study was opened: nothing was called" in done.err
    assert asks(path) == 0
    assert resume_all(path).end == "exhausted"


# while it runs


@contextmanager
def _signalled(number: signal.Signals) -> Iterator[None]:
    """The first call of the run sends a signal."""
    generate, first = ReplayProvider.generate, [True]

    async def signalling(self: ReplayProvider, request: Request) -> Reply:
        if first:
            first.clear()
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        return await generate(self, request)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ReplayProvider, "generate", signalling)
        yield


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_a_run_end_in_order(
    tmp_path: Path, command: Command, number: signal.Signals
) -> None:
    path = write_study(tmp_path, latency_seconds=0.001)
    with _signalled(number):
        done = command("select", path, "--json")
    assert (done.code, done.json["end"]) == (130, "interrupted")
    assert 0 < asks(path) < 240
    assert list(tmp_path.glob("*/*.html")), "the report is written"


def test_a_command_that_is_to_outlive_its_terminal_does(tmp_path: Path, command: Command) -> None:
    path = write_study(tmp_path, latency_seconds=0.001)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what `nohup` does
    try:
        with _signalled(signal.SIGHUP):
            done = command("select", path, "--json")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.code, done.json["end"]) == (0, "exhausted")


LOST_TERMINAL = """
import os, pty, signal, sys
from bestarm_agent.cli.main import main
from bestarm_agent.providers.replay import ReplayProvider

generate = ReplayProvider.generate
async def hanging_up(self, request):
    if os.environ.pop("HANG_UP", None):
        os.close(MASTER)  # the kernel sends SIGHUP, and writing to the terminal fails from here on
    return await generate(self, request)
ReplayProvider.generate = hanging_up

MASTER, terminal = pty.openpty()
os.setsid()
import fcntl, termios
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
for descriptor in (0, 1, 2):
    os.dup2(terminal, descriptor)
os.environ["HANG_UP"] = "1"
sys.argv = ["bestarm-agent", "select", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_a_run_in_order(tmp_path: Path) -> None:
    path = write_study(tmp_path, latency_seconds=0.01)
    command = [sys.executable, "-c", LOST_TERMINAL, str(path)]
    assert run(command, check=False).returncode == 130
    assert list(tmp_path.glob("*/*.html")), "the report is written"
    assert asyncio.run(Archive(store_of(path)).record("latest")).standing.end == "interrupted"


# one run at a time


async def test_a_second_run_is_refused_while_one_goes_on(tmp_path: Path) -> None:
    async with Study.open(write_study(tmp_path, latency_seconds=0.001)) as study:
        running = asyncio.create_task(study.run())
        while not study.standing().asked:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="under way in this study; await that call"):
            await study.run()
        standing = await running
        assert (standing.end, standing.told) == ("exhausted", 240)
        assert (await study.run()).end == "exhausted", "one after the other they may be"


# every stage


def test_a_stop_while_the_confirming_run_opens_ends_that_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, stopping = new_run, list[Study]()

    def stop_and_open(*arguments: object) -> object:
        if stopping:
            stopping.pop().stop()
        return opening(*arguments)  # type: ignore[arg-type] # as it is called

    monkeypatch.setattr("bestarm_agent.engine.confirm.new_run", stop_and_open)

    async def scene() -> tuple[Standing, Standing]:
        async with Study.open(confirming(tmp_path)) as study:
            stopping.append(study)
            return await study.run(), await study.run()

    first, second = asyncio.run(scene())
    assert first.end == "interrupted"
    assert first.confirmation is None
    assert second.confirmation is not None
    assert second.confirmation.n == second.confirmation.held_back


async def test_a_stop_before_a_resumed_run_sends_nothing_again(tmp_path: Path) -> None:
    path = write_study(tmp_path, latency_seconds=0.001)
    async with Study.open(path) as study:
        running = asyncio.create_task(study.run())
        while not study.standing().asked:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
    async with Study.resume(options=Options(store=store_of(path))) as study:
        before = study.standing()
        study.stop()
        standing = await study.run()
        assert standing.end == "interrupted"
        assert (standing.asked, standing.told) == (before.asked, before.told)
        assert standing.asked > standing.told, "what was pending stays so"
        assert (await study.run()).end == "exhausted"


async def test_what_a_run_ended_without_is_called_unfinished_by_all(tmp_path: Path) -> None:
    path = write_study(tmp_path, latency_seconds=10.0)
    async with Study.open(path) as study:
        running = asyncio.create_task(study.run())
        while study.standing().in_flight < 4:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0)
        live = await Archive(store_of(path)).record("latest")
        assert live.standing.in_flight == live.standing.asked, "by its log, for other processes"
        assert (live.standing.unfinished, live.standing.further) == (0, "")
        assert {pair.state async for pair in study.outcomes()} == {"pending"}
        running.cancel()
        await asyncio.wait([running])
        live_one, stored = (
            study.standing(),
            (await Archive(store_of(path)).record("latest")).standing,
        )
        report = (await study.write_report()).read_text()
        assert {pair.state async for pair in study.outcomes()} == {"unfinished"}
    for ended in (live_one, stored):
        assert ended.unfinished == sum(row.pending for row in ended.rows) == ended.asked == 4
        assert ended.in_flight == 0
        assert [line.what for line in ended.costs] == ["unfinished answers"]
        for text in (str(ended), markdown(ended), budget_line(ended), report):
            assert "4 of 240 answers (2 %), 4 unfinished" in text.replace("\u00a0", " ")
    assert "answers under way" not in report
    cells = json.loads(report.partition('id="data">')[2].partition("</script>")[0])["matrix"]
    assert "".join(cells["cells"]).replace(".", "") == "uuuu"


def test_a_proposer_asks_nothing_after_a_stop(tmp_path: Path) -> None:
    path = asking_study(tmp_path)

    async def scene() -> Standing:
        async with Study.open(path) as study:

            async def propose(feedback: Feedback) -> str:
                study.stop()
                with pytest.raises(BudgetEndedError, match="asked to stop"):
                    await feedback.ask("what is missing: plus")
                return "{{ op }}"

            return await optimize(study, propose)

    assert asyncio.run(scene()).end == "interrupted"
    assert calls_of(path) == []
