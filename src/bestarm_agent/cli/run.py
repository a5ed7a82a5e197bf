"""``select``, ``resume``, ``optimize``, ``gate`` and ``certify``: run a study, show its result."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from stat import S_ISCHR
from typing import TypeAlias

import click
from rich.console import Console

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.options import EXIT_INTERRUPTED
from bestarm_agent.cli.output import print_line, stderr_console
from bestarm_agent.cli.progress import LiveTable, PlainLines, Progress, busy
from bestarm_agent.cli.result_output import print_mode_result, print_result
from bestarm_agent.cli.stores import find_run, runnable, store_option
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.settings import more_budget
from bestarm_agent.config.study import BudgetSpec
from bestarm_agent.domain.text import safe
from bestarm_agent.domain.values import PromptTemplate
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.decision import NO_WINNER, passed_caps
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError
from bestarm_agent.optimization.rounds import load_proposer, run_as_configured
from bestarm_agent.stats.non_inferiority import Conclusion
from bestarm_agent.study import Study

_FRAME_SECONDS = 0.25
# Between two frames, in terms of the time that one takes: drawing takes at most a twentieth of the
# event loop, which also sends the calls.
_PAUSE = 20
EXIT_OK = 0
EXIT_NO_GUARANTEE = 3
EXIT_FAILURES = 4
EXIT_WORSE = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Drive: TypeAlias = Callable[[Study], Awaitable[Standing]]  # runs a study that is open


def select(given: Given) -> int:
    """Run a study."""
    return run_study(Study.open(_loaded(given), options=given.options()), given)


def _loaded(given: Given) -> LoadedStudy:
    """Read the study, which takes seconds where many candidates are listed."""
    with busy(stderr_console(), "reading the study", wanted=given.display != "none"):
        return given.load()


def resume(given: Given) -> int:
    """Go on with a run; caps are what may be spent from now on."""
    where, run = find_run(given.run, given.store)
    return run_study(
        Study.resume(run, options=given.options(where)), given, more_budget(given.replaced)
    )


def optimize(given: Given, out: Path | None) -> int:
    """Run a study in rounds; write the winner's prompt to ``out``."""
    study = _loaded(given)
    if study.config.optimize is None:
        raise ConfigError("who proposes prompts is not said; name a function by --proposer")
    load_proposer(study.config.optimize.proposer, study.base_dir)  # fails before a run begins
    check_targets(out)

    async def drive(study: Study) -> Standing:
        standing = await run_as_configured(study)
        if out is not None and standing.winner is not None:
            write_file(out, f"{_prompt_text(standing.winner.candidate.prompt)}\n")
        return standing

    return run_study(Study.open(study, options=given.options()), given, drive=drive)


def gate(given: Given, improve: bool, markdown: Path | None, junit: Path | None) -> int:
    """Compare candidates with a baseline; write summaries of the verdicts."""
    check_targets(markdown, junit)
    study = _loaded(given.replacing("gate.improve", True) if improve else given)

    def write(result: ModeResult, name: str) -> None:
        from bestarm_agent.gate import summary

        for path, text in ((markdown, summary.markdown), (junit, summary.junit)):
            if path is not None:
                write_file(path, text(result, name))

    return run_study(Study.gate(study, options=given.options()), given, write=write)


def certify(given: Given, labels: Path | None) -> int:
    """Run a certification; ``labels`` may lie anywhere."""
    if labels is not None:  # relative to the study, so that the run can be moved
        path = Path(os.path.relpath(labels, given.path.parent)).as_posix()
        given = given.replacing("certify.labels", path)
    study = _loaded(given)
    if study.config.certify is None:
        raise ConfigError(
            f"{given.path} has no section `certify`; write one, or say what is good enough "
            f"and who scores: --risk 0.1 --judge NAME"
        )
    return run_study(Study.open(study, options=given.options()), given)


def check_targets(*paths: Path | None) -> None:
    """Refuse files that cannot be written, before anything is paid for; with a ConfigError."""
    for path in paths:
        if path is not None and path.is_dir():
            raise ConfigError(f"{path} is a folder; name a file in it")
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}")


