"""The page of all commands, from the application itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast

import typer
from benchmarks.docs.tables import table
from typer.core import TyperCommand, TyperGroup

from bestarm_agent.cli.main import app

_Command: TypeAlias = TyperCommand | TyperGroup
_HEAD = """# Commands

Every command with its arguments and options, as `--help` prints them. `bestarm-agent --version`
prints the version, `bestarm-agent --install-completion` makes the shell complete commands and
options. [Exit codes](../exit-codes.md) have a page of their own, and so has
[the output of `--json`](json.md).
"""


def commands_page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_sections("bestarm-agent", _application(), None)])


def _application() -> _Command:
    return cast("_Command", typer.main.get_command(app))


def _sections(name: str, command: _Command, parent: typer.Context | None) -> Iterator[str]:
    """Yield the sections of a command and its inner ones; a group has none of its own."""
    context = typer.Context(command, info_name=name, parent=parent)
    if inner := getattr(command, "commands", {}):
        for word, one in inner.items():
            if not one.hidden:
                yield from _sections(f"{name} {word}", one, context)
        return
    yield _section(name, command, context)


def _section(name: str, command: _Command, context: typer.Context) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [
        (f"`{form}`", text)
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts
        if (record := parameter.get_help_record(context))
        for form, text in [record]
    ]
    about = (command.help or "").strip()
    options = "\n" + table(["option", "meaning"], rows) if rows else ""
    return (
        f"## {name.removeprefix('bestarm-agent ')}\n\n{about}\n\n```text\n{usage}\n```\n{options}"
    )
