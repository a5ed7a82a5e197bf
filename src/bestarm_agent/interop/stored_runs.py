"""Facts of a stored run that exports to other tools need."""

from __future__ import annotations

from collections.abc import Mapping

from bestarm_agent.domain.events import Started
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Usage
from bestarm_agent.store.export import Record
from bestarm_agent.store.run_state import RunState


def scorer_of(started: Started) -> str:
    """Return the name of a run's scorer."""
    config = started.config
    scorer = config.get("scorer") if isinstance(config, Mapping) else None
    return str(scorer.get("name") if isinstance(scorer, Mapping) else scorer)


def model_of(record: Record) -> str:
    """Return the model as `developer/model`; the provider stands in for an unnamed developer."""
    return record.model if "/" in record.model else f"{record.provider}/{record.model}"


def usage_of(state: RunState, record: Record) -> Usage | None:
    """Return the tokens of the answered call; None if it was not scored, or none are known."""
    told = state.told.get(record.seq)
    if told is None or not isinstance(told.outcome, Scored) or not told.outcome.usage.total:
        return None
    return told.outcome.usage
