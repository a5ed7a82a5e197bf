"""``select`` and ``resume``: run a study in front of somebody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from bestarm_agent.certifying.finding import Finding, finding_of
from bestarm_agent.cli.certifying_results import show_finding
from bestarm_agent.cli.display import LiveTable, PlainLines, Silence
from bestarm_agent.cli.options import (
    CallsOption,
    CandidatesOption,
    CatalogOption,
    ConfidenceOption,
    Display,
    DisplayOption,
    EpsilonOption,
    HistoryOption,
    InFlightOption,
    JsonOption,
    MinutesOption,
    NoCacheOption,
    ObjectiveOption,
    OutputOption,
    PerOption,
    PullsOption,
    QuietOption,
    RunArgument,
    SeedOption,
    SelectorOption,
    ShareOption,
    StoreOption,
    TokensOption,
    UsdOption,
    UsdPer1kOption,
    default_store,
    overrides,
    study_options,
)
from bestarm_agent.cli.results import print_result
from bestarm_agent.config.settings import more_budget, resolve
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


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(select)
    app.command()(resume)


def select(  # noqa: PLR0913 - one argument per option
    candidates: CandidatesOption,
    selector: SelectorOption = None,
    history: HistoryOption = None,
    per: PerOption = None,
    objective: ObjectiveOption = None,
    epsilon: EpsilonOption = None,
    usd_per_1k: UsdPer1kOption = None,
    seed: SeedOption = None,
    confidence: ConfidenceOption = None,
    budget_share: ShareOption = None,
    budget_usd: UsdOption = None,
    budget_pulls: PullsOption = None,
    budget_calls: CallsOption = None,
    budget_tokens: TokensOption = None,
    budget_minutes: MinutesOption = None,
    in_flight: InFlightOption = None,
    output_dir: OutputOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    display: DisplayOption = Display.AUTO,
) -> None:
    """Find the best candidate from a small part of the calls."""
    changes = overrides(
        selector__name=selector,
        selector__history=history,
        selector__per=per,
        objective__name=objective,
        objective__epsilon=epsilon,
        objective__usd_per_1k_calls=usd_per_1k,
        selector__seed=seed,
        selector__confidence=confidence,
        budget__share=budget_share,
        budget__usd=budget_usd,
        budget__pulls=budget_pulls,
        budget__calls=budget_calls,
        budget__tokens=budget_tokens,
        budget__minutes=budget_minutes,
        limits__in_flight=in_flight,
        output_dir=output_dir,
    )
    options = study_options(store, catalog, no_cache=no_cache)
    opening = Study.open(resolve(candidates, changes), options=options)
    run_study(opening, None, Showing(as_json=as_json, quiet=quiet, display=display))


def resume(  # noqa: PLR0913 - one argument per option
    run: RunArgument = "latest",
    budget_usd: UsdOption = None,
    budget_pulls: PullsOption = None,
    budget_calls: CallsOption = None,
    budget_tokens: TokensOption = None,
    budget_minutes: MinutesOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    display: DisplayOption = Display.AUTO,
) -> None:
    """Go on with a run after an interruption or a crash, or with more budget.

    A --budget-... given here is what may be spent beyond what the run has spent already.
    """
    more = more_budget(
        usd=budget_usd,
        pulls=budget_pulls,
        calls=budget_calls,
        tokens=budget_tokens,
        minutes=budget_minutes,
    )
    options = study_options(default_store(store), catalog, no_cache=no_cache)
    showing = Showing(as_json=as_json, quiet=quiet, display=display)
    run_study(Study.resume(run, options=options), None if more == Budget() else more, showing)


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
        with starting(console, showing):
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


@contextmanager
def starting(console: Console, showing: Showing) -> Iterator[None]:
    """Say on a terminal that something happens before the first call: libraries take seconds."""
    wanted = not showing.quiet and showing.display in (Display.AUTO, Display.FULL)
    if not (wanted and console.is_terminal):
        yield
        return
    with console.status("reading the study and starting what answers"):
        yield


def print_notices(console: Console, notices: Iterable[str]) -> None:
    """Print what users should know, a line each."""
    for notice in notices:
        console.print(f"notice: {safe(notice)}", markup=False, highlight=False, soft_wrap=True)


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
