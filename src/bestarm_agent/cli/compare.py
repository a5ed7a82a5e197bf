"""``compare``: two candidates on the same examples, of one run or of two."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.answers import score_text
from bestarm_agent.cli.options import JsonOption, RunArgument, StoreOption

if TYPE_CHECKING:
    from rich.table import Table

    from bestarm_agent.engine.results.compare import PairedComparison

_SHOWN_FLIPS = 20


def compare(
    run: RunArgument = None,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER_RUN]", help="The run of B, if it is another.")
    ] = None,
    candidates: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B", help="The two, by label or id; of two runs, by default the best of each."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the interval, between 0 and 1.")] = 0.95,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two candidates on the examples that both have seen."""
    import asyncio

    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.study import Archive

    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"--confidence must be between 0 and 1, got {confidence}")
    if other is None and candidates is None:
        raise ConfigError("name two candidates (--candidates A B), or a second run")
    where, one = find_run(run, store)
    found = asyncio.run(Archive(where).compared(one, other, candidates, confidence))
    if as_json:
        typer.echo(json.dumps({"n": found.n, **asdict(found)}, indent=2))
    else:
        _print(found, shown=other is None)


def _print(found: PairedComparison, *, shown: bool) -> None:
    """Print a comparison; ``shown``: ``answers --diff`` can show both, of one run."""
    from bestarm_agent.cli.result_output import stdout_console
    from bestarm_agent.report.words import safe

    a, b, gap = safe(found.a), safe(found.b), found.difference
    console = stdout_console()
    typer.echo(f"A = {a}\nB = {b}")
    for line in found.changed:
        typer.echo(f"    {safe(line)}")
    typer.echo(
        f"\n{found.n:,} of {found.n_examples:,} examples were scored for both; only they count here"
    )
    for name, label, scored in (("A", a, found.scored_a), ("B", b, found.scored_b)):
        if rest := scored - found.n:
            typer.echo(f"  {rest:,} scored for {name} ({label}) alone, and left out")
    typer.echo()
    console.print(_table(found))
    typer.echo(f"\nmean of A {found.mean_a:.3f}, of B {found.mean_b:.3f}")
    typer.echo(
        f"A - B: {gap.value:+.3f}, [{gap.lower:+.3f}, {gap.upper:+.3f}] at {found.confidence:.0%} "
        f"over all {found.n_examples:,} examples; holds if examples were drawn at random, "
        "as `auto` does"
    )
    test = "sign test" if found.graded else "McNemar's exact test"
    about = "for a number of examples like these, fixed in advance"
    typer.echo(f"{test}: p = {found.p_value:.3g}; {about}\n")
    _print_flips(found, shown=shown)


def _table(found: PairedComparison) -> Table:
    from bestarm_agent.cli.result_output import plain_table

    table = plain_table("", right=("B right", "B wrong"))
    table.add_row("A right", f"{found.both:,}", f"{found.only_a:,}")
    table.add_row("A wrong", f"{found.only_b:,}", f"{found.neither:,}")
    return table


def _print_flips(found: PairedComparison, *, shown: bool) -> None:
    from bestarm_agent.cli.result_output import plain_table, stdout_console
    from bestarm_agent.report.words import safe

    if not found.flips:
        typer.echo("They score alike on all of these.")
        return
    table = plain_table("they differ on", right=("A", "B"))
    for flip in found.flips[:_SHOWN_FLIPS]:
        table.add_row(safe(flip.example), score_text(flip.score_a), score_text(flip.score_b))
    stdout_console().print(table)
    if (more := len(found.flips) - _SHOWN_FLIPS) > 0:
        typer.echo(f"and {more:,} more")
    if shown:
        typer.echo("The answers: bestarm-agent answers RUN --diff A B")
