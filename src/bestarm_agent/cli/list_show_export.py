"""``list``, ``show``, ``report`` and ``export``: look at stored runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bestarm_agent.cli.answers import print_note
from bestarm_agent.cli.options import JsonOption, RunArgument, StoreOption

if TYPE_CHECKING:
    from asyncio import Runner

    from rich.table import Table

    from bestarm_agent.engine.results.pairs import PairOutcome, RunTexts
    from bestarm_agent.store.export import Texts
    from bestarm_agent.store.run_state import RunState
    from bestarm_agent.store.store import RunInfo
    from bestarm_agent.study import Archive, StoredRun


_T = TypeVar("_T")


class Format(StrEnum):
    """File formats of ``export``."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    NPZ = "npz"
    INSPECT = "inspect"


class ReportFormat(StrEnum):
    """File formats of ``report``."""

    HTML = "html"
    MD = "md"
    JSON = "json"


class Form(StrEnum):
    """Content of an exported row: one pair, or one candidate."""

    LONG = "long"
    MATRIX = "matrix"


def list_(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all runs in the store, oldest first."""
    from bestarm_agent.cli.result_output import stdout_console
    from bestarm_agent.cli.stores import default_store
    from bestarm_agent.study import Archive

    runs = _wait_for(Archive(default_store(store)).runs())
    if as_json:
        typer.echo(json.dumps([_info_json(info) for info in runs], indent=2))
    else:
        stdout_console().print(_runs_table(runs))


def show(
    run: RunArgument = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a run stands."""
    from bestarm_agent.cli.result_output import print_mode_result, print_result

    archive, found = _archive_of(run, store)
    record = _wait_for(archive.record(found))
    if record.result is not None:
        print_mode_result(record.result, as_json=as_json)
    else:
        print_result(record.standing, as_json=as_json, failures=record.failures)


def report(
    run: RunArgument = None,
    out: Annotated[Path | None, typer.Option(help="File to write; else next to the store.")] = None,
    fmt: Annotated[
        ReportFormat, typer.Option("--format", help="Format; json is that of `show --json`.")
    ] = ReportFormat.HTML,
    store: StoreOption = None,
) -> None:
    """Write a run as one HTML file that opens offline.

    Or a summary as Markdown or JSON.
    """
    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.study import Archive, report_path, write_page

    where, found = find_run(run, store)
    archive = Archive(where)
    if fmt is ReportFormat.HTML:
        typer.echo(_wait_for(archive.write_report(found, out)))
        return
    record = _wait_for(archive.record(found))
    path = out or report_path(where, record.standing.run_id).with_suffix(f".{fmt.value}")
    write_page(_summary(record, fmt), path)
    typer.echo(path)


def _summary(record: StoredRun, fmt: ReportFormat) -> str:
    from bestarm_agent.cli.result_output import standing_json
    from bestarm_agent.report.markdown import markdown

    if fmt is ReportFormat.MD:
        return markdown(record.standing, record.result)
    found = standing_json(record.standing) if record.result is None else record.result.as_json
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def export(
    run: RunArgument = None,
    out: Annotated[Path | None, typer.Option(help="File; else stdout.")] = None,
    fmt: Annotated[Format | None, typer.Option("--format", help="Format of the file.")] = None,
    form: Annotated[Form, typer.Option(help="One row per pair, or per candidate.")] = Form.LONG,
    texts: Annotated[
        bool, typer.Option(help="With prompts, targets, replies, answers, verdicts, messages.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Export a run's scores. Cells that were not measured stay empty.

    `inspect` writes a folder of logs, with prompts and answers.
    """
    from bestarm_agent.store.export import export_scores

    target = sys.stdout.buffer if out is None else out
    archive, found = _archive_of(run, store)
    if fmt is Format.INSPECT:
        _export_inspect(archive, found, out)
        return
    chosen = fmt.value if fmt else ("csv" if out is None else None)
    if texts and form is Form.LONG:
        with _texts(archive, found) as (state, read):
            export_scores(state, target, format=chosen, texts=read)
    else:
        state = _wait_for(archive.state(found))
        export_scores(state, target, format=chosen, form=form.value)
    _say_written(out)


def _say_written(out: Path | None) -> None:
    if out is not None:
        typer.echo(f"written: {out}")


def _export_inspect(archive: Archive, run: str, folder: Path | None) -> None:
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.interop.inspect_export import write_inspect_logs

    if folder is None:
        raise ConfigError("--format inspect writes a log per candidate; name a folder: --out logs")
    with _texts(archive, run) as (state, found):
        written = write_inspect_logs(state, found, folder)
    typer.echo(f"written: {len(written)} logs; look at them: inspect view --log-dir {folder}")


@contextmanager
def _texts(archive: Archive, run: str) -> Iterator[tuple[RunState, Iterator[Texts]]]:
    """Open a run's texts, to be read page by page without an event loop around."""
    import asyncio
    from contextlib import AsyncExitStack

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        opened = runner.run(stack.enter_async_context(archive.texts(run)))
        try:
            print_note(opened)
            yield opened.state, _texts_of(runner, opened)
        finally:
            runner.run(stack.aclose())


def _texts_of(runner: Runner, opened: RunTexts) -> Iterator[Texts]:
    from bestarm_agent.engine.results.pairs import verdicts
    from bestarm_agent.store.export import Texts

    pages = opened.pages(range(len(opened.state.asks)))

    async def following() -> list[PairOutcome]:
        return await anext(pages, [])

    while page := runner.run(following()):
        for pair in page:
            yield Texts(pair.prompt, pair.target, pair.reply, verdicts(pair.votes))


def _wait_for(coroutine: Coroutine[Any, Any, _T]) -> _T:
    import asyncio

    return asyncio.run(coroutine)


def _archive_of(run: str | None, store: str | None) -> tuple[Archive, str]:
    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.study import Archive

    where, found = find_run(run, store)
    return Archive(where), found


def _runs_table(runs: Sequence[RunInfo]) -> Table:
    from bestarm_agent.cli.result_output import plain_table
    from bestarm_agent.report.words import safe

    table = plain_table("run", "study", "began", right=("asked", "done"))
    table.add_column("ended")
    for info in runs:
        ended = info.stopped or "running, or cut off"
        counts = f"{info.n_asked:,}", f"{info.n_told:,}"
        table.add_row(info.id, safe(info.name), info.at, *counts, ended)
    return table


def _info_json(info: RunInfo) -> dict[str, object]:
    return {
        "id": info.id,
        "name": info.name,
        "at": info.at,
        "asked": info.n_asked,
        "told": info.n_told,
        "ended": info.stopped,
    }
