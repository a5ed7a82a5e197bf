"""The verdict in one sentence, and what would settle it."""

from __future__ import annotations

from bestarm_agent.engine.results.effects import LEVEL, AxisEffects, axis_effects, forecast
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.text import safe, share
from bestarm_agent.selectors.types import Guarantee


def headline(standing: Standing) -> tuple[str, str]:
    """Return the name of the winner and what the sentence says of it; no name before a score."""
    winner = standing.winner
    if winner is None:
        return "", "No score yet" if standing.best is None else "No candidate fits yet"
    return safe(winner.candidate.label), _said(standing)


def _said(standing: Standing) -> str:
    if len(standing.rows) == 1:
        return "is the only candidate; nothing was compared."
    if standing.guarantee is Guarantee.HEURISTIC:
        return "leads; its intervals guarantee nothing."
    if standing.objective is not None:
        return "is the answer." if standing.established else "is the best guess."
    if standing.separated:
        exact = standing.guarantee is Guarantee.EXACT
        sure = "certain" if exact else f"{standing.confidence:.0%} sure"
        return f"is the best ({sure})."
    count = len(standing.rivals)
    if standing.margin == 0:
        return f"is as good as any; {count} {_others(count)} may be as good."
    if standing.established:
        return f"is within {standing.within:g} of the best ({standing.confidence:.0%} sure)."
    return f"leads; {count} {_others(count)} {'is' if count == 1 else 'are'} still possible."


def _others(count: int) -> str:
    return "other" if count == 1 else "others"


def outlook(standing: Standing) -> str:
    """Say what would settle the run, as a forecast; "" where nothing can be said."""
    found = forecast(standing)
    if found is None:
        return ""
    if found.level:
        return (
            f"It can hardly be settled: the leaders differ by less than {LEVEL:g}; take the cheaper"
        )
    most = f"{_about(found.most)} more pairs ({found.most / standing.grid:.1%} of the grid)"
    return f"About {_about(found.fewest)} to {most} would settle it, if estimates stay"


def _about(pairs: int) -> str:
    """Write a number with two significant digits."""
    return f"{float(f'{pairs:.2g}'):,.0f}"


def effects_line(standing: Standing) -> str:
    """Name the best and the worst level of each axis on which they can be told apart."""
    found = [axis for axis in axis_effects(standing) if is_clear(axis)]
    return "; ".join(
        f"{safe(axis.axis)} {share(axis.spread)} ({safe(axis.levels[0].level)} over "
        f"{safe(axis.levels[-1].level)})"
        for axis in found
    )


def is_clear(axis: AxisEffects) -> bool:
    """Return whether the intervals of the best and the worst level do not overlap."""
    return axis.levels[0].effect.lower > axis.levels[-1].effect.upper
