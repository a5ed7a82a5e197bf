"""The page of all commands, from the application itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
from benchmarks.docs.tables import table

from bestarm_agent.cli.main import app

_HEAD = """# Commands

Every command with its arguments and options, as `--help` prints them. `bestarm-agent --version`
prints the version. With `eval "$(_BESTARM_AGENT_COMPLETE=bash_source bestarm-agent)"` bash
completes commands and options (`zsh_source`, `fish_source` elsewhere).
[Exit codes and the output of `--json`](json.md) have a page of their own. `--set` takes
[every key of a study](study-keys.md).
"""


def commands_page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_sections("bestarm-agent", app, None)])


def _sections(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    """Yield the sections of a command and its inner ones; a group has none of its own."""
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for word, one in command.commands.items():
            yield from _sections(f"{name} {word}", one, context)
        return
    yield _section(name, command, context)


def _section(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [
        (f"`{form}`", text)
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts
        if (record := parameter.get_help_record(context))
        for form, text in [record]
    ]
    about = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    return (
        f"## {name.removeprefix('bestarm-agent ')}\n\n{about}\n\n```text\n{usage}\n```\n\n"
        + table(["option", "meaning"], rows)
    )
