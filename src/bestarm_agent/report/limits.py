"""Limits of an objective as text: whether a candidate keeps them, and by which numbers."""

from __future__ import annotations

from bestarm_agent.config.study.objective import LENGTH, PRICE, SECONDS
from bestarm_agent.engine.results.standing import LimitState, Row, RowLimit, RowPrice
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
    one = found.constraint
    if found.mean is None:
        return f"{one.text}: nothing seen yet"
    if one.name == PRICE:
        price = price_text(RowPrice(found.mean, found.lower, found.upper))
        return f"{one.text}: {said}; {price}"
    if one.name == LENGTH:
        numbers = f"[{found.lower:,.0f}, {found.upper:,.0f}]"
        return f"{one.text}: {said}; mean {found.mean:,.0f} {numbers}"
    if one.name == SECONDS:
        mean, *ends = (seconds_text(x) for x in (found.mean, found.lower, found.upper))
        return f"{one.text}: {said}; mean {mean} [{', '.join(ends)}]"
    numbers = f"[{found.lower:.3f}, {found.upper:.3f}]"
    return f"{one.text}: {said}; mean {found.mean:.3f} {numbers}"
