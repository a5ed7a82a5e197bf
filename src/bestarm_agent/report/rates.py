"""Speed of a run: outcomes per second, and seconds of a call by model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.events import Event, Resumed, Stopped, Told
from bestarm_agent.store.run_state import RunState

_BINS = 60


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of the answered calls of one model; replies from the cache do not count."""

    model: str
    calls: int
    median: float
    p90: float
    longest: float


def latencies(state: RunState) -> list[Latency]:
    """Return the latencies by model, slowest first."""
    seconds: dict[str, list[float]] = {}
    for seq, told in state.told.items():
        outcome = told.outcome
        if outcome.seconds > 0 and not getattr(outcome, "cached", False):
            candidate = state.candidates[state.asks[seq].candidate]
            model = f"{candidate.provider}/{candidate.model}"
            seconds.setdefault(model, []).append(outcome.seconds)
    found = [
        Latency(model, len(of), *np.quantile(of, (0.5, 0.9, 1.0)).tolist())
        for model, of in seconds.items()
    ]
    return sorted(found, key=lambda one: -one.median)


def outcomes_over_time(events: Iterable[Event]) -> tuple[list[float], list[float]]:
    """Return the middles of equal stretches of working time, in s, and outcomes per s in each."""
    before, last, at = 0.0, 0.0, []
    for event in events:
        match event:
            case Told():
                last = max(last, event.elapsed)
                at.append(before + event.elapsed)
            case Stopped():
                before, last = before + event.seconds, 0.0
            case Resumed():  # after a session that was killed
                before, last = before + last, 0.0
    if not at or max(at) <= 0:
        return [], []
    counts, edges = np.histogram(at, bins=_BINS, range=(0.0, max(at)))
    width = edges[1] - edges[0]
    return (edges[:-1] + width / 2).tolist(), (counts / width).tolist()
