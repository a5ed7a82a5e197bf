"""``list``, ``show``, ``report`` and ``export``: look at stored runs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bestarm_agent.archive import Archive
from bestarm_agent.certifying.finding import finding_of
from bestarm_agent.cli.certifying_results import show_finding
from bestarm_agent.cli.options import JsonOption, RunArgument, StoreOption, default_store
from bestarm_agent.cli.results import print_result, stdout_console
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.export import export_scores
from bestarm_agent.wording import safe


class Format(StrEnum):
    """File formats of ``export``."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    NPZ = "npz"


class Form(StrEnum):
    """What a row of an export is: one pair, or one candidate."""

    LONG = "long"
    MATRIX = "matrix"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("list")(list_)
    app.command()(show)
    app.command()(report)
    app.command()(export)


def list_(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all runs in the store, oldest first."""
    runs = asyncio.run(_archive(store).runs())
    if as_json:
        typer.echo(json.dumps([_info_json(info) for info in runs], indent=2))
        return
    stdout_console().print(_runs_table(runs))


def show(
    run: RunArgument = "latest",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a run stands."""
    record = asyncio.run(_archive(store).record(run))
    if record.certifying is not None:
        found = finding_of(record.certifying, record.standing)
        show_finding(found, as_json=as_json, plot=None)
    else:
        print_result(record.standing, as_json=as_json, failures=record.failures)


def report(
    run: RunArgument = "latest",
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; else next to the store.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a run as one HTML file that opens offline."""
    archive = _archive(store)
    record = asyncio.run(archive.record(run))
    path = out or archive.report_path(record.standing.run_id)
    record.write_report(path)
    typer.echo(path)


def export(
    run: RunArgument = "latest",
    out: Annotated[Path | None, typer.Option("--out", help="File; else stdout.")] = None,
    fmt: Annotated[Format | None, typer.Option("--format", help="Format of the file.")] = None,
    form: Annotated[Form, typer.Option(help="One row per pair, or per candidate.")] = (Form.LONG),
    texts: Annotated[bool, typer.Option(help="With the answers read and messages.")] = False,
    store: StoreOption = None,
) -> None:
    """Export a run's scores; cells that were not measured stay empty."""
    state = asyncio.run(_archive(store).state(run))
    target = sys.stdout.buffer if out is None else out
    chosen = fmt.value if fmt else ("csv" if out is None else None)
    export_scores(state, target, format=chosen, form=form.value, texts=texts)


def _archive(store: str | None) -> Archive:
    return Archive(default_store(store))


def _runs_table(runs: Sequence[RunInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "study", "began"):
        table.add_column(name, no_wrap=True)
    for name in ("asked", "told"):
        table.add_column(name, justify="right")
    table.add_column("ended")
    for info in runs:
        ended = info.stopped or "running, or cut off"
        table.add_row(
            info.id, safe(info.name), info.at, f"{info.n_asked:,}", f"{info.n_told:,}", ended
        )
    return table


def _info_json(info: RunInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "name": info.name,
        "at": info.at,
        "asked": info.n_asked,
        "told": info.n_told,
        "ended": info.stopped,
    }
