"""The live table on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import TextWrapper

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bestarm_agent.course import budget_line, most_used, used_line, waits_line
from bestarm_agent.standing import Row, Standing, Status
from bestarm_agent.wording import (
    duration,
    interval,
    money,
    price_text,
    safe,
    verdict_line,
)

_STYLES = {
    Status.LEADING: "bold green",
    Status.TIED: "yellow",
    Status.BEATEN: "dim",
    Status.UNSEEN: "dim italic",
    Status.BROKEN: "red",
    Status.BARRED: "dim",
}
_LINES_AROUND_TABLE = 10


@contextmanager
def busy(console: Console, words: str, *, wanted: bool = True) -> Iterator[None]:
    """Say on a terminal what takes a while: libraries are imported, judges asked."""
    if not (wanted and console.is_terminal):
        yield
        return
    with console.status(words):
        yield


def print_line(console: Console, text: str, *, indent: int = 0) -> None:
    """Print a line; on a terminal it is broken between words, elsewhere it stays one.

    Args:
        console: where to.
        text: plain text, which may hold line breaks.
        indent: blanks before what does not fit into the first line.
    """
    lines = text.split("\n")
    if console.is_terminal:
        wrapped = TextWrapper(
            width=console.width,
            subsequent_indent=" " * indent,
            break_long_words=False,  # a path or a command can be copied whole
            break_on_hyphens=False,
        )
        lines = [part for line in lines for part in wrapped.wrap(line) or [""]]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveTable:
    """Redraws one table in place, as many rows as the terminal is high."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def show(self, standing: Standing) -> None:
        """Draw the standing."""
        height = max(3, self._console.size.height - _LINES_AROUND_TABLE)
        self._live.update(screen_of(standing, height), refresh=True)


class PlainLines:
    """Prints one line every few seconds."""

    def __init__(self, console: Console, every_seconds: float = 5.0) -> None:
        self._console = console
        self._every = every_seconds
        self._next = 0.0

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def show(self, standing: Standing) -> None:
        """Print the standing if the last line is old enough."""
        if standing.seconds < self._next:
            return
        self._next = standing.seconds + self._every
        parts = [duration(standing.seconds), used_line(standing), budget_line(standing)]
        parts.append(verdict_line(standing))
        if standing.waits:
            parts.append(waits_line(standing))
        self._console.print(" | ".join(parts), markup=False, highlight=False, soft_wrap=True)


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def show(self, standing: Standing) -> None:
        """Show nothing."""


def screen_of(standing: Standing, max_rows: int) -> RenderableType:
    """Lay the standing out: totals, the best rows, what waits."""
    table = candidates_table(standing, max_rows)
    bar = ProgressBar(total=1.0, completed=most_used(standing)[0], width=40)
    head = Text(f"{safe(standing.name)}  {standing.selector}  {duration(standing.seconds)}")
    used = Table.grid(padding=(0, 1))
    used.add_row(bar, Text(used_line(standing)))
    lines: list[RenderableType] = [head, used, Text(budget_line(standing)), table]
    hidden = len(standing.rows) - max_rows
    if hidden > 0:
        lines.append(Text(f"... and {hidden} more", style="dim"))
    lines.append(Text(f"in flight: {standing.in_flight}" + _waiting(standing)))
    return Group(*lines)


def _waiting(standing: Standing) -> str:
    return f"; waiting: {waits_line(standing)}" if standing.waits else ""


def candidates_table(standing: Standing, max_rows: int) -> Table:
    """The best ``max_rows`` candidates as a table."""
    by_price = standing.finding is not None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate", overflow="ellipsis", no_wrap=True, ratio=1, min_width=16)
    for name in ("pulls", "mean", f"{standing.confidence:.0%} interval", "cost", "tokens", "sec"):
        table.add_column(name, justify="right", no_wrap=True)
    if by_price:
        table.add_column("$ per 1k calls", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in standing.rows[:max_rows]:
        *cells, state = _cells(row)
        priced = [price_text(row.price)] if by_price else []
        mark = " *" if standing.finding is not None and row in standing.finding.chosen else ""
        table.add_row(*cells, *priced, state + mark, style=_STYLES[row.status])
    return table


def _cells(row: Row) -> list[str]:
    pulls = f"{row.n}+{row.pending}" if row.pending else str(row.n)
    mean = "-" if row.mean is None else f"{row.mean:.3f}"
    state = row.status.value
    if row.void:
        state += f", {row.void} void"
    return [
        safe(row.candidate.label),
        pulls,
        mean,
        interval(row),
        money(row.spend.usd_nanos),
        f"{row.spend.tokens:,}",
        f"{row.seconds:.2f}",
        state,
    ]
