"""``label``: people score the answers of the best candidates, and so decide who is best."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TypeAlias

import click

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import print_json, say
from bestarm_agent.cli.stores import find_run, store_option
from bestarm_agent.config.datasets import load_rows
from bestarm_agent.config.settings import more_budget
from bestarm_agent.engine.results.labelling import contenders_of, read_plan
from bestarm_agent.engine.results.people import ByPeople
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError
from bestarm_agent.report.words import ENDINGS, plain
from bestarm_agent.store.export import harmless, whole_file
from bestarm_agent.store.store import StorePlace
from bestarm_agent.study import Archive, Study, run_in_thread

_Rows: TypeAlias = "Sequence[Mapping[str, object]] | None"
_MOST_ROWS = 20  # examples of a table, where --next does not say how many


def label(
    given: Given,
    contenders: Sequence[str],
    top: int,
    raters: int,
    count: int | None,
    out: Path | None,
    filled: Path | None,
    complete: bool,
    port: int,
) -> None:
    """Open the page, write a table to fill in, or read one; say what the labels say.

    ``complete``: let those who take part answer all examples first.
    """
    where, run = find_run(given.run, given.store)
    if complete:
        run = _complete(given, where, run, contenders, top)
    rows = None if filled is None else [row.values for row in load_rows(filled, "table of labels")]
    run_id, stand = asyncio.run(_begun(where, run, contenders, top, raters, rows))
    if filled is None and (out is not None or count is not None):
        if out is None:
            raise ConfigError("--next is for a table; name it: --out todo.csv")
        n = asyncio.run(_write(where, run_id, count or _MOST_ROWS, out))
        then = f"`bestarm-agent label {run_id} --in {quote(str(out))}{store_option(where)}`"
        say(f"written: {out}, {n} answers; fill in `score`, then {then}")
        return
    # the page changed the labels, so what they say is read again when it is closed
    if filled is None and not given.as_json:
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(where, run_id, port))
        stand = asyncio.run(_begun(where, run_id, (), top, raters, None))[1]
    if given.as_json:
        print_json({"decision_by_people": plain(stand.decision), **stand.as_json})
        return
    say(*stand.said)


def _complete(
    given: Given, where: str | Path, run: str, contenders: Sequence[str], top: int
) -> str:
    """Have those who will take part answer and be judged on all examples; return the run's id."""
    extra = more_budget(given.replaced)
    standing = asyncio.run(Archive(where).record(run)).standing
    if read_plan(where, standing.run_id) is not None:
        raise ConfigError(
            "--complete comes before the first label: which scores of the judge are used is fixed "
            "when labelling begins; leave it out"
        )
    chosen, asked = contenders_of(standing, contenders, top), standing.asked

    async def completed(study: Study) -> Standing:
        if extra is not None:
            study.raise_budget(extra.caps(standing.grid))
        return await study.complete(chosen)

    opening = Study.resume(standing.run_id, options=given.options(where))
    done = run_in_thread(opening, completed)
    summary = f"{done.asked - asked:,} more answers of {len(chosen)} candidates"
    if done.end != "exhausted":
        raise ConfigError(
            f"{summary}, which are not all: {ENDINGS.get(done.end or '', done.end)}; say "
            f"--complete again, with more of --budget-usd or --budget-answers if the "
            f"budget ended it, or leave it out: labels count without it, too"
        )
    say(summary)
    return standing.run_id


async def _begun(
    where: StorePlace, run: str, contenders: Sequence[str], top: int, raters: int, rows: _Rows
) -> tuple[str, ByPeople]:
    async with Archive(where).labelling(run, contenders, top=top, raters=raters) as labelling:
        if rows is not None:
            await labelling.put_rows(rows)
        return labelling.texts.run_id, await labelling.stand()


async def _write(where: StorePlace, run: str, count: int, out: Path) -> int:
    async with Archive(where).labelling(run) as labelling:
        if not (rows := await labelling.rows(count)):
            raise ConfigError(f"no answer is left to label. {(await labelling.stand()).said[0]}")
    with whole_file(out, "table") as stream:
        lines = [list(rows[0]), *(map(harmless, row.values()) for row in rows)]
        # with a byte order mark, without which Excel takes UTF-8 for the code page of the system
        csv.writer(text := io.StringIO(newline="")).writerows(lines)
        stream.write(text.getvalue().encode("utf-8-sig"))
    return len(rows)


async def _serve(where: StorePlace, run_id: str, port: int) -> None:
    from bestarm_agent.view.server import serve

    async with serve([where], port) as address:
        page = f"{address}#/run/0/{run_id}/label"
        click.echo(f"{page}\nOpen this address in a browser on this machine; Ctrl-C ends.")
        await asyncio.Event().wait()
