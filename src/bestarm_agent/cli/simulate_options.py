"""Options of ``bestarm-agent simulate`` and how their texts are read."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol, TypeAlias

import numpy as np
import typer

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.matrices import ScoreMatrix
from bestarm_agent.simulation.study import Plan
from bestarm_agent.simulation.tabular import open_csv
from bestarm_agent.simulation.world import Conditions, Latency

DEFAULT_POINTS = 20


class Per(StrEnum):
    """What a rule makes the most of."""

    CALL = "call"
    DOLLAR = "dollar"


MatrixArgument: TypeAlias = Annotated[
    str, typer.Argument(help="FILE.npz or FILE.npz:NAME, FILE.csv, FILE.parquet, or a run.")
]
CutoffOption: TypeAlias = Annotated[
    float | None,
    typer.Option(help="FILE.npz holds run times: score = 1 - min(time, CUTOFF) / CUTOFF."),
]
TransposeOption: TypeAlias = Annotated[
    bool, typer.Option("--transpose", help="FILE.npz holds a row per example.")
]
SelectorsOption: TypeAlias = Annotated[
    str, typer.Option(help="Rules separated by commas, each perhaps with [OPTION=VALUE,...].")
]
BudgetOption: TypeAlias = Annotated[
    str, typer.Option(help="LO:HI or LO:HI:POINTS, shares of all calls: 0.01:0.30 or 1%:30%.")
]
SeedsOption: TypeAlias = Annotated[
    int, typer.Option(min=1, help="Repetitions, each with the matrix shuffled anew.")
]
InFlightOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Calls at once; the batch size if not given.")
]
BatchOption: TypeAlias = Annotated[int, typer.Option(min=1, help="Pairs asked for together.")]
LatencyOption: TypeAlias = Annotated[
    str, typer.Option(help="none, exponential:SECONDS, or correlated:SLOWDOWN (of bad replies).")
]
FailuresOption: TypeAlias = Annotated[
    float, typer.Option(min=0, max=0.99, help="Share of the calls that cannot be measured.")
]
CostsOption: TypeAlias = Annotated[
    str, typer.Option(help="matrix, none, or a CSV of candidate,cost (of one call).")
]
PerOption: TypeAlias = Annotated[
    Per, typer.Option(help="What rules make the most of, and budgets are shares of: call, dollar.")
]
TopKOption: TypeAlias = Annotated[int, typer.Option(min=1, help="Size of the set to find.")]
EpsOption: TypeAlias = Annotated[
    list[float] | None,
    typer.Option(help="Also count answers this close to the best as right; repeatable."),
]
JsonOption: TypeAlias = Annotated[
    str | None, typer.Option("--json", help="Write all curves to this file; - for stdout.")
]
PlotOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Draw the curves: FILE.svg, FILE.png or FILE.pdf.")
]
JobsOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Parallel processes; one per core if not given.")
]
StoreOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Run store that a run is read from: a file or a PostgreSQL URL.")
]


class StoredRuns(Protocol):
    """Reads the score matrix of an earlier run from its store."""

    def __call__(self, run: str, *, store: str | None = None) -> ScoreMatrix:
        """Read it; ``store`` is its file or URL, None for the usual one."""
        ...


def parse_budget(text: str) -> tuple[float, float, int]:
    """Read LO:HI[:POINTS]; shares in (0, 1] or percentages.

    Raises:
        ConfigError: the text does not follow that form.

    Example:
        >>> parse_budget("1%:0.3")
        (0.01, 0.3, 20)
    """
    parts = text.split(":")
    try:
        low, high = (_share(part) for part in parts[:2])
        points = int(parts[2]) if len(parts) == 3 else DEFAULT_POINTS
    except ValueError:
        low, high, points = 0.0, 0.0, 0
    if not (0 < low <= high <= 1 and points >= 1 and len(parts) <= 3):
        raise ConfigError(
            "--budget must be LO:HI[:POINTS] with 0 < LO <= HI <= 1, for example 0.01:0.30:20,"
            f" got {text!r}"
        )
    return low, high, points


def parse_latency(text: str) -> Latency | None:
    """Read none, exponential[:SECONDS] or correlated[:SLOWDOWN].

    Raises:
        ConfigError: the text does not follow that form.

    Example:
        >>> parse_latency("correlated:5")
        Latency(mean=1.0, slowdown=5.0)
    """
    law, _, number = text.partition(":")
    if text == "none":
        return None
    try:
        if law == "exponential":
            return Latency(mean=float(number or 1))
        if law == "correlated":
            return Latency(slowdown=float(number or 3))
    except ValueError as error:
        raise ConfigError(f"--latency {text}: {error}") from None
    raise ConfigError(
        f"--latency must be none, exponential[:SECONDS] or correlated[:SLOWDOWN], got {text!r}"
    )


def conditions_of(in_flight: int | None, batch: int, latency: str, failures: float) -> Conditions:
    """Put the conditions together.

    Raises:
        ConfigError: they contradict one another, or ``latency`` cannot be read.
    """
    law = parse_latency(latency)
    try:
        return Conditions(batch if in_flight is None else in_flight, batch, law, failures)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def plan_of(
    shares: tuple[float, ...], seeds: int, conditions: Conditions, top_k: int, per: Per
) -> Plan:
    """Put a plan together; raises ConfigError where its parts contradict one another."""
    try:
        return Plan(shares, seeds, conditions=conditions, top_k=top_k, per_cost=per is Per.DOLLAR)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def with_costs(matrix: ScoreMatrix, costs: str) -> ScoreMatrix:
    """Keep, drop or replace the costs of a matrix.

    Args:
        matrix: the scores.
        costs: ``matrix``, ``none``, or a CSV file with the columns candidate and cost.

    Raises:
        ConfigError: the file is missing, leaves a candidate out, or holds no positive numbers.
    """
    if costs == "matrix":
        return matrix
    if costs == "none":
        return replace(matrix, costs=None)
    table = _read_costs(Path(costs))
    missing = [name for name in matrix.names if name not in table]
    if missing:
        raise ConfigError(f"{costs}: no cost is given for candidate {missing[0]!r}")
    try:
        return replace(matrix, costs=np.array([float(table[name]) for name in matrix.names]))
    except ValueError as error:
        raise ConfigError(f"{costs}: {error}") from None


def check_contest(matrix: ScoreMatrix, per: Per) -> None:
    """Refuse a matrix with nothing to choose from, or without the costs needed; ConfigError."""
    if per is Per.DOLLAR and matrix.costs is None:
        raise ConfigError(
            f"--per dollar needs to know what a call of each candidate costs, and {matrix.source} "
            f"does not say; give --costs TABLE.csv with the columns candidate and cost"
        )
    if len(matrix.names) == 1:
        raise ConfigError(
            f"{matrix.source} holds one candidate, and a selection rule chooses among several"
        )


def processes(jobs: int | None) -> int:
    """Number of processes: as asked, else one per core."""
    return jobs or os.cpu_count() or 1


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _read_costs(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise ConfigError(f"--costs must be matrix, none or a CSV file; there is no file {path}")
    with open_csv(path) as file:
        rows = csv.DictReader(file)
        if not {"candidate", "cost"} <= set(rows.fieldnames or ()):
            raise ConfigError(f"{path}: a cost table has the columns candidate and cost")
        return {row["candidate"]: row["cost"] for row in rows}
