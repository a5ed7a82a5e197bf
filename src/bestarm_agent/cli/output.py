"""Printing of commands: tables, JSON, and long lines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import Literal, TypeAlias

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from bestarm_agent.domain.text import LEAST_LABEL, safe

Keep: TypeAlias = Literal["all", "start", "middle", "end"]

# Escape sequences in an answer of a model could rewrite the terminal. Of the control characters
# JSON escapes those below a blank by itself, and leaves DEL and the C1 codes (CSI is \x9b).
_CONTROL = re.compile("[\x7f-\x9f]")
GAP = 2  # blanks between columns
_WIDTH_WITHOUT_TERMINAL = 140


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Where space ends, ``keep`` tells which part of its texts stays."""

    title: str
    keep: Keep = "all"
    right: bool = False  # aligned to the right, as numbers are
    leaves: bool = False  # may be left out where space ends, the last first


def numbers(*titles: str, leaves: bool = False) -> list[Column]:
    """Return columns of numbers."""
    return [Column(title, right=True, leaves=leaves) for title in titles]


def table_lines(
    titled: Sequence[Column | str], rows: Iterable[Sequence[str]], width: int
) -> tuple[str, list[str]]:
    r"""Lay out a table of so many characters; return its head and the lines of its rows.

    Example:
        >>> head, rows = table_lines(
        ...     [Column("candidate", "middle"), *numbers("n")],
        ...     [["llama-167k/spaced/t=0.7", "8"]],
        ...     19,
        ... )
        >>> print(head, *rows, sep="\n")
        candidate         n
        llama-16…d/t=0.7  8
    """
    columns = [Column(title) if isinstance(title, str) else title for title in titled]
    cells = [[safe(" ".join(cell.split())) for cell in row] for row in rows]
    widths = [
        max([cell_len(column.title), *(cell_len(row[i]) for row in cells)])
        for i, column in enumerate(columns)
    ]
    # What may leave goes before anything is cut: half a name says less than a column less.
    leaving = [i for i, column in enumerate(columns) if column.leaves]
    while leaving and sum(widths) + GAP * (len(widths) - 1) > width:
        gone = leaving.pop()
        del columns[gone], widths[gone]
        cells = [row[:gone] + row[gone + 1 :] for row in cells]
    # Columns that may be cut share the room that the others leave. The narrowest comes first and
    # takes its share or less; what it leaves over is shared by the wider ones, so that no column is
    # cut while another has blanks.
    cut = sorted((w, i) for i, w in enumerate(widths) if columns[i].keep != "all")
    room = width - GAP * (len(columns) - 1) - sum(widths) + sum(w for w, _ in cut)
    for n_left, (natural, i) in zip(range(len(cut), 0, -1), cut, strict=True):
        widths[i] = min(natural, max(room // n_left, LEAST_LABEL))
        room -= widths[i]

    def line(texts: Sequence[str]) -> str:
        cells = []
        for text, width, column in zip(texts, widths, columns, strict=True):
            text = fitted(text, width, column.keep)
            blanks = " " * (width - cell_len(text))
            cells.append(blanks + text if column.right else text + blanks)
        return (" " * GAP).join(cells).rstrip()

    return line([column.title for column in columns]), [line(row) for row in cells]


def fitted(text: str, width: int, keep: Keep) -> str:
    """Cut a text that is wider; ``keep`` tells which part stays.

    Example:
        >>> fitted("the sum is 12", 8, "end"), fitted("the sum is 12", 8, "start")
        ('…m is 12', 'the sum…')
    """
    if keep == "all" or cell_len(text) <= width:
        return text
    tail = {"start": 0, "middle": (width - 1) // 2}.get(keep, width - 1)
    head = set_cell_size(text, width - 1 - tail)
    return f"{head}…{set_cell_size(text[::-1], tail)[::-1]}"


def print_table(columns: Sequence[Column | str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as wide as the terminal."""
    console = stdout_console()
    head, lines = table_lines(columns, rows, console.width)
    console.print(Text(head, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def print_json(value: object, *, one_line: bool = False) -> None:
    """Print a value as JSON; a line is written at once, since a program may wait for it."""
    click.echo(json_text(value, one_line=one_line))
    sys.stdout.flush()


def json_text(value: object, *, one_line: bool = False) -> str:
    """Return a value as JSON, without characters that control terminals, or that it cannot show."""
    indent = None if one_line else 2
    coded = (sys.stdout.encoding or "utf-8").lower().replace("-", "")
    text = json.dumps(value, indent=indent, ensure_ascii=coded != "utf8", allow_nan=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def stdout_console() -> Console:
    """Return the console of results; it is wide where no terminal sets a width."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def stderr_console() -> Console:
    """Return the console of progress and messages."""
    return Console(stderr=True, emoji=False)


def print_line(console: Console, text: str, *, indent: int = 0) -> None:
    """Print plain text; on a terminal, long lines break between words and continue indented."""
    lines = text.split("\n")
    if console.is_terminal:
        wrapped = TextWrapper(
            width=console.width,
            subsequent_indent=" " * indent,
            break_long_words=False,  # a path or a command can be copied whole
            break_on_hyphens=False,
        )
        # a number stays beside its unit
        lines = [
            part for line in lines for part in wrapped.wrap(line.replace(" %", "\xa0%")) or [""]
        ]
    for line in lines:
        plain = line.replace("\xa0%", " %")
        console.print(plain, markup=False, emoji=False, highlight=False, soft_wrap=True)


def say(*lines: str) -> None:
    """Print lines of a result, long ones broken between words on a terminal."""
    for line in lines:
        print_line(stdout_console(), safe(line))


def score_text(score: float | None) -> str:
    """Write a score; a dash where there is none.

    Example:
        >>> score_text(1.0), score_text(0.3333), score_text(None)
        ('1', '0.333', '-')
    """
    return "-" if score is None else f"{score:.3g}"
