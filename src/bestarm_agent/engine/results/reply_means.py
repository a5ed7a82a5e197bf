"""Means of a candidate's scored replies beside the score: their length, further scorers'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bestarm_agent.store.reply_sums import ReplySums
from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class RowMeasure:
    """A candidate's mean by one of the study's further scorers; no interval is stated for it."""

    name: str
    n: int  # replies that it could score
    mean: float | None  # in [0, 1]; None where there is none


def measure_names(state: RunState) -> Sequence[str]:
    """Return the names of the study's further scorers, in the order of their scores."""
    config = None if state.started is None else state.started.config
    found = config.get("measures") if isinstance(config, Mapping) else None
    return sorted(found) if isinstance(found, Mapping) else []


def mean_length(sums: ReplySums) -> float | None:
    """Return the mean output tokens of a reply; None where no token was counted."""
    return sums.output_tokens / sums.n if sums.output_tokens else None


def row_measures(sums: ReplySums, names: Sequence[str]) -> tuple[RowMeasure, ...]:
    """Return the mean by each further scorer."""
    missing = len(names) - len(sums.measures)
    totals, counts = [*sums.measures, *[0.0] * missing], [*sums.measured, *[0] * missing]
    return tuple(
        RowMeasure(name, n, total / n if n else None)
        for name, total, n in zip(names, totals, counts, strict=True)
    )
