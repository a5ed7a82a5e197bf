"""``import``: read the logs of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import Text

if TYPE_CHECKING:
    from bestarm_agent.interop.logs import Logs


def import_(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Logs; the format shows in each file.")
    ],
    metric: Annotated[Text, typer.Option(help="The score to take, if the logs hold several.")] = (
        None
    ),
    out: Annotated[
        Path | None, typer.Option(help="Write the answers and scores: FILE.jsonl.")
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="Write a study that replays the logs into this folder.")
    ] = None,
) -> None:
    """Read logs of Inspect, lm-eval and promptfoo, and plain tables.

    `simulate`, `--history` and `replay` read what --out writes; `select` runs the study.
    """
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.interop.logs import read_logs, write_answers, write_replay_study

    if out is not None and out.suffix != ".jsonl":
        raise ConfigError(f"--out is a file of JSON lines, FILE.jsonl, got {str(out)!r}")
    logs = read_logs(paths, metric=metric, texts=bool(out or study))
    _show(logs)
    if out is not None:
        write_answers(logs, out)
        typer.echo(f"written: {out}")
    if study is not None:
        typer.echo(f"written: {write_replay_study(logs, study)}")


def _show(logs: Logs) -> None:
    from math import isfinite

    from rich.text import Text as Line

    from bestarm_agent.cli.result_output import plain_table, stdout_console
    from bestarm_agent.report.words import safe

    matrix, console = logs.matrix(), stdout_console()
    n_candidates, n_examples = matrix.scores.shape
    title = f"{logs.source}: {n_candidates} candidates x {n_examples} examples"
    for line in (title, *logs.notes()):
        console.print(Line(safe(line)))
    table = plain_table("candidate", right=("scored", "mean"))
    for name, row, mean in zip(matrix.names, matrix.scores, matrix.means, strict=True):
        table.add_row(Line(safe(name)), f"{sum(map(isfinite, row)):,}", f"{mean:.3f}")
    console.print(table)
