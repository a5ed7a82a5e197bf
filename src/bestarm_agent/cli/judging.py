"""``judge check``: how far a judge can be trusted."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bestarm_agent.checking import Comparison, JudgeCheck, check_judge
from bestarm_agent.cli.display import busy
from bestarm_agent.cli.options import (
    CatalogOption,
    JsonOption,
    NoCacheOption,
    StoreOption,
    default_store,
)
from bestarm_agent.cli.results import stdout_console
from bestarm_agent.comparing import compare_answers, compare_stored
from bestarm_agent.config.settings import resolve
from bestarm_agent.datasets.labels import load_labels
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.opening import Options
from bestarm_agent.wording import measure, safe

_STUDIES = (".yaml", ".yml", ".json")

SourceArgument = Annotated[
    str,
    typer.Argument(help="A stored run (no call is made), or a study file, whose judge is asked."),
]
LabelsArgument = Annotated[
    Path, typer.Argument(help="Gold scores: example, score, and candidate or answer.")
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", help="Of each interval, between 0 and 1.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    judge = typer.Typer(help="Judges: how far they can be trusted.", no_args_is_help=True)
    judge.command("check")(check)
    judge.callback()(_top)
    app.add_typer(judge, name="judge")


def _top() -> None:
    """Judges: how far they can be trusted."""


def check(
    source: SourceArgument,
    labels: LabelsArgument,
    confidence: ConfidenceOption = 0.95,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a judge's scores with gold scores of the same answers."""
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"--confidence must be between 0 and 1, got {confidence}")
    gold = load_labels(labels)
    if Path(source).suffix in _STUDIES:
        options = Options(store, tuple(catalog or ()), use_cache=not no_cache)
        with busy(Console(stderr=True), f"judging {len(gold)} answers"):
            comparison = asyncio.run(compare_answers(resolve(Path(source)), options, gold))
    else:
        comparison = asyncio.run(compare_stored(default_store(store), source, gold))
    found = check_judge(comparison, confidence)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=1))
    else:
        typer.echo(_counts(found.comparison))
        stdout_console().print(_table(found))
        typer.echo(f"Each interval holds by itself at {confidence:.0%}.")


def _table(check: JudgeCheck) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("measure", "value", "interval", "meaning"):
        table.add_column(column)
    for line in check.lines():
        value, interval = measure(line.measure)
        table.add_row(line.name, value, interval, line.meaning)
    table.add_row("dollars per 1,000", f"{check.usd_per_1000:.4g}", "", "what judging cost")
    return table


def _counts(comparison: Comparison) -> str:
    missing = comparison.n_labels - len(comparison.pairs) - comparison.n_void
    why = f"; the last failure: {safe(comparison.why)}" if comparison.n_void else ""
    return (
        f"{len(comparison.pairs)} of {comparison.n_labels} labels compared, {missing} without a "
        f"score, {comparison.n_void} on which the judge failed{why}"
    )


def _as_json(check: JudgeCheck) -> Json:
    comparison = check.comparison
    return {
        "labels": comparison.n_labels,
        "compared": len(comparison.pairs),
        "judge_failed": comparison.n_void,
        "confidence": check.confidence,
        "usd_per_1000": check.usd_per_1000,
        "measures": {
            line.name: {
                "value": None if math.isnan(line.measure.value) else line.measure.value,
                "lower": line.measure.lower,
                "upper": line.measure.upper,
            }
            for line in check.lines()
        },
    }
