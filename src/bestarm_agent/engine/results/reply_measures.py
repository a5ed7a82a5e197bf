"""Measures of a candidate's replies beside their score: seconds, length, further scorers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from bestarm_agent.store.run_state import CandidateTotals, RunState


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from sending a request to its complete answer, without waits of our own.

    Only the attempt that was answered counts. A reply from the cache counts with the seconds of
    the call that bought it. Percentiles are measured times (nearest rank).
    """

    n: int  # calls, > 0
    p50: float
    p95: float
    longest: float


def latency_of(seconds: Sequence[float]) -> Latency | None:
    """Summarise sorted seconds; None if there are none.

    Example:
        >>> latency_of([0.5, 0.6, 0.7, 9.0])
        Latency(n=4, p50=0.6, p95=9.0, longest=9.0)
    """
    if not seconds:
        return None
    p50, p95 = (seconds[math.ceil(p * len(seconds) / 100) - 1] for p in (50, 95))
    return Latency(len(seconds), p50, p95, seconds[-1])


def latency_by_model(state: RunState) -> list[tuple[str, Latency]]:
    """Return the models that answered with their latencies, slowest median first."""
    groups: dict[str, list[CandidateTotals]] = {}
    for candidate, totals in zip(state.candidates, state.totals, strict=True):
        groups.setdefault(f"{candidate.provider}/{candidate.model}", []).append(totals)
    found = {
        model: latency_of(list(merge(*(one.latencies for one in group))))
        for model, group in groups.items()
    }
    timed = [(model, one) for model, one in found.items() if one is not None]
    return sorted(timed, key=lambda item: -item[1].p50)


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


def mean_length(totals: CandidateTotals) -> float | None:
    """Return the mean output tokens of a reply; None where no token was counted."""
    return totals.output_tokens / totals.replies if totals.output_tokens else None


def row_measures(totals: CandidateTotals, names: Sequence[str]) -> tuple[RowMeasure, ...]:
    """Return the mean by each further scorer."""
    missing = len(names) - len(totals.measures)
    sums, counts = [*totals.measures, *[0.0] * missing], [*totals.measured, *[0] * missing]
    return tuple(
        RowMeasure(name, n, total / n if n else None)
        for name, total, n in zip(names, sums, counts, strict=True)
    )
