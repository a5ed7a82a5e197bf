"""The live table on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Timer

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bestarm_agent.cli.output import GAP, Column, print_line, table_lines
from bestarm_agent.domain.text import percent, safe
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.engine.results.decision import price_of_use
from bestarm_agent.engine.results.standing import Row, Standing, Status, estimate, interval, seen
from bestarm_agent.report import words

_STYLES = {
    Status.TAKE: "bold green",
    Status.LEADING: "bold green",
    Status.EQUAL: "",
    Status.GOOD: "",
    Status.UNDECIDED: "",
    Status.WORSE: "bright_black",
    Status.BARRED: "bright_black",
    Status.UNMEASURED: "bright_black",
}
_MOST_PROBLEMS = 2  # reasons why candidates cannot be called
_LINES_AROUND_TABLE = 9 + _MOST_PROBLEMS

_PATIENCE_SECONDS = 1.0  # until something is said elsewhere than on a terminal


@contextmanager
def busy(console: Console, words: str, *, wanted: bool = True) -> Iterator[None]:
    """Say what takes a while, such as reading a study; elsewhere than on a terminal, once."""
    if not wanted:
        yield
        return
    if not console.is_terminal:
        # a line in a log for what is over in a moment would only hide what matters
        note = Timer(_PATIENCE_SECONDS, print_line, (console, f"{words} ..."))
        note.daemon = True
        note.start()
        try:
            yield
        finally:
            note.cancel()
        return
    with console.status(words):
        yield


class Progress:
    """Shows nothing of a run; the base of what does."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def show(self, standing: Standing) -> None:
        """Show where a run stands."""


class LiveTable(Progress):
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
        problem = standing.decision.problem is not None
        height = max(3, self._console.size.height - _LINES_AROUND_TABLE - problem)
        lines = [Text(sentence, "yellow") for sentence in standing.decision.said[:1] if problem]
        self._live.update(Group(screen_of(standing, height), *lines), refresh=True)


class PlainLines(Progress):
    """Prints one line every few seconds."""

    def __init__(self, console: Console, every_seconds: float = 5.0) -> None:
        self._console = console
        self._every = every_seconds
        self._next = 0.0

    def show(self, standing: Standing) -> None:
        """Print the standing if the last line is old enough."""
        if standing.seconds < self._next:
            return
        self._next = standing.seconds + self._every
        parts = [words.time_used(standing), words.used_line(standing), words.budget_line(standing)]
        parts += standing.decision.said[:1]
        if standing.waits:
            parts.append(waits_line(standing.waits))
        self._console.print(" | ".join(parts), markup=False, highlight=False, soft_wrap=True)


def screen_of(standing: Standing, max_rows: int) -> RenderableType:
    """Lay the standing out: totals, the best rows, waits and failures."""
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True)
    head.add_column(justify="right", no_wrap=True)
    size = f"{len(standing.rows):,} candidates, {standing.n_examples:,} examples"
    head.add_row(
        Text(f"{safe(standing.name)}  {size}, {standing.selector}", overflow="ellipsis"),
        Text(words.time_used(standing)),
    )
    used = Table.grid(padding=(0, GAP, 0, 0))
    used.add_column(max_width=24)  # of the bar, which alone becomes narrow where the terminal is
    bar = ProgressBar(total=1.0, completed=words.most_used(standing)[0])
    for _ in range(2):
        used.add_column(no_wrap=True)
    used.add_row(bar, Text(words.used_line(standing)), Text(words.time_left(standing)))
    table, spent = CandidateTable(standing, max_rows), Text(words.budget_line(standing))
    lines: list[RenderableType] = [head, used, spent, table]
    # those of the rows, and not the calls under way: an answer may wait for its call, or its score
    lines.append(Text(f"in flight: {standing.asked - standing.told:,}"))
    if standing.waits:
        lines.append(Text(f"waiting: {waits_line(standing.waits)}"))
    notes = words.problem_lines(standing)[:_MOST_PROBLEMS]
    failures = filter(None, [words.failures_line(standing), safe(standing.latest_failure)])
    if text := "; the latest: ".join(failures):
        notes.append(f"failures: {text}")
    lines += [Text(line, overflow="ellipsis", no_wrap=True) for line in notes]
    return Group(*lines)


