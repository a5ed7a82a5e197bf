"""Show the result of ``certify``: a table and a few lines, one JSON object, a picture."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.certification.tables.figures import draw_certificate
from bestarm_agent.cli.progress import print_line
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.report.certificate import CertificateSummary

_SHOWN_ROWS = 12

_INDENT = len("Labels used: ")


def show_finding(found: CertificateSummary, *, as_json: bool, plot: Path | None) -> None:
    """Print a finding, and draw it; raise ConfigError for an unknown format, or no matplotlib."""
    if plot is not None:
        draw_certificate(plot, found.certificate, found.names, found.goal, found.reliance)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1, ensure_ascii=False))
        return
    console = stdout_console()
    console.print(_screened_table(found))
    hidden = len(found.certificate.screened) - _SHOWN_ROWS
    if hidden > 0:
        console.print(f"... after {hidden} more", style="dim")
    console.print()
    for line in found.lines():
        print_line(console, line, indent=_INDENT)


def _screened_table(found: CertificateSummary) -> Table:
    table = plain_table("candidate", right=("verdict", "labels", "e-value", "needed", "mean loss"))
    for cells in found.rows()[-_SHOWN_ROWS:]:
        table.add_row(*cells)
    return table
