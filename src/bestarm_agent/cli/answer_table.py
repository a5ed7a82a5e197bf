"""Pairs as lines of a table, for ``answers`` and ``compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from bestarm_agent.engine.results.pairs import PairOutcome, RunTexts

_CANDIDATE, _EXAMPLE, _SCORE = 28, 12, 5  # widths of columns; texts share what is left
_GAP = 2  # between columns
_LEAST_TEXT = 12


class AnswerTable:
    """Prints the head of a table with its first line: what is asked for may not be there."""

    def __init__(self) -> None:
        self._head: list[str] | None = ["candidate", "example", "score", "target", "answer"]
        self._widths = _with_texts([_CANDIDATE, _EXAMPLE, _SCORE], 2)

    def show(self, outcome: PairOutcome) -> None:
        """Print one pair."""
        if self._head is not None:
            typer.echo(_line(self._head, self._widths))
            self._head = None
        name = _name(outcome.candidate, _CANDIDATE)
        cells = name, outcome.example, score_text(outcome.score), outcome.target or ""
        typer.echo(_line([*cells, _said(outcome)], self._widths))


async def print_side_by_side(texts: RunTexts, diff: tuple[str, str], limit: int | None) -> None:
    """Print an example per line: its target, then score and answer of both candidates."""
    widths = _with_texts([_EXAMPLE], 3)
    shown = 0
    async for a, b in texts.differing(*diff):
        if not shown:
            names = [_name(label, widths[-1]) for label in diff]
            typer.echo(_line(["example", "target", *names], widths))
        told = [f"{score_text(one.score)} {_said(one)}" for one in (a, b)]
        typer.echo(_line([a.example, a.target or "", *told], widths))
        shown += 1
        if shown == limit:
            break
    if not shown:
        typer.echo("the two score alike on every example that both were scored on", err=True)


def score_text(score: float | None) -> str:
    """Write a score; a dash where there is none.

    Example:
        >>> score_text(1.0), score_text(0.3333), score_text(None)
        ('1', '0.333', '-')
    """
    return "-" if score is None else f"{score:.3g}"


def _said(outcome: PairOutcome) -> str:
    """Return what stands for the answer: read, else raw; or why there is none."""
    if outcome.failure is not None:
        return f"{outcome.failure}: {outcome.message}"
    return outcome.state if outcome.state == "pending" else outcome.answer or outcome.reply or ""


def _with_texts(widths: list[int], n_texts: int) -> list[int]:
    """Add the widths of columns of texts, which share what the terminal leaves of a line."""
    from bestarm_agent.cli.result_output import stdout_console

    left = stdout_console().width - sum(widths) - _GAP * len(widths)
    return [*widths, *[max(_LEAST_TEXT, left // n_texts - _GAP)] * n_texts]


def _name(label: str, width: int) -> str:
    from bestarm_agent.report.text import safe, shortened

    return shortened(safe(label), width)


def _line(cells: list[str], widths: list[int]) -> str:
    """Join cells to one line of columns; longer ones are cut, control characters shown as text."""
    from bestarm_agent.report.text import safe

    shown = [safe(" ".join(cell.split())) for cell in cells]
    return "  ".join(
        f"{cell if len(cell) <= width else cell[: width - 1] + '…':<{width}}"
        for cell, width in zip(shown, widths, strict=True)
    ).rstrip()
