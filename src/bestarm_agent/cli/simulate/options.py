"""Options of ``simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.options import Count, Number, StoreOption, Text


class Per(StrEnum):
    """Unit that a rule spends well."""

    CALL = "call"
    DOLLAR = "dollar"


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """Source of the scores and the way to read them."""

    matrix: Annotated[
        list[str],
        typer.Argument(
            help="FILE.npz or FILE.npz:NAME, FILE.csv, FILE.parquet, a run, or logs of other tools."
        ),
    ]
    costs: Annotated[
        str, typer.Option(help="matrix, none, or a CSV of candidate,cost (of one call).")
    ] = "matrix"
    axes: Annotated[
        Text,
        typer.Option(help="Columns that hold each candidate's model, prompt, ...: model,prompt."),
    ] = None
    cutoff: Annotated[
        Number,
        typer.Option(help="FILE.npz holds run times: score = 1 - min(time, CUTOFF) / CUTOFF."),
    ] = None
    transpose: Annotated[
        bool, typer.Option("--transpose", help="FILE.npz holds a row per example.")
    ] = False
    metric: Annotated[Text, typer.Option(help="The score to take from logs that hold several.")] = (
        None
    )
    store: StoreOption = None


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Rules to replay, the number of seeds and the conditions."""

    selectors: Annotated[
        str, typer.Option(help="Rules separated by commas, each perhaps with [OPTION=VALUE,...].")
    ] = "auto,ucb-e,sysrs,uniform"
    budget: Annotated[
        str, typer.Option(help="LO:HI or LO:HI:POINTS, shares of all calls: 0.01:0.30 or 1%:30%.")
    ] = "0.01:0.30"
    seeds: Annotated[
        int, typer.Option(min=1, help="Repetitions, each with the matrix shuffled again.")
    ] = 50
    in_flight: Annotated[
        Count, typer.Option(min=1, help="Calls at once; the batch size if not given.")
    ] = None
    batch: Annotated[int, typer.Option(min=1, help="Pairs asked for together.")] = 1
    latency: Annotated[
        str,
        typer.Option(help="none, exponential:SECONDS, or correlated:SLOWDOWN (of bad replies)."),
    ] = "none"
    failures: Annotated[
        float, typer.Option(min=0, max=0.99, help="Share of the calls that cannot be measured.")
    ] = 0.0
    per: Annotated[
        Per,
        typer.Option(help="What rules make the most of, and budgets are shares of: call, dollar."),
    ] = Per.CALL
    top_k: Annotated[int, typer.Option(min=1, help="Size of the set to find.")] = 1
    eps: Annotated[
        list[float] | None,
        typer.Option(help="Also count answers this close to the best as right; repeatable."),
    ] = None
    jobs: Annotated[
        Count, typer.Option(min=1, help="Parallel processes; one per core if not given.")
    ] = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Things to show besides the table, and files to write."""

    floor: Annotated[
        bool, typer.Option("--floor", help="Compare with the fewest calls that any rule needs.")
    ] = False
    json_path: Annotated[
        Text, typer.Option("--json", help="Write all curves to this file; - for stdout.")
    ] = None
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves: FILE.svg, FILE.png or FILE.pdf.")
    ] = None
