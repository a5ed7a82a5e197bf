"""Limits of an objective as text: whether a candidate keeps them, and by which numbers."""

from __future__ import annotations

from math import isnan

from bestarm_agent.config.study import LENGTH, PRICE, SECONDS
from bestarm_agent.engine.results.standing import LimitState, Row, RowLimit
from bestarm_agent.report.text import price_text, seconds_text


def limits_text(row: Row) -> str:
    """Count the limits that a candidate keeps, breaks or may keep, in two words or so."""
    counts = [(state, sum(one.state is state for one in row.limits)) for state in LimitState]
    return ", ".join(f"{count} {state}" for state, count in counts if count)


def limit_text(found: RowLimit) -> str:
    """Say whether a candidate keeps a limit, and by which numbers."""
    said = {
        LimitState.KEPT: "shown to be kept",
        LimitState.BROKEN: "shown to be broken",
        LimitState.OPEN: "not shown yet",
    }[found.state]
    one, mean = found.constraint, found.mean
    if isnan(mean.value):
        return f"{one.text}: nothing seen yet"
    if one.name == PRICE:
        return f"{one.text}: {said}; {price_text(mean)}"
    if one.name == LENGTH:
        value, lower, upper = (f"{x:,.0f}" for x in mean)
    elif one.name == SECONDS:
        value, lower, upper = (seconds_text(x) for x in mean)
    else:
        value, lower, upper = (f"{x:.3f}" for x in mean)
    return f"{one.text}: {said}; mean {value} [{lower}, {upper}]"
