"""The page of all commands, from the application itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import click

from bestarm_agent.cli.main import app

_HEAD = """# Commands

Every command with its arguments and options, as `--help` prints them. `bestarm-agent --version`
prints the version. With `eval "$(_BESTARM_AGENT_COMPLETE=bash_source bestarm-agent)"` bash
completes commands and options (`zsh_source`, `fish_source` elsewhere).
[Exit codes and the output of `--json`](json.md) have a page of their own. `--set` takes
[every key of a study](study-keys.md).
"""


_MANY = 3  # commands that have an option: it is explained once


def items(found: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and what they mean."""
    said = (f"- `{name}`: {text}".removesuffix(": ") for name, text in found)
    return "\n".join(said).replace("``", "`").replace("None", "null") + "\n"


def commands_page() -> str:
    """Return the page."""
    found = list(_commands("bestarm-agent", app, None))
    uses = Counter(row for _, command, context in found for row in _rows(command, context))
    common = {row for row, count in uses.items() if count >= _MANY}
    listed = items(sorted(common))
    head = f"{_HEAD}\n## Options that many commands have\n\n{listed}"
    return "\n".join([head, *(_section(*one, common) for one in found)])


def _commands(
    name: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield the commands, and those within groups."""
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for word, one in command.commands.items():
            yield from _commands(f"{name} {word}", one, context)
        return
    yield name, command, context


def _rows(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    return [
        (form, text)
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts
        if (record := parameter.get_help_record(context))
        for form, text in [record]
    ]


def _section(
    name: str, command: click.Command, context: click.Context, common: set[tuple[str, str]]
) -> str:
    pieces = [one for one in command.collect_usage_pieces(context) if one != "[OPTIONS]"]
    usage = " ".join([name, *pieces])
    rows = _rows(command, context)
    own = [row for row in rows if row not in common]
    about = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    text = f"## {name.removeprefix('bestarm-agent ')}\n\n`{usage}`\n\n{about}\n"
    if own:
        text += "\n" + items(own)
    if also := [form.split(",")[-1].split()[0] for form, _ in rows if (form, _) in common]:
        text += f"\nAnd {', '.join(f'`{flag}`' for flag in also)}.\n"
    return text
