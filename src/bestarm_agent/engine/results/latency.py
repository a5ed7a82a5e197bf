"""Seconds of answered calls: median, 95th percentile and longest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import merge

from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from sending a request to its complete answer, without waits of our own.

    Only the attempt that was answered counts. A reply from the cache counts with the seconds of
    the call that bought it. Percentiles are measured times (nearest rank).
    """

    n: int  # answered calls, > 0
    p50: float
    p95: float
    longest: float

    def as_json(self) -> dict[str, float]:
        """Return it as a JSON object."""
        return asdict(self)


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
    groups: dict[str, list[Sequence[float]]] = {}
    for candidate, seconds in zip(state.candidates, state.latencies_of, strict=True):
        groups.setdefault(f"{candidate.provider}/{candidate.model}", []).append(seconds)
    found = {model: latency_of(list(merge(*lists))) for model, lists in groups.items()}
    timed = [(model, one) for model, one in found.items() if one is not None]
    return sorted(timed, key=lambda item: -item[1].p50)
