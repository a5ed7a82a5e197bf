"""The command line: every command, and what an error looks like."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from bestarm_agent import __version__
from bestarm_agent.cli import (
    certifying,
    inspecting,
    judging,
    preparing,
    preselecting,
    selecting,
    simulate,
)
from bestarm_agent.cli.display import print_line
from bestarm_agent.cli.loading_runs import open_run
from bestarm_agent.errors import BestarmError, ConfigError
from bestarm_agent.wording import safe_lines

EXIT_ERROR = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="bestarm-agent",
    help="Finds the best LLM candidate from a small part of the calls.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bestarm-agent {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Finds the best LLM candidate from a small part of the calls."""


preparing.register(app)
selecting.register(app)
inspecting.register(app)
simulate.register(app, open_run=open_run)
preselecting.register(app)
certifying.register(app)
judging.register(app)


def main() -> None:
    """Run a command; errors raised on purpose become one paragraph and an exit code."""
    try:
        app()
    except BestarmError as error:
        print_line(Console(stderr=True), f"error: {safe_lines(str(error))}", indent=len("error: "))
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_ERROR)
