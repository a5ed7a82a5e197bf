"""What ``certify`` shows: a table and a few lines, one JSON object, a picture."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.certifying.finding import Finding, finding_json, finding_lines, screened_rows
from bestarm_agent.cli.display import print_line
from bestarm_agent.cli.results import stdout_console
from bestarm_agent.simulation.certify_figures import draw_certificate

_SHOWN_ROWS = 12

_INDENT = len("Labels used: ")


def show_finding(found: Finding, *, as_json: bool, plot: Path | None) -> None:
    """Print a finding, and draw it where that is asked for.

    Raises:
        ConfigError: the format of the picture is unknown, or matplotlib is not installed.
    """
    if plot is not None:
        draw_certificate(plot, found.certificate, found.names, found.goal, found.reliance)
    if as_json:
        typer.echo(json.dumps(finding_json(found), indent=1, ensure_ascii=False))
        return
    console = stdout_console()
    console.print(_screened_table(found))
    hidden = len(found.certificate.screened) - _SHOWN_ROWS
    if hidden > 0:
        console.print(f"... after {hidden} more", style="dim")
    console.print()
    for line in finding_lines(found):
        print_line(console, line, indent=_INDENT)


def _screened_table(found: Finding) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate")
    for column in ("verdict", "labels", "e-value", "needed", "mean loss"):
        table.add_column(column, justify="right")
    for cells in list(screened_rows(found))[-_SHOWN_ROWS:]:
        table.add_row(*cells)
    return table