def write_file(path: Path, text: str) -> None:
    """Write a summary; raise ConfigError where that fails."""
    try:
        path.write_text(text, encoding="utf-8")
        click.echo(f"written: {path}", err=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}); what was paid for is kept, and "
            "`bestarm-agent show` and `report` show what a run found"
        ) from error


def _prompt_text(prompt: PromptTemplate) -> str:
    """Return a text as it is, and chat messages as JSON, which is YAML: studies read both."""
    return prompt.text or json.dumps(prompt.as_json(), indent=2, ensure_ascii=False)


def run_study(
    opening: AbstractAsyncContextManager[Study],
    given: Given,
    extra: BudgetSpec | None = None,
    *,
    write: Callable[[ModeResult, str], None] | None = None,
    drive: Drive = run_as_configured,
) -> int:
    """Run a study with progress, show its result, and return the exit code.

    ``extra`` is the most to spend from now on; None: what is left of the configured budget.
    ``drive`` runs it, and ``write`` is given the answer of its mode and its name.
    """
    # Imported before the run: where files or memory run out in its course, importing would fail,
    # and what it found could not be reported any more.
    import_module("bestarm_agent.report.html_page")
    opened: list[Study] = []
    try:
        return asyncio.run(_run_and_report(opening, opened, given, extra, write, drive))
    except (KeyboardInterrupt, asyncio.CancelledError):
        for study in opened:
            resume = f"bestarm-agent resume {study.run_id}{store_option(study.store)}"
            click.echo(f"aborted; `{resume}` continues this run", err=True)
        return EXIT_INTERRUPTED


async def _run_and_report(
    opening: AbstractAsyncContextManager[Study],
    opened: list[Study],
    given: Given,
    extra: BudgetSpec | None,
    write: Callable[[ModeResult, str], None] | None,
    drive: Drive,
) -> int:
    console, display, as_json = stderr_console(), given.display, given.as_json
    async with _interruptible(opened), AsyncExitStack() as stack:
        preparing = "preparing the candidates and starting their providers"
        try:
            with busy(console, preparing, wanted=display != "none"):
                study = await stack.enter_async_context(opening)
        except asyncio.CancelledError:
            click.echo("stopped while the study was opened: nothing was called", err=True)
            return EXIT_INTERRUPTED
        opened.append(study)
        known = study.notices
        print_notices(console, [*known, *_without_effect(study, extra)])
        standing = await run_shown(study, extra, progress_on(console, display), drive)
        print_notices(console, (*study.notices[len(known) :], *study.remarks()))
        report = await study.write_report()
        standing = runnable(standing, study.store)
        failures = study.failures()
        if (result := study.result(standing)) is not None:
            print_mode_result(result, standing, as_json=as_json, report=report, failures=failures)
            if write is not None:
                write(result, standing.name)
            return mode_exit_code(result, standing)
    print_result(standing, as_json=as_json, report=report, failures=failures)
    asked = study.parts.config.selector.confidence is not None
    return exit_code(standing, confidence_asked=asked)


def _without_effect(study: Study, extra: BudgetSpec | None) -> Iterator[str]:
    """Say which amounts change nothing: going on raises caps, and adds none."""
    if extra is None:
        return
    grid, known = study.standing().grid, asdict(study.budget)
    for name, amount in extra.model_dump(exclude_none=True).items():
        added = asdict(BudgetSpec.model_validate({name: amount}).caps(grid))
        if any(cap is not None and known[what] is None for what, cap in added.items()):
            yield (
                f"--budget-{name.replace('_', '-')} changes nothing: the study has no such cap, "
                "and going on raises caps but adds none; begin a study with one (what was bought "
                "is taken from the reply cache)"
            )


def print_notices(console: Console, notices: Iterable[str]) -> None:
    """Print what users should know, one line each."""
    for notice in notices:
        print_line(console, f"notice: {safe(notice)}", indent=len("notice: "))


