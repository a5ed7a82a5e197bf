"""A study run by a command: progress, Ctrl-C, the result, the exit code."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from typing import TypeAlias

import typer
from rich.console import Console

from bestarm_agent.cli.options import Display, Showing
from bestarm_agent.cli.progress import LiveTable, PlainLines, Silence, busy, print_line
from bestarm_agent.cli.result_output import print_mode_result, print_result
from bestarm_agent.config.study import BudgetSpec
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.words import passed_caps, safe
from bestarm_agent.stats.non_inferiority import Verdict
from bestarm_agent.study import Study

_FRAME_SECONDS = 0.25
_PAUSE = 20  # between two frames, in terms of the time that one takes
EXIT_OK = 0
EXIT_NO_GUARANTEE = 3
EXIT_FAILURES = 4
EXIT_WORSE = 5
EXIT_INTERRUPTED = 130

Drive: TypeAlias = Callable[[Study], Awaitable[Standing]]  # runs a study that is open
Write: TypeAlias = Callable[[ModeResult, str], None]  # takes a mode's answer, the study's name


def run_study(
    opening: AbstractAsyncContextManager[Study],
    more: BudgetSpec | None,
    showing: Showing,
    write: Write | None = None,
    drive: Drive = Study.run,
) -> None:
    """Run a study with progress, show its result, and exit with its code.

    ``more`` is the most to spend from now on; None: what is left of the configured budget.
    ``drive`` runs it, and ``write`` writes the answer of its mode to files.
    """
    try:
        code = asyncio.run(_run_and_report(opening, more, showing, write, drive))
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("aborted; `bestarm-agent resume` goes on", err=True)
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


async def _run_and_report(
    opening: AbstractAsyncContextManager[Study],
    more: BudgetSpec | None,
    showing: Showing,
    write: Write | None,
    drive: Drive,
) -> int:
    console, display = Console(stderr=True, emoji=False), showing.progress
    async with AsyncExitStack() as stack:
        wanted = display is not Display.NONE
        with busy(console, "reading the study and starting its providers", wanted=wanted):
            study = await stack.enter_async_context(opening)
        known = study.notices
        print_notices(console, known)
        standing = await run_shown(study, more, progress_on(console, display), drive)
        print_notices(console, (*study.notices[len(known) :], *study.remarks()))
        report = await study.write_report()
        if (found := study.result()) is not None:
            print_mode_result(found, as_json=showing.as_json, report=report)
            if write is not None:
                write(found, standing.name)
            return mode_exit_code(found, standing)
        failures = study.failures()
    print_result(standing, as_json=showing.as_json, report=report, failures=failures)
    asked = study.parts.config.selector.confidence is not None
    return exit_code(standing, confidence_asked=asked)


def print_notices(console: Console, notices: Iterable[str]) -> None:
    """Print what users should know, one line each."""
    for notice in notices:
        print_line(console, f"notice: {safe(notice)}", indent=len("notice: "))


def progress_on(console: Console, display: Display) -> LiveTable | PlainLines | Silence:
    """Choose how progress is shown: a live table on a terminal, plain lines elsewhere."""
    if display is Display.NONE:
        return Silence()
    if display is Display.FULL or (display is Display.AUTO and console.is_terminal):
        return LiveTable(console)
    return PlainLines(console)


async def run_shown(
    study: Study,
    more: BudgetSpec | None,
    progress: LiveTable | PlainLines | Silence,
    drive: Drive = Study.run,
) -> Standing:
    """Run a study and show its standing; the first Ctrl-C drains and saves, the second aborts."""
    with progress:
        async with _frames(study, progress), _interruptible(study):
            if more is not None:
                study.raise_budget(more.caps(study.standing().grid))
            gc.freeze()  # what is loaded by now lives as long as this process
            standing = await drive(study)
        progress.show(standing)
    return standing


def exit_code(standing: Standing, *, confidence_asked: bool) -> int:
    """Return the exit code of a run; docs/exit-codes.md lists them."""
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    if standing.end == End.FAILURES or passed_caps(standing):
        return EXIT_FAILURES
    if confidence_asked and not standing.established:
        return EXIT_NO_GUARANTEE
    return EXIT_OK


def mode_exit_code(found: ModeResult, standing: Standing) -> int:
    """Return the exit code of a run whose mode has an answer of its own."""
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    if found.verdict is Verdict.FAILED:
        return EXIT_WORSE
    if standing.end == End.FAILURES or passed_caps(standing):
        return EXIT_FAILURES
    return EXIT_OK if found.verdict is Verdict.PASSED else EXIT_NO_GUARANTEE


@asynccontextmanager
async def _frames(study: Study, progress: LiveTable | PlainLines | Silence) -> AsyncIterator[None]:
    async def draw() -> None:
        while True:
            began = time.perf_counter()
            progress.show(study.standing())
            took = time.perf_counter() - began  # long with very many candidates
            await asyncio.sleep(max(_FRAME_SECONDS, _PAUSE * took))

    if isinstance(progress, Silence):
        yield
        return
    drawing = asyncio.create_task(draw())
    try:
        yield
    finally:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing


@asynccontextmanager
async def _interruptible(study: Study) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    presses = 0

    def pressed() -> None:
        nonlocal presses
        presses += 1
        if presses == 1:
            study.stop()
        elif task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, pressed)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
