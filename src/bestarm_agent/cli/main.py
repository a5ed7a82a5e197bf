"""The command line; modules of commands import late, to keep ``--help`` and completion light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated

import typer

from bestarm_agent._version import __version__
from bestarm_agent.cli import (
    answers,
    certify,
    compare,
    demo,
    gate,
    import_logs,
    init_plan,
    judge_check,
    list_show_export,
    preselect,
    providers,
    select_resume,
    simulate,
    try_models,
    view,
)
from bestarm_agent.cli.options import expanded
from bestarm_agent.errors import BestarmError, ConfigError

EXIT_ERROR = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="bestarm-agent",
    help="Finds the best LLM candidate from a small part of the calls.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # panels take longer to import than all the rest of --help
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


_VERSION = f"bestarm-agent {__version__}"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(_VERSION)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Finds the best LLM candidate from a small part of the calls."""


_COMMANDS: Mapping[str, Callable[..., None]] = {
    "demo": demo.demo,
    "init": init_plan.init,
    "plan": init_plan.plan,
    "try": try_models.try_models,
    "select": select_resume.select,
    "optimize": select_resume.optimize,
    "resume": select_resume.resume,
    "list": list_show_export.list_,
    "show": list_show_export.show,
    "report": list_show_export.report,
    "export": list_show_export.export,
    "answers": answers.answers,
    "compare": compare.compare,
    "view": view.view,
    "import": import_logs.import_,
    "simulate": simulate.simulate,
    "certify": certify.certify,
    "gate": gate.gate,
    "providers": providers.providers,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(expanded(_command))
for _group in (preselect, judge_check):
    _group.register(app)


@cache
def _command_line() -> Callable[[], None]:
    """Build the command line, once per process: tests run many commands in one."""
    return typer.main.get_command(app)


def main() -> None:
    """Run a command; errors raised on purpose become one paragraph and an exit code."""
    if sys.argv[1:] == ["--version"]:  # typer would load pydantic to read the flag
        typer.echo(_VERSION)
        return
    try:
        _command_line()()
    except BestarmError as error:
        _print_error(error)
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_ERROR)


def _print_error(error: BestarmError) -> None:
    from rich.console import Console

    from bestarm_agent.cli.progress import print_line
    from bestarm_agent.report.words import safe_lines

    print_line(
        Console(stderr=True, emoji=False), f"error: {safe_lines(str(error))}", indent=len("error: ")
    )
