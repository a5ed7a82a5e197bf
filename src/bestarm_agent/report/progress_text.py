"""Texts about the progress of a run: its spend, its waits, its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.results.standing import Row, Standing, Status
from bestarm_agent.errors import counted
from bestarm_agent.report.text import cost_text, duration, money, safe

_SHOWN_LABELS = 3
_LEAST_USED = 0.02  # of the budget, before the time left is guessed

_ENDINGS: Mapping[str, str] = {
    "separated": "what was asked for is established",
    "exhausted": "nothing is left to ask",
    "indifferent": "what is left cannot change the answer",
    "within": "the leading candidate is shown to be good enough",
    "verdict": "every verdict is in",
    "served": "every prompt was answered",
    "budget": "it cannot pay another pair",
    "interrupted": "it was stopped",
    "failures": "too many pairs could not be measured, or a model cannot be called",
    "error": "something unexpected happened",
}
_GOES_ON: Mapping[str, str] = {
    "budget": "`bestarm-agent resume --budget-...` goes on",
    "interrupted": "`bestarm-agent resume` goes on",
    "failures": "`bestarm-agent resume` goes on once that is mended",
    "error": "`bestarm-agent resume` goes on",
}


def most_used(standing: Standing) -> tuple[float, str]:
    """Return the used share, in [0, 1], and the name of the cap that is nearest to its end."""
    spent, budget = standing.spent, standing.budget
    caps = [
        (spent.usd_nanos, budget.usd_nanos, "the dollars"),
        (spent.pulls, budget.pulls, "the pairs allowed"),
        (spent.calls, budget.calls, "the calls"),
        (spent.tokens, budget.tokens, "the tokens"),
        (spent.gpu_seconds, budget.gpu_seconds, "the worker minutes"),
        (standing.seconds, budget.seconds, "the minutes"),
        (standing.asked, standing.grid, "all pairs"),
    ]
    shares = [(min(1.0, used / cap), name) for used, cap, name in caps if cap]
    return max(shares, key=lambda item: item[0], default=(0.0, "the budget"))


def used_line(standing: Standing) -> str:
    """Say how much of the budget is used, by the cap that is nearest to its end."""
    share, name = most_used(standing)
    return f"{share:.0%} of {name}"


def budget_line(standing: Standing) -> str:
    """Say what was spent, each against its cap where there is one."""
    spent, budget = standing.spent, standing.budget
    parts = [f"{standing.asked:,} of {standing.grid:,} pairs ({standing.share:.1%})"]
    if budget.pulls is not None:
        parts[0] += f", at most {budget.pulls:,}"
    parts.append(_against(counted(spent.calls, "call"), budget.calls and f"{budget.calls:,}"))
    parts.append(_against(counted(spent.tokens, "token"), budget.tokens and f"{budget.tokens:,}"))
    cost = cost_text(spent.usd_nanos, priced=standing.priced)
    cost = cost if standing.priced else f"cost {cost}"
    parts.append(_against(cost, budget.usd_nanos and money(budget.usd_nanos)))
    if budget.seconds is not None:
        parts.append(_against(duration(standing.seconds), duration(budget.seconds)))
    return ", ".join(parts)


def _against(used: str, cap: str | int | None) -> str:
    return f"{used} of {cap}" if cap else used


def waits_line(waits: Sequence[Wait]) -> str:
    """Say why calls wait, the shortest wait first, grouped by reason."""
    groups: dict[str, list[Wait]] = {}
    for wait in waits:
        groups.setdefault(wait.reason, []).append(wait)
    return "; ".join(_wait_text(reason, alike) for reason, alike in groups.items())


def _wait_text(reason: str, waits: Sequence[Wait]) -> str:
    count = sum(wait.count for wait in waits)
    others = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    soonest = waits[0].seconds
    return (
        (f"{count} x " if count else "")
        + f"{safe(waits[0].provider)}{others} {safe(reason)}"
        + (f", {soonest:.0f} s" if soonest is not None and soonest >= 0.5 else "")
    )


def ending(end: str | None) -> str:
    """Say why a run ended.

    Example:
        >>> ending("exhausted"), ending(None)
        ('ended: exhausted (nothing is left to ask)', 'ended: not yet')
    """
    if end is None:
        return "ended: not yet"
    return f"ended: {end}" + (f" ({_ENDINGS[end]})" if end in _ENDINGS else "")


def what_next(end: str | None) -> str:
    """Say how to continue a run that ended for a reason; "" if there is nothing to do.

    Example:
        >>> what_next("interrupted"), what_next("exhausted")
        ('; `bestarm-agent resume` goes on', '')
    """
    return f"; {_GOES_ON[end]}" if end is not None and end in _GOES_ON else ""


def time_left(standing: Standing) -> str:
    """Guess the time left from the share of the budget used so far; "" where that says little."""
    used, _ = most_used(standing)
    if used < _LEAST_USED or used >= 1 or standing.end is not None:
        return ""
    left = standing.seconds * (1 - used) / used
    return f"at most about {duration(left)} left"  # it may end early


def failures_line(standing: Standing) -> str:
    """Count pairs that could not be measured and failures of candidates; "" if there is none."""
    void = sum(row.void for row in standing.rows)
    failed = sum(row.failed for row in standing.rows)
    parts = [f"{void:,} not measured (void)"] * (void > 0)
    parts += [f"{failed:,} failed by the candidate"] * (failed > 0)
    return ", ".join(parts)


def latest_failure_line(standing: Standing) -> str:
    """Count failures, as ``failures_line``, and say what the latest was."""
    latest = safe(standing.latest_failure)
    return "; the latest: ".join(filter(None, [failures_line(standing), latest]))


def hidden_line(rows: Sequence[Row]) -> str:
    """Count rows that are not shown, by state; "" if there is none.

    Example:
        >>> hidden_line([])
        ''
    """
    counts = Counter(row.status for row in rows)
    shown = ", ".join(f"{counts[status]:,} {status}" for status in Status if counts[status])
    return f"... and {len(rows):,} more: {shown}" if rows else ""


def problem_lines(standing: Standing) -> list[str]:
    """Say why candidates can no longer be asked, one line per reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in standing.rows:
        if row.problem is not None:
            groups.setdefault((_why(row), row.problem), []).append(row.candidate.label)
    return [f"{why}: {whose(labels)}: {safe(text)}" for (why, text), labels in groups.items()]


def _why(row: Row) -> str:
    return str(row.status).capitalize() if row.status is Status.BARRED else "Not usable"


def whose(labels: Sequence[str]) -> str:
    """Name the first three candidates of a list, and count the others."""
    more = len(labels) - _SHOWN_LABELS
    shown = ", ".join(map(safe, labels[:_SHOWN_LABELS]))
    return f"{shown} and {more} more" if more > 0 else shown
