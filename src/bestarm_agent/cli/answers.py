"""``answers``: the prompts, replies and verdicts of a stored run, as a table or as lines."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import RunArgument, StoreOption

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bestarm_agent.domain.digest import Json
    from bestarm_agent.engine.results.pairs import PairFilter, PairOutcome, RunTexts


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
    from bestarm_agent.report.words import safe, shortened

    return shortened(safe(label), width)


def _line(cells: list[str], widths: list[int]) -> str:
    """Join cells to one line of columns; longer ones are cut, control characters shown as text."""
    from bestarm_agent.report.words import safe

    shown = [safe(" ".join(cell.split())) for cell in cells]
    return "  ".join(
        f"{cell if len(cell) <= width else cell[: width - 1] + '…':<{width}}"
        for cell, width in zip(shown, widths, strict=True)
    ).rstrip()


class Format(StrEnum):
    """Formats of ``answers``."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The options that choose pairs; all that are given must be met."""

    candidate: Annotated[str | None, typer.Option(help="Only this candidate, by label or id.")] = (
        None
    )
    example: Annotated[
        str | None, typer.Option(help="Only this example, in full: prompt, reply, verdicts.")
    ] = None
    wrong: Annotated[bool, typer.Option("--wrong", help="Only scores below one half.")] = False
    failed: Annotated[bool, typer.Option("--failed", help="Only pairs that failed.")] = False


def answers(
    conditions: Conditions,
    run: RunArgument = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Examples on which two candidates score differently."),
    ] = None,
    fmt: Annotated[Format, typer.Option("--format", help="How to print them.")] = Format.TABLE,
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most this many.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for --format parquet.")] = None,
    store: StoreOption = None,
) -> None:
    """Show prompts, replies and how they were scored."""
    import asyncio

    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.engine.results.pairs import PairFilter
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.study import Archive

    if diff and conditions != Conditions():
        raise ConfigError(
            "--diff chooses candidates and examples itself; leave out --candidate, --example, "
            "--wrong and --failed"
        )
    if (fmt is Format.PARQUET) != (out is not None):
        raise ConfigError(
            "--format parquet and --out FILE go together; the other formats print to stdout"
        )
    only = PairFilter(**asdict(conditions))
    where, found = find_run(run, store)
    asyncio.run(_show(Archive(where).texts(found), only, diff, fmt, limit, out))


def print_note(texts: RunTexts) -> None:
    """Say on stderr which prompts and targets are missing."""
    from bestarm_agent.report.words import safe

    if texts.note:
        typer.echo(f"note: {safe(texts.note)}", err=True)


async def _show(
    opening: AbstractAsyncContextManager[RunTexts],
    only: PairFilter,
    diff: tuple[str, str] | None,
    fmt: Format,
    limit: int | None,
    out: Path | None,
) -> None:
    async with opening as texts:
        print_note(texts)
        if diff is not None and fmt is Format.TABLE:
            await print_side_by_side(texts, diff, limit)
            return
        chosen = texts.outcomes(only) if diff is None else _one_by_one(texts, diff)
        most = limit if limit is None or diff is None else 2 * limit  # two pairs an example
        chosen = _first(chosen, most)
        if out is not None:
            shown = await _write_parquet(chosen, out)
        else:
            shown = await _print(chosen, _printer(fmt, in_full=only.example is not None))
        if not shown:
            typer.echo("no pair of the run is like this", err=True)


async def _first(
    outcomes: AsyncIterator[PairOutcome], most: int | None
) -> AsyncIterator[PairOutcome]:
    given = 0
    async for outcome in outcomes:
        yield outcome
        given += 1
        if given == most:
            break


async def _print(outcomes: AsyncIterator[PairOutcome], show: Callable[[PairOutcome], None]) -> int:
    """Print pairs; return their number."""
    shown = 0
    async for outcome in outcomes:
        show(outcome)
        shown += 1
    return shown


async def _write_parquet(outcomes: AsyncIterator[PairOutcome], out: Path) -> int:
    """Write pairs to a file, some rows at a time; return their number."""
    from bestarm_agent.engine.results.pairs import PairOutcome
    from bestarm_agent.store.export import (
        ROWS_WITH_TEXTS,
        arrow_types,
        escaped,
        export_stream,
        parquet_rows,
    )

    plain = arrow_types(PairOutcome)
    types = {name: plain.get(name, "string") for name in _flat_columns()}
    written = 0
    with export_stream(out) as stream, parquet_rows(stream, types) as write:
        rows: list[list[Json]] = []
        async for outcome in outcomes:
            cells = outcome.flat().values()
            rows.append([escaped(cell) if isinstance(cell, str) else cell for cell in cells])
            written += 1
            if len(rows) == ROWS_WITH_TEXTS:
                write(rows)
                rows.clear()
        if rows:
            write(rows)
    return written


def _flat_columns() -> list[str]:
    """Return the names of ``PairOutcome.flat``."""
    from bestarm_agent.engine.results.pairs import PairOutcome

    return [*(field.name for field in fields(PairOutcome) if field.name != "votes"), "verdicts"]


async def _one_by_one(texts: RunTexts, diff: tuple[str, str]) -> AsyncIterator[PairOutcome]:
    async for pair in texts.differing(*diff):
        for outcome in pair:
            yield outcome


def _printer(fmt: Format, *, in_full: bool) -> Callable[[PairOutcome], None]:
    """Return what prints one pair."""
    if fmt is Format.JSONL:  # JSON escapes control characters
        return lambda outcome: typer.echo(json.dumps(asdict(outcome)))
    if fmt is Format.CSV:
        return _csv_printer()
    if in_full:
        return _print_in_full
    return AnswerTable().show


def _csv_printer() -> Callable[[PairOutcome], None]:
    from bestarm_agent.report.words import safe_lines
    from bestarm_agent.store.export import harmless

    table = csv.writer(sys.stdout)
    table.writerow(_flat_columns())

    def show(outcome: PairOutcome) -> None:
        cells = outcome.flat().values()
        table.writerow(
            harmless(safe_lines(cell)) if isinstance(cell, str) else cell for cell in cells
        )

    return show


def _print_in_full(outcome: PairOutcome) -> None:
    from bestarm_agent.report.words import safe, safe_lines

    score = score_text(outcome.score) if outcome.score is not None else outcome.state
    typer.echo(f"{safe(outcome.candidate)} on {safe(outcome.example)}: {score}")
    for name in ("prompt", "reply", "answer", "target", "verdicts", "failure", "message"):
        if text := outcome.flat()[name]:
            typer.echo(f"  {name}:")
            typer.echo("\n".join(f"    {line}" for line in safe_lines(str(text)).split("\n")))
    if outcome.attempts is not None:
        typer.echo(f"  {_costs(outcome)}")
    typer.echo()


def _costs(outcome: PairOutcome) -> str:
    price = "price unknown" if outcome.usd is None else f"${outcome.usd:.6g}"
    requests = f"{outcome.attempts} request{'' if outcome.attempts == 1 else 's'}"
    found = ", from the cache" if outcome.cached else ""
    return f"{requests}{found}, {outcome.tokens:,} tokens, {price}, {outcome.seconds:.2f} s"
