"""Results in notebooks: a small HTML table, and a cell that follows a run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from html import escape
from typing import Any

_UPDATE_SECONDS = 1.0
_SHOWN_ROWS = 60


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as HTML, every text escaped.

    Example:
        >>> html_table("<1>", ["a"], [["b"]])
        '<p>&lt;1&gt;</p><table><tr><th>a</th></tr><tr><td>b</td></tr></table>'
    """
    cells = list(rows)
    lines = [_line("th", head), *(_line("td", row) for row in cells[:_SHOWN_ROWS])]
    more = f"<p>... and {len(cells) - _SHOWN_ROWS:,} more</p>" if len(cells) > _SHOWN_ROWS else ""
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>{more}"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


@asynccontextmanager
async def followed_by_cell(current: Callable[[], object]) -> AsyncIterator[None]:
    """Show an object in the notebook cell that runs, updated each second; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")  # a notebook's kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    if ipython is None or getattr(shell, "kernel", None) is None:  # none on a terminal
        yield
        return
    handle = ipython.display.DisplayHandle()
    handle.display(current())
    updating = asyncio.create_task(_update(handle, current))
    try:
        yield
    finally:
        updating.cancel()
        handle.update(current())


async def _update(handle: Any, current: Callable[[], object]) -> None:  # noqa: ANN401
    while True:
        await asyncio.sleep(_UPDATE_SECONDS)
        handle.update(current())
