"""Runs ``simulate``: reads the matrix, replays the rules with a progress bar, shows the result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from bestarm_agent.cli.result_output import stdout_console
from bestarm_agent.cli.simulate.inputs import check_contest, known_scores, plan_of
from bestarm_agent.cli.simulate.options import MatrixOptions, OutputOptions, ReplayOptions
from bestarm_agent.cli.simulate.output import (
    Results,
    conclusion,
    missing_lines,
    results_json,
    results_table,
    results_title,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.report.text import safe
from bestarm_agent.simulation.curves import GAPS, Curve, Truth, summarise
from bestarm_agent.simulation.figures import check_figure_path, check_folder, draw_study
from bestarm_agent.simulation.floor import information_floor
from bestarm_agent.simulation.replay_many import Plan, run_study
from bestarm_agent.simulation.replay_many import Progress as Report
from bestarm_agent.simulation.rule_specs import parse_contenders


def run_replay(source: MatrixOptions, replay: ReplayOptions, output: OutputOptions) -> None:
    """Replay the rules on the matrix and show the curves; raises ConfigError on wrong options."""
    if output.plot is not None:
        check_figure_path(output.plot)
    if output.json_path not in (None, "-"):
        check_folder(Path(output.json_path))
    plan = plan_of(replay)
    if output.floor and plan.top_k > 1:
        raise ConfigError("--floor is known for one best candidate; leave out --top-k or --floor")
    known, notes = known_scores(source)
    check_contest(known, replay.per)
    truth = Truth.of(known, top_k=replay.top_k, gaps=sorted({*GAPS, *(replay.eps or ())}))
    curves = _study(truth, replay.selectors, plan, replay.jobs or os.cpu_count() or 1)
    if output.plot is not None:
        draw_study(output.plot, curves, title=results_title(truth))
    floor = information_floor(known, per_cost=plan.per_cost) if output.floor else None
    results = Results(truth, plan, curves, floor)
    _show(results, notes, output.json_path)


def _study(truth: Truth, selectors: str, plan: Plan, jobs: int) -> dict[str, Curve]:
    contenders = parse_contenders(selectors)
    try:
        with _progress_bar() as report:
            replays = run_study(truth.matrix, contenders, plan, jobs=jobs, progress=report)
    except ValueError as error:  # a rule refuses its options or the problem
        raise ConfigError(str(error)) from None
    return {label: summarise(truth, runs) for label, runs in replays.items()}


@contextmanager
def _progress_bar() -> Iterator[Report]:
    console = Console(stderr=True, emoji=False)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(results: Results, notes: Sequence[str], json_path: str | None) -> None:
    if json_path is not None:
        text = json.dumps(results_json(results), indent=1, allow_nan=False)
        if json_path == "-":
            typer.echo(text)
            return
        Path(json_path).write_text(text + "\n", encoding="utf-8")
    console = stdout_console()
    truth = results.truth
    for line in (results_title(truth), *(notes or missing_lines(truth.matrix))):
        console.print(Text(safe(line)))
    console.print(results_table(results))
    console.print(Text(conclusion(results)))
