"""``answers``: the questions, answers and verdicts of a stored run, as a table or as lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict

import click

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import Column, print_json, print_table, score_text
from bestarm_agent.cli.stored import print_note
from bestarm_agent.cli.stores import find_run
from bestarm_agent.domain.text import safe, safe_lines
from bestarm_agent.engine.results.pairs import PairFilter, RunTexts
from bestarm_agent.report.words import question_of
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Archive

SHOWN = 20  # of a table, unless all are asked for
_IN_FULL = "prompt", "reasoning", "reply", "answer", "target", "verdicts", "failure", "message"


def answers(
    given: Given,
    candidate: str | None,
    example: str | None,
    wrong: bool,
    failed: bool,
    everything: bool,
) -> None:
    """Print the pairs that meet all conditions."""
    only = PairFilter(candidate, example, wrong, failed)
    where, run = find_run(given.run, given.store)
    opening = Archive(where).texts(run)
    n_shown = asyncio.run(_print(opening, only, as_json=given.as_json, everything=everything))
    if not n_shown:
        click.echo("no pair of the run is like this", err=True)


async def _print(
    opening: AbstractAsyncContextManager[RunTexts],
    only: PairFilter,
    *,
    as_json: bool,
    everything: bool,
) -> int:
    """Print pairs; return their number."""
    # Lines are printed as they are read, so that a pipe gets the first at once; a table needs all
    # its rows for the widths of its columns, and so shows a page.
    async with opening as texts:
        print_note(texts)
        pairs = texts.outcomes(only)
        if as_json or only.example is not None:
            return await _print_each(pairs, as_json=as_json)
        n_pairs = len(only.chosen(texts.state))
        most = n_pairs if everything else SHOWN
        page = [pair async for pair in _first(pairs, most)]
    if page:
        print_table(
            [
                Column("candidate", "middle"),
                "example",
                Column("score", right=True),
                Column("question", "end"),
                Column("target", "end"),
                Column("answer", "end"),
            ],
            map(_cells, page),
        )
    if (n_more := n_pairs - len(page)) > 0:
        click.echo(f"... and {n_more:,} more: --all shows them")
    return len(page)


async def _first(pairs: AsyncIterator[PairOutcome], most: int) -> AsyncIterator[PairOutcome]:
    for _ in range(most):
        if (pair := await anext(pairs, None)) is None:
            break
        yield pair


def _cells(pair: PairOutcome) -> list[str]:
    texts = question_of(pair), pair.target or "", answer_text(pair)
    return [pair.candidate, pair.example, score_text(pair.score), *texts]


def answer_text(pair: PairOutcome) -> str:
    """Return what the model answered, or why it did not."""
    if pair.failure is not None:
        return f"{pair.failure}: {pair.message}"
    return pair.state if pair.state == "pending" else pair.reply or pair.answer or ""


async def _print_each(pairs: AsyncIterator[PairOutcome], *, as_json: bool) -> int:
    n_shown = 0
    async for pair in pairs:
        n_shown += 1
        if as_json:
            print_json(asdict(pair), one_line=True)
        else:
            _print_in_full(pair)
    return n_shown


def _print_in_full(pair: PairOutcome) -> None:
    score = score_text(pair.score) if pair.score is not None else pair.state
    click.echo(f"{safe(pair.candidate)} on {safe(pair.example)}: {score}")
    for name in _IN_FULL:
        if text := pair.flat()[name]:
            click.echo(f"  {name}:")
            click.echo("\n".join(f"    {line}" for line in safe_lines(str(text)).split("\n")))
    if pair.attempts is not None:
        click.echo(f"  {_costs(pair)}")
    click.echo()


def _costs(pair: PairOutcome) -> str:
    price = "price unknown" if pair.usd is None else f"${pair.usd:.6g}"
    requests = f"{pair.attempts} request{'' if pair.attempts == 1 else 's'}"
    origin = ", from the cache" if pair.cached else ""
    return f"{requests}{origin}, {pair.tokens:,} tokens, {price}, {pair.seconds:.2f} s"
