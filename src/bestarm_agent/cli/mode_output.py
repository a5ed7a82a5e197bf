"""The answer of a certification or a gate, on stdout: a table and a few lines, or JSON."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.cli.progress import print_line
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.report.text import safe, shortened

_INDENT = len("Labels used: ")
_GAP = 2  # between columns
_WIDER = 8  # characters of the cells of an interval beyond the head of its column


def print_mode_result(found: ModeResult, *, as_json: bool, report: Path | None = None) -> None:
    """Print the answer of a mode."""
    if as_json:
        typer.echo(json.dumps(found.as_json, indent=2, ensure_ascii=False))
        return
    console = stdout_console()
    if len(found.rows) > 1 or not all(row.said for row in found.rows):
        console.print(_table(found, console.width))
        console.print()
    for line in found.lines:
        print_line(console, safe(line), indent=_INDENT)
    if report is not None:
        print_line(console, f"Report:    {report}", indent=_INDENT)


def _table(found: ModeResult, width: int) -> Table:
    name, verdict, *numbers = (head.lower() for head in found.columns)
    table = plain_table(name, verdict, right=numbers)
    room = width - sum(len(head) + _GAP for head in (verdict, *numbers)) - _WIDER
    for row in found.rows:
        label, _, *cells = row.cells
        table.add_row(shortened(label, room), found.marks[row.verdict], *cells)
    return table
