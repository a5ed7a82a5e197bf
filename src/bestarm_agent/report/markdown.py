"""A run in Markdown: verdict, ranking and effects, for a pull request or a wiki."""

from __future__ import annotations

import re

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.caveats import caveat, caveat_lines
from bestarm_agent.report.outlook import effects_line, headline, outlook
from bestarm_agent.report.progress_text import budget_line, ending, hidden_line
from bestarm_agent.report.text import (
    duration,
    estimate,
    how_sure,
    interval,
    safe,
    seen,
    seen_title,
    state,
)

_SHOWN_ROWS = 20


def markdown(standing: Standing, result: ModeResult | None = None) -> str:
    """Write where a run stands, or the ``result`` of its mode; texts of others are escaped."""
    graded = standing.graded
    lines = [f"## {escaped(standing.name)}", ""]
    lines += _verdict(standing) if result is None else _result(result)
    lines += ["", f"| candidate | {seen_title(graded=graded)} | estimate | interval | state |"]
    lines += ["| --- | --: | --: | --: | --- |"]
    for row in standing.rows[:_SHOWN_ROWS]:
        numbers = f"{seen(row, graded=graded)} | {estimate(row)} | {interval(row)}"
        lines.append(f"| {escaped(row.candidate.label)} | {numbers} | {state(row)} |")
    lines += ["", hidden_line(standing.rows[_SHOWN_ROWS:]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _verdict(standing: Standing) -> list[str]:
    name, said = headline(standing)
    lines = [f"**{escaped(name)}** {said}{caveat(standing)}"]
    lines += ["", f"{how_sure(standing)}."] if standing.winner else []
    lines += [f"{text}." for text in (outlook(standing), _effects(standing)) if text]
    lines += [f"{title}: {escaped(text)}." for title, text in caveat_lines(standing)]
    spent = f"{budget_line(standing)}, {duration(standing.seconds)}; {ending(standing.end)}."
    return [*lines, "", spent]


def _result(result: ModeResult) -> list[str]:
    lines = [f"- {escaped(' '.join(line.split()))}" for line in result.lines()]
    lines += ["", f"### {result.title}", "", result.note]
    lines += ["", f"| {' | '.join(result.columns)} |"]
    lines += [f"| --- | --- |{' --: |' * (len(result.columns) - 2)}"]
    lines += [f"| {' | '.join(map(escaped, row))} |" for row in result.rows()]
    return [*lines, "", result.ranking]


def _effects(standing: Standing) -> str:
    text = effects_line(standing)
    return f"Effects: {escaped(text)}" if text else ""


def escaped(text: str) -> str:
    r"""Make text of others plain in Markdown: no markup, no table cell, no HTML.

    Example:
        >>> print(escaped("a|b <i> *c*"))
        a\|b \<i\> \*c\*
    """
    return re.sub(r"([\\`*_{}\[\]<>()#|~&])", r"\\\1", safe(text))
