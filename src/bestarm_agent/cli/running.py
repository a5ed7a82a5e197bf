"""A study run in front of somebody: progress, Ctrl-C, the result, the exit code."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from bestarm_agent.certifying.finding import Finding, finding_of
from bestarm_agent.cli.certifying_results import show_finding
from bestarm_agent.cli.display import LiveTable, PlainLines, Silence, busy, print_line
from bestarm_agent.cli.options import Display
from bestarm_agent.cli.results import print_result
from bestarm_agent.domain.spend import Budget
from bestarm_agent.runner import End
from bestarm_agent.standing import Standing
from bestarm_agent.study import Study
from bestarm_agent.wording import safe

_FRAME_SECONDS = 0.25
EXIT_OK = 0
EXIT_NO_GUARANTEE = 3
EXIT_FAILURES = 4
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Showing:
    """How a run and its result are shown."""

    as_json: bool
    quiet: bool
    display: Display
    plot: Path | None = None  # of a certification


def run_study(
    opening: AbstractAsyncContextManager[Study], budget: Budget | None, showing: Showing
) -> None:
    """Run a study in front of somebody, show its result, and exit with the code that says it."""
    try:
        code = asyncio.run(_run_and_report(opening, budget, showing))
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("aborted; `bestarm-agent resume` goes on", err=True)
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


async def _run_and_report(
    opening: AbstractAsyncContextManager[Study], budget: Budget | None, showing: Showing
) -> int:
    console = Console(stderr=True)
    async with AsyncExitStack() as stack:
        wanted = not showing.quiet and showing.display in (Display.AUTO, Display.FULL)
        with busy(console, "reading the study and starting what answers", wanted=wanted):
            study = await stack.enter_async_context(opening)
        print_notices(console, study.notices)
        progress = progress_on(console, showing.display, quiet=showing.quiet)
        standing = await run_shown(study, budget, progress)
        print_notices(console, study.remarks())
        report = study.write_report()
        if study.certifying is not None:
            finding = finding_of(study.certifying, standing)
            show_finding(finding, as_json=showing.as_json, plot=showing.plot)
            return certified_code(finding, standing)
        failures = study.failures()
    print_result(standing, as_json=showing.as_json, report=report, failures=failures)
    return exit_code(standing, confidence_asked=study.confidence_asked)


def print_notices(console: Console, notices: Iterable[str]) -> None:
    """Print what users should know, a line each."""
    for notice in notices:
        print_line(console, f"notice: {safe(notice)}", indent=len("notice: "))


def progress_on(
    console: Console, display: Display, *, quiet: bool
) -> LiveTable | PlainLines | Silence:
    """Choose how progress is shown: a live table on a terminal, plain lines elsewhere."""
    if quiet or display is Display.NONE:
        return Silence()
    if display is Display.FULL or (display is Display.AUTO and console.is_terminal):
        return LiveTable(console)
    return PlainLines(console)


async def run_shown(
    study: Study, budget: Budget | None, progress: LiveTable | PlainLines | Silence
) -> Standing:
    """Run a study while its standing is shown; Ctrl-C once drains and saves, twice aborts."""
    with progress:
        async with _frames(study, progress), _interruptible(study):
            standing = await study.run(budget)
        progress.show(standing)
    return standing


def exit_code(standing: Standing, *, confidence_asked: bool) -> int:
    """What the exit code says; the README lists them."""
    if standing.end == End.FAILURES:
        return EXIT_FAILURES
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    if confidence_asked and not standing.established:
        return EXIT_NO_GUARANTEE
    return EXIT_OK


def certified_code(finding: Finding, standing: Standing) -> int:
    """What the exit code of a certification says."""
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    if standing.end == End.FAILURES:
        return EXIT_FAILURES
    return EXIT_OK if finding.certificate.chosen is not None else EXIT_NO_GUARANTEE


@asynccontextmanager
async def _frames(study: Study, progress: LiveTable | PlainLines | Silence) -> AsyncIterator[None]:
    async def draw() -> None:
        while True:
            progress.show(study.standing())
            await asyncio.sleep(_FRAME_SECONDS)

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
