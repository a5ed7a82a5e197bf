"""A run in Markdown: verdict, ranking and effects, for a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bestarm_agent.domain.text import safe
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.standing import Next, Standing, estimate, interval, seen
from bestarm_agent.report import words

_SHOWN_ROWS = 20


def markdown(standing: Standing, result: ModeResult | None = None) -> str:
    """Write where a run stands, or the ``result`` of its mode; texts of others are escaped."""
    lines = [f"## {escaped(standing.name)}", ""]
    lines += _verdict(standing) if result is None else _result(result, standing)
    lines += ["", *_ranking(standing, with_intervals=result is None)]
    hidden = standing.parted(_SHOWN_ROWS)[1]
    lines += ["", hidden] if hidden else []
    lines += ["", f"{text}."] if (text := words.failures_line(standing)) else []
    return "\n".join(lines).rstrip() + "\n"


def _ranking(standing: Standing, *, with_intervals: bool) -> list[str]:
    graded = standing.graded
    heads = ["candidate", standing.seen_title]
    heads += ["estimate", "interval", "state"] if with_intervals else []
    rows = []
    for row in standing.parted(_SHOWN_ROWS)[0]:
        cells = [escaped(row.candidate.label), seen(row, graded=graded)]
        cells += [estimate(row), interval(row), words.state(row)] if with_intervals else []
        rows.append(cells)
    return _table(heads, "lrrrl", rows)


def _table(heads: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table; ``sides`` has l or r for each column."""
    rules = ["---" if side == "l" else "--:" for side in sides[: len(heads)]]
    return [f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows)]


def _verdict(standing: Standing) -> list[str]:
    first, *others = standing.said or ("",)
    lines = [f"**{escaped(first)}**", *(_with_code(x, standing.decision.next) for x in others), ""]
    lines += [f"{title}: {escaped(text)}." for title, text in words.facts(standing)]
    lines += [f"Effects: {escaped(text)}."] if (text := words.effects_line(standing)) else []
    lines += [escaped(f"{text}.") for text in words.problem_lines(standing)]
    spent, end = words.budget_line(standing), words.ending(standing.end, standing.asked)
    return [*lines, "", f"{spent}, {words.time_used(standing)}; {end}."]


def _with_code(sentence: str, advice: Next | None) -> str:
    """Escape a sentence but the command at its end, which is ours and stands as code."""
    code = f"`{advice.command}`." if advice is not None and advice.command else ""
    is_advice = bool(code) and sentence.endswith(code)
    return escaped(sentence.removesuffix(code)) + code if is_advice else escaped(sentence)


def _result(result: ModeResult, standing: Standing) -> list[str]:
    lines = [f"- {escaped(' '.join(line.split()))}" for line in result.lines]
    lines += [f"- {_with_code(x, standing.decision.next)}" for x in standing.said]
    lines += ["", f"### {result.title}", "", result.note]
    rows = [[escaped(cell) for cell in row.cells] for row in result.rows]
    sides = "ll" + "r" * (len(result.columns) - 2)
    return [*lines, "", *_table(result.columns, sides, rows), "", result.ranking]


# The first alternatives of ``_ACTIVE``: any of \ ` * | ~; "_" beside a word's edge, as in "_a_" but
# not in "and_so_on"; "&" of "&lt;" but not of "a & b"; "$" of "$1 and $2" but not of "$1".
# What has a meaning in Markdown, only where it has it, so that a log reads as text too: marks of
# emphasis, code and tables; entities; two amounts, which could be a formula; and at the beginning
# what makes lists, quotes, headings and boxes to tick.
_ACTIVE = re.compile(
    r"[\\`*|~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|\$(?=.*\$)"
    r"|^(?:[>=\[]|[-+](?=[\s-]|$)|#(?=#*(?:\s|$)))"
)
# What begins HTML, ends the text of a link, or is made a link of: names, numbers of issues,
# addresses. An invisible space behind it parts it from what it needs.
_REFERRING = re.compile(
    r"<(?=[\w/!?])|\](?=[(\[:])|@(?=\w)|#(?=\d)|\bGH-(?=\d)|:(?=//)|\bwww(?=\.)", re.IGNORECASE
)


def escaped(text: str) -> str:
    r"""Make text of others plain in Markdown: no markup, no table cell, no HTML, no mention.

    Example:
        >>> print(escaped("a|b *c* [-.02, .04] and_so_on"))
        a\|b \*c\* [-.02, .04] and_so_on
    """
    # "1. " and "1) " at the beginning are an item of a list: the mark behind the number is escaped
    plain = re.sub(r"^(\d+)([.)])(?!\S)", r"\1\\\2", _ACTIVE.sub(r"\\\g<0>", safe(text)))
    return _REFERRING.sub("\\g<0>\u200b", plain)
