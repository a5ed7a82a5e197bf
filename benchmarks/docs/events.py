"""The page of the events of a run's log, from the classes and the comments at their fields."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import get_args

from benchmarks.docs.tables import table

from bestarm_agent.domain import events

_HEAD = """# Events

A run is its event log; tables, reports and `resume` are computed from it
([architecture](../architecture.md)). These are the events. A field that holds its default is left
out. To read scores and answers, use [`export` and `answers`](../results.md#answers).
"""


def events_page() -> str:
    """Return the page."""
    source = inspect.getsource(events)
    lines = source.splitlines()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    names = [event.__name__ for event in get_args(events.Event)]
    return "\n".join([_HEAD, *(_section(classes[name], lines) for name in names)])


def _section(event: ast.ClassDef, lines: list[str]) -> str:
    rows = [
        (
            f"`{ast.unparse(node.target)}`",
            f"`{ast.unparse(node.annotation)}`",
            _comment(node, lines),
        )
        for node in event.body
        if isinstance(node, ast.AnnAssign)
    ]
    about = inspect.cleandoc(ast.get_docstring(event) or "").replace("``", "`")
    return f"## {event.name}\n\n{about}\n\n{table(['field', 'type', 'meaning'], rows)}"


def _comment(field: ast.AnnAssign, lines: list[str]) -> str:
    """Return the comment behind a field, or else the lines of comment above it."""
    behind = lines[field.lineno - 1][field.end_col_offset :].partition("#")[2]
    return behind.strip() or " ".join(reversed(list(_above(field.lineno - 2, lines))))


def _above(number: int, lines: list[str]) -> Iterator[str]:
    while (line := lines[number].strip()).startswith("#"):
        yield line.lstrip("# ")
        number -= 1
