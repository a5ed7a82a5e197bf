"""``bestarm-agent simulate``: how much of an evaluation a selection rule would have saved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from bestarm_agent.cli.simulate_options import (
    BatchOption,
    BudgetOption,
    CostsOption,
    CutoffOption,
    EpsOption,
    FailuresOption,
    InFlightOption,
    JobsOption,
    JsonOption,
    LatencyOption,
    MatrixArgument,
    Per,
    PerOption,
    PlotOption,
    SeedsOption,
    SelectorsOption,
    StoredRuns,
    StoreOption,
    TopKOption,
    TransposeOption,
    check_contest,
    conditions_of,
    parse_budget,
    plan_of,
    processes,
    with_costs,
)
from bestarm_agent.cli.simulate_results import (
    conclusion,
    missing_line,
    results_json,
    results_table,
    results_title,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.contenders import parse_contenders
from bestarm_agent.simulation.curves import GAPS, Curve, Truth, summarise
from bestarm_agent.simulation.figures import check_figure_path, check_folder, draw_study
from bestarm_agent.simulation.matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.reading import Reading
from bestarm_agent.simulation.study import Plan, budget_shares, run_study
from bestarm_agent.simulation.study import Progress as Report

_WIDTH_WITHOUT_TERMINAL = 160


def register(app: typer.Typer, *, open_run: StoredRuns | None = None) -> None:
    """Add the command to an application.

    Args:
        app: what to add it to.
        open_run: reads the score matrix of an earlier run from its store.
    """

    @app.command()
    def simulate(  # noqa: PLR0913 - one argument per option
        matrix: MatrixArgument,
        selectors: SelectorsOption = "auto,ucb-e,sysrs,uniform",
        budget: BudgetOption = "0.01:0.30",
        seeds: SeedsOption = 50,
        in_flight: InFlightOption = None,
        batch: BatchOption = 1,
        latency: LatencyOption = "none",
        failures: FailuresOption = 0.0,
        costs: CostsOption = "matrix",
        per: PerOption = Per.CALL,
        top_k: TopKOption = 1,
        eps: EpsOption = None,
        cutoff: CutoffOption = None,
        transpose: TransposeOption = False,
        json_path: JsonOption = None,
        plot: PlotOption = None,
        jobs: JobsOption = None,
        store: StoreOption = None,
    ) -> None:
        """Replay selection rules on a known score matrix; show what they would have saved."""
        if plot is not None:
            check_figure_path(plot)
        if json_path not in (None, "-"):
            check_folder(Path(json_path))
        conditions = conditions_of(in_flight, batch, latency, failures)
        shares = budget_shares(*parse_budget(budget))
        plan = plan_of(shares, seeds, conditions, top_k, per)
        reading = Reading(cutoff, transposed=transpose)
        stored = None if open_run is None else partial(open_run, store=store)
        known = with_costs(load_matrix(matrix, open_run=stored, reading=reading), costs)
        check_contest(known, per)
        truth = Truth.of(known, top_k=top_k, gaps=sorted({*GAPS, *(eps or ())}))
        curves = _study(truth, selectors, plan, processes(jobs))
        if plot is not None:
            draw_study(plot, curves, title=results_title(truth))
        _show(truth, plan, curves, json_path)


def _study(truth: Truth, selectors: str, plan: Plan, jobs: int) -> dict[str, Curve]:
    matrix: ScoreMatrix = truth.matrix
    contenders = parse_contenders(selectors)
    try:
        with _progress_bar() as report:
            replays = run_study(matrix, contenders, plan, jobs=jobs, progress=report)
    except ValueError as error:  # a rule refuses its options or the problem: the user's to mend
        raise ConfigError(str(error)) from None
    return {label: summarise(truth, runs) for label, runs in replays.items()}


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """A bar on stderr while that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(truth: Truth, plan: Plan, curves: Mapping[str, Curve], json_path: str | None) -> None:
    if json_path is not None:
        text = json.dumps(results_json(truth, plan, curves), indent=1, allow_nan=False)
        if json_path == "-":
            typer.echo(text)
            return
        Path(json_path).write_text(text + "\n", encoding="utf-8")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print(Text(results_title(truth)))
    if (missing := missing_line(truth.matrix)) is not None:
        console.print(Text(missing))
    console.print(results_table(truth, plan, curves))
    console.print(Text(conclusion(plan, curves)))
