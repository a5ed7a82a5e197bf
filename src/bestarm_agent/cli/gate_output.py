"""Show the answer of ``gate``: a table and a few lines, one JSON object, files for CI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.cli.progress import print_line
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.errors import ConfigError
from bestarm_agent.gate.files import junit, markdown
from bestarm_agent.gate.summary import MARKS, GateSummary
from bestarm_agent.report.text import safe, shortened

EXIT_WORSE = 5
_INDENT = len("Baseline:  ")
_GAP = 2  # between columns
_MORE_OF_INTERVAL = 8  # characters of its cells beyond its name


@dataclass(frozen=True, slots=True)
class GateFiles:
    """Files to write besides."""

    markdown: Path | None = None
    junit: Path | None = None

    def check(self) -> None:
        """Refuse files that cannot be written, before anything is paid for; with a ConfigError."""
        for path in (self.markdown, self.junit):
            if path is not None and not path.parent.is_dir():
                raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}")

    def write(self, found: GateSummary) -> None:
        """Write those that are named."""
        for path, text in ((self.markdown, markdown), (self.junit, junit)):
            if path is not None:
                path.write_text(text(found), encoding="utf-8")


def _table(found: GateSummary, width: int) -> Table:
    """Return a line for each challenger and slice; the lines below say what the verdicts mean."""
    numbers = ("examples", "difference", "interval", "better", "worse")
    table = plain_table("challenger", "verdict", right=numbers)
    room = width - sum(len(name) + _GAP for name in (*numbers, "verdict")) - _MORE_OF_INTERVAL
    for (_, one), (label, _, *cells) in zip(found.entries(), found.rows(), strict=True):
        table.add_row(shortened(label, room), MARKS[one.verdict], *cells)
    return table


def show_gate(found: GateSummary, *, as_json: bool, report: Path | None = None) -> None:
    """Print the verdicts."""
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
        return
    console = stdout_console()
    if len(found.compared) > 1 or found.has_slices:
        console.print(_table(found, console.width))
        console.print()
    for line in found.lines():
        print_line(console, safe(line), indent=_INDENT)
    if report is not None:
        print_line(console, f"Report:    {report}", indent=_INDENT)
