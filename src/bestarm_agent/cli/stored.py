"""``list``, ``show``, ``report``, ``view``, ``answers`` and ``export``: look at stored runs."""

from __future__ import annotations

import asyncio
import sys
from asyncio import Runner
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import click

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import Column, json_text, numbers, print_json, print_table, score_text
from bestarm_agent.cli.result_output import print_mode_result, print_result, standing_json
from bestarm_agent.cli.stores import default_store, default_stores, find_run, runnable
from bestarm_agent.domain.text import safe, safe_lines
from bestarm_agent.engine.results.pairs import PairFilter, RunTexts
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.report.markdown import markdown
from bestarm_agent.report.words import ending, plain, question_of
from bestarm_agent.store.export import AWAITED, PairOutcome, export_scores
from bestarm_agent.store.run_state import RunState
from bestarm_agent.study import Archive, StoredRun, report_path, write_page

SHOWN = 20  # of a table, unless all are asked for
_IN_FULL = "prompt", "reasoning", "reply", "answer", "target", "verdicts", "failure", "message"


def list_(given: Given) -> None:
    """List the runs of a store."""
    runs = asyncio.run(Archive(default_store(given.store)).runs())
    if given.as_json:
        print_json(plain(runs))
        return
    rows = [
        (i.id, i.name, i.at[:16], f"{i.n_asked:,}", f"{i.n_told:,}", ending(i.stopped, i.n_asked))
        for i in runs
    ]
    head = Column("run"), Column("study", "middle"), Column("began", leaves=True)
    counts = numbers("asked", "done", leaves=True)
    print_table([*head, *counts, Column("state", "start")], rows)


def show(given: Given, everything: bool) -> None:
    """Show where a run stands."""
    where, run = find_run(given.run, given.store)
    record = asyncio.run(Archive(where).record(run))
    standing, failures = runnable(record.standing, where), record.failures
    if record.result is not None:
        print_mode_result(record.result, standing, as_json=given.as_json, failures=failures)
        return
    print_result(standing, as_json=given.as_json, failures=failures, everything=everything)


def report(given: Given, out: Path | None, report_format: str | None) -> None:
    """Write a run's report."""
    endings = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}
    # None for an ending that is none of a report's: refused with --format, too, as a file named
    # .txt with HTML in it opens as text
    by_name = "html" if out is None else endings.get(out.suffix.lower())
    if out is not None and by_name != (report_format or by_name or ""):
        raise ConfigError(
            f"--out {out} does not end like a report; name FILE.html, FILE.md or FILE.json"
        )
    form = report_format or by_name
    where, run = find_run(given.run, given.store)
    archive = Archive(where)
    if form == "html":
        click.echo(asyncio.run(archive.write_report(run, out)))
        return
    record = asyncio.run(archive.record(run))
    path = out or report_path(where, record.standing.run_id).with_suffix(f".{form}")
    write_page(_summary(record, form), path)
    click.echo(path)


def _summary(record: StoredRun, form: str | None) -> str:
    if form == "md":
        return markdown(record.standing, record.result)
    content = standing_json(record.standing) if record.result is None else record.result.as_json
    return json_text(content) + "\n"


def view(given: Given, stores: Sequence[str], port: int) -> None:
    """Serve a page of runs until Ctrl-C."""
    from bestarm_agent.view.server import serve

    async def serving(places: Sequence[str | Path]) -> None:
        async with serve(places, port) as address:
            click.echo(f"{address}\nOpen this address in a browser on this machine; Ctrl-C ends.")
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(serving(default_stores(stores)))


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
    n_shown = asyncio.run(
        _print_answers(opening, only, as_json=given.as_json, everything=everything)
    )
    if not n_shown:
        click.echo("no answer of the run is like this", err=True)


