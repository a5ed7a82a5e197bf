"""Turn the options of ``simulate`` into matrices, costs, conditions and budgets."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bestarm_agent.cli.simulate.options import MatrixOptions, Per, ReplayOptions
from bestarm_agent.cli.stores import default_store
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.logs import read_logs
from bestarm_agent.interop.recognise import is_log
from bestarm_agent.simulation.npz_scores import Reading
from bestarm_agent.simulation.replay_many import Plan, budget_shares
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.score_tables import open_csv
from bestarm_agent.simulation.simulated_calls import Conditions, Latency
from bestarm_agent.store.export import labels, matrix
from bestarm_agent.study import Archive

DEFAULT_POINTS = 20


def plan_of(options: ReplayOptions) -> Plan:
    """Build a plan from the options; raises ConfigError where they contradict one another."""
    shares = budget_shares(*parse_budget(options.budget))
    law = parse_latency(options.latency)
    in_flight = options.batch if options.in_flight is None else options.in_flight
    try:
        return Plan(
            shares,
            options.seeds,
            conditions=Conditions(in_flight, options.batch, law, options.failures),
            top_k=options.top_k,
            per_cost=options.per is Per.DOLLAR,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


def parse_budget(text: str) -> tuple[float, float, int]:
    """Read LO:HI[:POINTS], shares in (0, 1] or percentages, or raise ConfigError.

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
    """Read none, exponential[:SECONDS] or correlated[:SLOWDOWN], or raise ConfigError.

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


def known_scores(source: MatrixOptions) -> tuple[ScoreMatrix, list[str]]:
    """Read the matrix, and what a reader should know of the logs that it comes from."""
    first, *more = source.matrix
    axes = [name.strip() for name in (source.axes or "").split(",") if name.strip()]
    if more or source.metric is not None or is_log(first):
        if axes:
            raise ConfigError(f"--axes names columns of a score table, and {first!r} is a log")
        logs = read_logs(source.matrix, metric=source.metric)
        return with_costs(logs.matrix(), source.costs), logs.notes()
    reading = Reading(source.cutoff, transposed=source.transpose)
    stored = partial(stored_scores, store=source.store)
    matrix = load_matrix(first, open_run=stored, reading=reading, axes=axes)
    return with_costs(matrix, source.costs), []


def with_costs(matrix: ScoreMatrix, costs: str) -> ScoreMatrix:
    """Keep, drop or replace the costs of a matrix.

    ``costs`` is ``matrix``, ``none``, or a CSV file with the columns candidate and cost.
    Raises ConfigError if it is missing, leaves a candidate out, or holds no positive numbers.
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
    """Refuse a matrix with a single candidate, or without the costs needed; ConfigError."""
    if per is Per.DOLLAR and matrix.costs is None:
        raise ConfigError(
            f"--per dollar needs to know what a call of each candidate costs, and {matrix.source} "
            f"does not say; give --costs TABLE.csv with the columns candidate and cost"
        )
    if len(matrix.names) == 1:
        raise ConfigError(
            f"{matrix.source} holds one candidate, and a selection rule chooses among several"
        )


def stored_scores(run: str, store: str | None) -> ScoreMatrix:
    """Read the scores of a stored run; candidates without any score are left out.

    Raises ConfigError if there is no store or no score, RunNotFoundError if there is no run.
    """
    state = asyncio.run(Archive(default_store(store)).state(run))
    scores = matrix(state)
    seen = np.flatnonzero(np.isfinite(scores).any(axis=1))
    if not len(seen):
        raise ConfigError(f"run {run} holds no score yet; nothing can be simulated on it")
    names = [labels(state)[i] for i in seen]
    return ScoreMatrix(scores[seen].astype(np.float32), tuple(names), costs=None, source=run)


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
