"""``judge check``: how far a judge can be trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import JsonOption, StudyPlace, expanded

if TYPE_CHECKING:
    from rich.table import Table

    from bestarm_agent.domain.digest import Json
    from bestarm_agent.engine.results.judge_check import JudgeCheck, JudgedLabels

_STUDIES = (".yaml", ".yml", ".json")


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    judge = typer.Typer(help="Judges: how far they can be trusted.", no_args_is_help=True)
    judge.command("check")(expanded(check))
    judge.callback()(_top)
    app.add_typer(judge, name="judge")


def _top() -> None:
    """Judges: how far they can be trusted."""


def check(
    source: Annotated[
        str,
        typer.Argument(
            help="A stored run (no call is made), or a study file, whose judge is asked."
        ),
    ],
    place: StudyPlace,
    labels: Annotated[
        Path | None,
        typer.Argument(
            help="Gold scores: example, score, and candidate or answer. Left out: those given to "
            "the run in `bestarm-agent view`."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of each interval, between 0 and 1.")] = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Compare a judge's scores with gold scores of the same answers."""
    from bestarm_agent.cli.result_output import stdout_console
    from bestarm_agent.engine.results.judge_check import check_judge
    from bestarm_agent.errors import ConfigError

    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"--confidence must be between 0 and 1, got {confidence}")
    found = check_judge(_compared(source, labels, place), confidence)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=1))
        return
    typer.echo(_counts(found.comparison))
    stdout_console().print(_table(found))
    typer.echo(f"Each interval holds by itself at {confidence:.0%}.")


def _compared(source: str, labels: Path | None, place: StudyPlace) -> JudgedLabels:
    """Compare the scores of a stored run, or let the judge of a study file score the answers."""
    import asyncio

    from rich.console import Console

    from bestarm_agent.cli.progress import busy
    from bestarm_agent.cli.stores import default_store
    from bestarm_agent.config.datasets import load_labels
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.engine.results.judge_check import compare_stored
    from bestarm_agent.engine.setup.calls_outside_runs import compare_answers
    from bestarm_agent.engine.setup.open_run import catalog_of
    from bestarm_agent.engine.setup.parts import assemble
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.study import open_mode

    gold = None if labels is None else load_labels(labels)
    if Path(source).suffix not in _STUDIES:
        return asyncio.run(compare_stored(default_store(place.store), source, gold))
    if gold is None:
        raise ConfigError(f"name a file of labelled answers for the judge of {source}")
    with busy(Console(stderr=True, emoji=False), f"judging {len(gold)} answers"):
        options, study = place.options(), resolve(Path(source))
        parts = assemble(study, catalog_of(study, options), open_mode)
        return asyncio.run(compare_answers(parts, options, gold))


def _table(check: JudgeCheck) -> Table:
    from bestarm_agent.cli.result_output import plain_table
    from bestarm_agent.report.words import measure

    table = plain_table("measure", "value", "interval", "meaning")
    for name, found, meaning in check.lines():
        value, interval = measure(found)
        table.add_row(name, value, interval, meaning)
    cost = "unknown" if check.usd_per_1000 is None else f"{check.usd_per_1000:.4g}"
    table.add_row("dollars per 1,000", cost, "", "what judging cost")
    return table


def _counts(comparison: JudgedLabels) -> str:
    from bestarm_agent.report.words import safe

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
            name: {
                "value": None if math.isnan(found.value) else found.value,
                "lower": found.lower,
                "upper": found.upper,
            }
            for name, found, _ in check.lines()
        },
    }
