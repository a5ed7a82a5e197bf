"""Speed of a run: outcomes per second."""

from __future__ import annotations

import numpy as np

from bestarm_agent.store.run_state import RunState

_BINS = 60


def outcomes_over_time(state: RunState) -> tuple[list[float], list[float]]:
    """Return the middles of equal stretches of working time, in s, and outcomes per s in each."""
    at = state.told.at
    end = float(at.max(initial=0.0))
    if end <= 0:
        return [], []
    counts, edges = np.histogram(at, bins=_BINS, range=(0.0, end))
    width = edges[1] - edges[0]
    return (edges[:-1] + width / 2).tolist(), (counts / width).tolist()