def progress_on(console: Console, display: str) -> Progress:
    """Choose how progress is shown: a live table on a terminal, plain lines elsewhere."""
    if display == "none":
        return Progress()
    if display == "full" or (display == "auto" and console.is_terminal):
        return LiveTable(console)
    return PlainLines(console)


async def run_shown(
    study: Study, extra: BudgetSpec | None, progress: Progress, drive: Drive = Study.run
) -> Standing:
    """Run a study and show its standing."""
    with progress:
        async with frames(study, progress):
            if extra is not None:
                study.raise_budget(extra.caps(study.standing().grid))
            standing = await drive(study)
        progress.show(standing)
    return standing


def exit_code(standing: Standing, *, confidence_asked: bool) -> int:
    """Return the exit code of a run; docs/reference/json.md#exit-codes lists them."""
    # The first that holds: stopped from outside; too many calls failed, or a cap was passed; not
    # what was asked for; done. A script needs the first two before it looks at any decision.
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    decision = standing.decision
    kind = None if decision.problem is None else decision.problem.kind
    if standing.end == End.FAILURES or passed_caps(standing):
        return EXIT_FAILURES
    # a proof that nobody keeps the limits names no winner either
    sure = decision.proved or not confidence_asked
    if kind in NO_WINNER or decision.take is None or not sure:
        return EXIT_NO_GUARANTEE
    return EXIT_OK


def mode_exit_code(result: ModeResult, standing: Standing) -> int:
    """Return the exit code of a run whose mode has an answer of its own."""
    if standing.end == End.INTERRUPTED:
        return EXIT_INTERRUPTED
    # a regression that is proved stays one, whatever failed on the way
    code = verdict_code(result.verdict)
    if code != EXIT_WORSE and (standing.end == End.FAILURES or passed_caps(standing)):
        return EXIT_FAILURES
    return code


def verdict_code(verdict: Conclusion) -> int:
    """Return the exit code of a verdict on candidates."""
    if verdict is Conclusion.FAILED:
        return EXIT_WORSE
    return EXIT_OK if verdict is Conclusion.PASSED else EXIT_NO_GUARANTEE


@asynccontextmanager
async def frames(study: Study, progress: Progress) -> AsyncIterator[None]:
    """Draw the standing several times a second, or less often where that takes long."""

    async def draw() -> None:
        while True:
            began = time.perf_counter()
            progress.show(study.standing(of_new=False))
            took = time.perf_counter() - began  # long with very many candidates
            await asyncio.sleep(max(_FRAME_SECONDS, _PAUSE * took))

    if type(progress) is Progress:
        yield
        return
    drawing = asyncio.create_task(draw())
    # The last frame is drawn by the caller, after this task has ended: two at once would mix.
    try:
        yield
    finally:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing


@asynccontextmanager
async def _interruptible(opened: Sequence[Study]) -> AsyncIterator[None]:
    """Let signals end a command in order; ``opened`` holds the study once it is open.

    The first one drains and saves, the second aborts; before the study is open, so does the first.
    """
    # What a signal does depends on how far the command is:
    #
    #                        first signal                      second signal
    #   study being opened   the task is cancelled             the same again
    #   study open           it stops: calls under way are     the task is cancelled: calls under
    #                        waited for, and saved             way are lost, the log is not
    #
    # The caller fills ``opened``, since the study does not exist yet when the handlers are set.
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    presses = 0

    def pressed(number: int) -> None:
        nonlocal presses
        presses += 1
        if number == signal.SIGHUP:  # the terminal is gone: writing to it would raise
            with open(os.devnull, "w") as nowhere:
                for descriptor in (1, 2):  # not a file or a pipe; `isatty` denies what is gone
                    if S_ISCHR(os.fstat(descriptor).st_mode):
                        os.dup2(nowhere.fileno(), descriptor)
        if presses == 1 and opened:
            opened[0].stop()
            # a live table takes the place of this stream, to keep lines above it
            sys.stderr.write("stopping once calls under way are done; Ctrl-C again aborts\n")
        elif task is not None:
            task.cancel()

    # what is ignored stays so: `nohup` has a command outlive its terminal
    caught = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, pressed, number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
