"""Results in notebooks: a small HTML table, a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from bestarm_agent.errors import ConfigError


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as HTML, every text escaped.

    Example:
        >>> html_table("<1>", ["a"], [["b"]])
        '<p>&lt;1&gt;</p><table><tr><th>a</th></tr><tr><td>b</td></tr></table>'
    """
    lines = [_line("th", head), *(_line("td", row) for row in rows)]
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401  pandas is no dependency
    """Return rows as a pandas ``DataFrame``.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ConfigError(
            "a data frame needs pandas: pip install pandas; without it, iterate over the rows"
        ) from error
    return pandas.DataFrame(rows)