async def _print_answers(
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
        page = [pair async for pair in _first_pairs(pairs, most)]
    if page:
        wide = [Column(title, "end") for title in ("question", "target", "answer")]
        print_table(
            [Column("candidate", "middle"), "example", Column("score", right=True), *wide],
            map(_answer_cells, page),
        )
    if (n_more := n_pairs - len(page)) > 0:
        click.echo(f"... and {n_more:,} more: --all shows them")
    return len(page)


async def _first_pairs(pairs: AsyncIterator[PairOutcome], most: int) -> AsyncIterator[PairOutcome]:
    for _ in range(most):
        if (pair := await anext(pairs, None)) is None:
            break
        yield pair


def _answer_cells(pair: PairOutcome) -> list[str]:
    texts = question_of(pair), pair.target or "", answer_text(pair)
    return [pair.candidate, pair.example, score_text(pair.score), *texts]


def answer_text(pair: PairOutcome) -> str:
    """Return what the model answered, or why it did not."""
    if pair.failure is not None:
        return f"{pair.failed_as}: {pair.message}"
    return pair.state if pair.state in AWAITED else pair.reply or pair.answer or ""


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
    missing = pair.state if pair.state in AWAITED else "no answer"
    score = missing if pair.score is None else score_text(pair.score)
    click.echo(f"{safe(pair.candidate)} on {safe(pair.example)}: {score}")
    texts = {**pair.flat(), "failure": pair.failed_as}
    for name in _IN_FULL:
        if text := texts[name]:
            click.echo(f"  {name}:")
            click.echo("\n".join(f"    {line}" for line in safe_lines(str(text)).split("\n")))
    if pair.attempts is not None:
        click.echo(f"  {_costs(pair)}")
    click.echo()


def _costs(pair: PairOutcome) -> str:
    price = "price unknown" if pair.usd is None else f"${pair.usd:.6g}"
    requests = counted(pair.attempts or 0, "request") + ", from the cache" * bool(pair.cached)
    return f"{requests}, {pair.tokens:,} tokens, {price}, {pair.seconds:.2f} s"


def export(given: Given, out: Path | None, export_format: str | None, texts: bool) -> None:
    """Export a run's scores, with texts page by page."""
    where, run = find_run(given.run, given.store)
    archive = Archive(where)
    if export_format == "inspect":
        _export_inspect(archive, run, out)
        return
    target = sys.stdout.buffer if out is None else out
    chosen = export_format or ("csv" if out is None else None)
    if texts:
        with _texts(archive, run) as (state, read):
            export_scores(state, target, format=chosen, pairs=read)
    else:
        state = asyncio.run(archive.state(run))
        export_scores(state, target, format=chosen)
    if out is not None:
        click.echo(f"written: {out}")


def _export_inspect(archive: Archive, run: str, folder: Path | None) -> None:
    from bestarm_agent.interop.inspect_export import write_inspect_logs

    if folder is None:
        raise ConfigError("--format inspect writes a log per candidate; name a folder: --out logs")
    with _texts(archive, run) as (state, pairs):
        written = write_inspect_logs(state, pairs, folder)
    click.echo(f"written: {len(written)} logs; look at them: inspect view --log-dir {folder}")


@contextmanager
def _texts(archive: Archive, run: str) -> Iterator[tuple[RunState, Iterator[PairOutcome]]]:
    """Open a run's texts, to be read page by page without an event loop around."""
    # Exporting writes rows as it reads them, in a function that does not wait. So one event loop is
    # kept and entered once for each page: the replies of a whole run may not fit into memory.
    stack = AsyncExitStack()
    with Runner() as runner:
        opened = runner.run(stack.enter_async_context(archive.texts(run)))
        try:
            print_note(opened)
            yield opened.state, _pairs_of(runner, opened)
        finally:
            runner.run(stack.aclose())


def _pairs_of(runner: Runner, opened: RunTexts) -> Iterator[PairOutcome]:
    pages = opened.pages(range(opened.state.n_asked))

    async def following() -> list[PairOutcome]:
        return await anext(pages, [])

    while page := runner.run(following()):
        yield from page


def print_note(texts: RunTexts) -> None:
    """Say on stderr which prompts and targets are missing."""
    if texts.note:
        click.echo(f"note: {safe(texts.note)}", err=True)