class CandidateTable:
    """The best ``max_rows`` candidates; columns leave from the right where space ends."""

    def __init__(self, standing: Standing, max_rows: int) -> None:
        self._standing = standing
        self._rows, self._hidden = standing.parted(max_rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        titled, width = [*self._columns()], options.max_width
        head, lines = _laid_out(titled, width)
        if max(map(cell_len, (head, *lines))) > width:
            # Names are as short as may be: what was seen and the state say more than an estimate,
            # which never stands without its interval.
            titled[2:4] = []
            head, lines = _laid_out(titled, width)
        yield Text(head, "bold", no_wrap=True)
        for row, line in zip(self._rows, lines, strict=True):
            style = "red" if row.is_broken else _STYLES[row.status]
            yield Text(line, style, no_wrap=True)
        if self._hidden:
            yield Text(self._hidden)
        if "estimate" in head and (note := estimates_line(self._rows)):
            yield Text(note, _STYLES[Status.WORSE])

    def _columns(self) -> Iterator[tuple[Column, list[str]]]:
        """Yield the columns and the cells of each; the last leave where there is no room."""
        rows, graded = self._rows, self._standing.graded
        sure = percent(self._standing.confidence, exact=True)
        number, further = partial(Column, right=True), partial(Column, right=True, leaves=True)
        yield Column("candidate", "middle"), [row.candidate.label for row in rows]
        yield number(self._standing.seen_title), [seen(row, graded=graded) for row in rows]
        yield number("estimate"), [estimate(row) for row in rows]
        yield number(f"{sure} interval"), [interval(row) for row in rows]
        yield Column("state"), [words.state(row) for row in rows]
        if any(row.limits for row in rows):
            yield further("limits"), [limits_text(row) for row in rows]
        if any(price_of_use(row) for row in rows):
            yield further("per 1,000"), [words.use_text(row) for row in rows]
        if self._standing.end is None:
            yield further("in flight"), [f"{row.pending:,}" for row in rows]
        if any(row.p50_seconds for row in rows):
            yield further("p50"), [words.seconds_text(row.p50_seconds) for row in rows]
            yield further("p95"), [words.seconds_text(row.p95_seconds) for row in rows]


def _laid_out(titled: Sequence[tuple[Column, list[str]]], width: int) -> tuple[str, list[str]]:
    columns, cells = zip(*titled, strict=True)
    return table_lines(columns, zip(*cells, strict=True), width)


# An estimate that far from the share that was right looks like a mistake to whoever reads both in
# one line of a table, so that it is explained; smaller corrections need no words.
_APART = 0.15


def estimates_line(rows: Sequence[Row]) -> str:
    """Say why an estimate is far from the share that was right; "" where none is."""
    seen_mean = [(row, row.total / row.n) for row in rows if row.n and row.estimate is not None]
    if all(abs(mean - (row.estimate or 0.0)) < _APART for row, mean in seen_mean):
        return ""
    return "estimates are corrected for the difficulty of the examples asked, and for few answers"


def limits_text(row: Row) -> str:
    """Count the limits that a candidate keeps, breaks or may keep, in two words or so."""
    counts = Counter(limit.state for limit in row.limits)
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))


def waits_line(waits: Sequence[Wait]) -> str:
    """Say why calls wait, the shortest wait first, grouped by reason."""
    groups: dict[str, list[Wait]] = {}
    for wait in waits:
        groups.setdefault(wait.reason, []).append(wait)
    return "; ".join(_wait_text(reason, alike) for reason, alike in groups.items())


def _wait_text(reason: str, waits: Sequence[Wait]) -> str:
    count = sum(wait.count for wait in waits)
    others = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    soonest = waits[0].seconds
    return (
        (f"{count} x " if count else "")
        + f"{safe(waits[0].provider)}{others} {safe(reason)}"
        + (f", {soonest:.0f} s" if soonest is not None and soonest >= 0.5 else "")
    )
