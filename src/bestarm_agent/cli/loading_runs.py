"""Earlier runs as score matrices, for ``simulate``."""

from __future__ import annotations

import asyncio

import numpy as np

from bestarm_agent.archive import Archive
from bestarm_agent.cli.options import default_store
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.matrices import ScoreMatrix
from bestarm_agent.store.scores import labels, matrix


def open_run(run: str, *, store: str | None = None) -> ScoreMatrix:
    """Read the scores of a stored run; candidates without any score are left out.

    Args:
        run: its id, the start of one, its study's name, or "latest".
        store: file or URL of the store; None for the usual one.

    Raises:
        ConfigError: no store is at hand, or the run has no score.
        RunNotFoundError: there is no such run.
    """
    state = asyncio.run(Archive(default_store(store)).state(run))
    scores = matrix(state)
    seen = np.flatnonzero(np.isfinite(scores).any(axis=1))
    if not len(seen):
        raise ConfigError(f"run {run} holds no score yet; nothing can be simulated on it")
    names = [labels(state)[i] for i in seen]
    return ScoreMatrix(scores[seen].astype(np.float32), tuple(names), costs=None, source=run)
