"""``compare``: two candidates on the same examples, of one run or of two."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.text import Text

from bestarm_agent.cli.answers import SHOWN, said
from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import (
    fitted,
    numbers,
    print_json,
    print_table,
    say,
    score_text,
    stdout_console,
)
from bestarm_agent.cli.stores import find_run
from bestarm_agent.domain.text import safe
from bestarm_agent.engine.results.compare import Flip, PairedComparison
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.report.words import comparison_line, marked, question_of
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Archive

_CONFIDENCE = 0.95  # of the interval
_INDENT = len("  question  ")
_AROUND = 24  # characters shown before and after what differs


def compare(
    given: Given, other: str | None, between: tuple[str, str] | None, everything: bool
) -> None:
    """Compare two candidates; show the examples on which they differ, with both answers."""
    if other is None and between is None:
        raise ConfigError("name two candidates (--between A B), or a second run")
    where, one = find_run(given.run, given.store)
    archive = Archive(where)
    found = asyncio.run(archive.compared(one, other, between, _CONFIDENCE))
    if given.as_json:
        print_json({"n": found.n, **asdict(found)})
        return
    _print(found)
    flips = found.flips if everything else found.flips[:SHOWN]
    pairs_a = asyncio.run(_pairs(archive, one, [flip.seq_a for flip in flips]))
    pairs_b = asyncio.run(_pairs(archive, other or one, [flip.seq_b for flip in flips]))
    for both in zip(flips, pairs_a, pairs_b, strict=True):
        _print_flip(*both)
    if (more := len(found.flips) - len(flips)) > 0:
        click.echo(f"... and {more:,} more: --all shows them")


async def _pairs(archive: Archive, run: str, seqs: Sequence[int]) -> list[PairOutcome]:
    async with archive.texts(run) as texts:
        return [pair async for page in texts.pages(seqs) for pair in page]


def _print_flip(flip: Flip, a: PairOutcome, b: PairOutcome) -> None:
    """Print question, target and both answers, what differs marked."""
    console = stdout_console()
    width = console.width - _INDENT
    scores = f"A {score_text(flip.score_a)}, B {score_text(flip.score_b)}"
    console.print(Text(safe(f"{flip.example}: {scores}"), style="bold"), soft_wrap=True)
    shown = [("question", Text(fitted(_line(question_of(a)), width, "end")))]
    if a.target is not None:
        shown.append(("target", Text(fitted(_line(a.target), width, "end"))))
    answers = marked(_line(said(a)), _line(said(b)))
    shown += zip("AB", (_marked(*parts, width) for parts in answers), strict=True)
    for name, text in shown:
        console.print(Text(f"  {name}".ljust(_INDENT)).append_text(text), soft_wrap=True)


def _line(text: str) -> str:
    return safe(" ".join(text.split()))


def _marked(before: str, differs: str, after: str, width: int) -> Text:
    before, after = fitted(before, _AROUND, "end"), fitted(after, _AROUND, "start")
    room = max(_AROUND, width - len(before) - len(after) - len("«»"))
    return Text.assemble(before, (f"«{fitted(differs, room, 'end')}»", "bold"), after)


def _print(found: PairedComparison) -> None:
    say(f"A = {found.a}", f"B = {found.b}")
    common = f"{found.n:,} of {found.n_examples:,} examples were scored for both"
    say("", f"{common}; only they count here")
    for name, label, scored in (("A", found.a, found.scored_a), ("B", found.b, found.scored_b)):
        if rest := scored - found.n:
            say(f"  {rest:,} scored for {name} ({label}) alone, and left out")
    click.echo()
    print_table(
        ["", *numbers("B right", "B wrong")],
        [
            ["A right", f"{found.both:,}", f"{found.only_a:,}"],
            ["A wrong", f"{found.only_b:,}", f"{found.neither:,}"],
        ],
    )
    say("", f"mean of A {found.mean_a:.3f}, of B {found.mean_b:.3f}", comparison_line(found), "")
    if found.flips:
        say(f"They differ on {counted(len(found.flips), 'example')}:")
    else:
        say("They score alike on all of these.")
