"""Reservations about a verdict: missing scores, missing rivals, caps that were passed."""

from __future__ import annotations

from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.report.text import duration, money, safe

_SHOWN_RIVALS = 3
_SLACK = 1.01  # of the time cap, for writing down what happened


def caveat(standing: Standing) -> str:
    """Say in a few words why the winner is provisional, for the line that names it; else ""."""
    if not standing.is_provisional or standing.winner is None:
        return ""
    reasons = []
    if len(standing.rows) == 1:
        reasons.append("the only candidate")
    if standing.unseen:
        reasons.append(f"{standing.unseen} of {len(standing.rows)} candidates have no score")
    if standing.rivals_by_voids:
        reasons.append("void pairs could change who wins")
    return f" (provisional: {'; '.join(reasons)})"


def caveat_lines(standing: Standing) -> list[tuple[str, str]]:
    """Return what leaves the winner open, each as a title and a sentence."""
    lines = []
    if standing.unseen and standing.best is not None:
        named = f"{standing.unseen} of {len(standing.rows)} candidates have no score"
        lines.append(("Unseen", f"{named}, and may be better"))
    winner, rivals = standing.winner, standing.rivals_by_voids
    if winner is not None and rivals:
        named = "; ".join(_bounds(row) for row in (winner, *rivals[:_SHOWN_RIVALS]))
        more = f"; and {len(rivals) - _SHOWN_RIVALS} more" if len(rivals) > _SHOWN_RIVALS else ""
        lines.append(("Void", f"mean if every void pair had scored 0, and 1: {named}{more}"))
    return lines


def passed_caps(standing: Standing) -> list[str]:
    """Say of each cap that was passed by how much, and why."""
    spent, budget = standing.spent, standing.budget
    found = []
    for name, unit in (("usd_nanos", ""), ("tokens", " tokens"), ("calls", " calls")):
        used, cap = getattr(spent, name), getattr(budget, name)
        if cap is None or used <= cap:
            continue
        text = money if name == "usd_nanos" else "{:,}".format
        if over := getattr(standing.reservations.overrun, name):
            why = f"calls cost {text(over)}{unit} more than their providers said they could"
        else:
            why = "calls that were cut off count at the most that they can cost"
        found.append(f"{text(used)}{unit} of {text(cap)}, {text(used - cap)} too much: {why}")
    if budget.seconds is not None and standing.seconds > _SLACK * budget.seconds:
        took = f"{duration(standing.seconds)} of {duration(budget.seconds)}"
        found.append(f"{took}: calls in flight were waited for")
    return found


def _bounds(row: Row) -> str:
    low, high = row.void_bounds or (0.0, 1.0)
    return f"{safe(row.candidate.label)} [{low:.3f}, {high:.3f}], {row.void} void"
