"""How the course of a run reads: what it has spent, what it waits for, why it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bestarm_agent.schedule.waits import Wait
from bestarm_agent.standing import Standing
from bestarm_agent.wording import duration, money, safe

_ENDINGS: Mapping[str, str] = {
    "separated": "what was asked for is established",
    "exhausted": "every pair was evaluated",
    "indifferent": "what is left cannot change the answer",
    "verdict": "every verdict is in",
    "served": "every prompt was answered",
    "budget": "it cannot pay another pair",
    "interrupted": "somebody stopped it",
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
    """The cap that is nearest to its end: the share of it that is used, in [0, 1], and its name."""
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
    """How much of the budget is used, by the cap that is nearest to its end."""
    share, name = most_used(standing)
    return f"{share:.0%} of {name}"


def budget_line(standing: Standing) -> str:
    """What was spent, each against its cap where there is one."""
    spent, budget = standing.spent, standing.budget
    parts = [f"{standing.asked:,} of {standing.grid:,} pairs ({standing.share:.1%})"]
    if budget.pulls is not None:
        parts[0] += f", at most {budget.pulls:,}"
    parts.append(_against(f"{spent.calls:,} calls", budget.calls and f"{budget.calls:,}"))
    parts.append(_against(f"{spent.tokens:,} tokens", budget.tokens and f"{budget.tokens:,}"))
    parts.append(_against(money(spent.usd_nanos), budget.usd_nanos and money(budget.usd_nanos)))
    if budget.seconds is not None:
        parts.append(_against(duration(standing.seconds), duration(budget.seconds)))
    return ", ".join(parts)


def _against(used: str, cap: str | int | None) -> str:
    return f"{used} of {cap}" if cap else used


def waits_line(standing: Standing) -> str:
    """Why calls wait, the soonest to go on first; what waits for the same is told together."""
    groups: dict[str, list[Wait]] = {}
    for wait in standing.waits:
        groups.setdefault(wait.reason, []).append(wait)
    return "; ".join(_wait_text(reason, waits) for reason, waits in groups.items())


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
    """Why a run ended.

    Example:
        >>> ending("exhausted"), ending(None)
        ('ended: exhausted (every pair was evaluated)', 'ended: not yet')
    """
    if end is None:
        return "ended: not yet"
    return f"ended: {end}" + (f" ({_ENDINGS[end]})" if end in _ENDINGS else "")


def what_next(end: str | None) -> str:
    """How a run that ended for such a reason goes on; "" if there is nothing more to do.

    Example:
        >>> what_next("interrupted"), what_next("exhausted")
        ('; `bestarm-agent resume` goes on', '')
    """
    return f"; {_GOES_ON[end]}" if end is not None and end in _GOES_ON else ""


def unseen_line(standing: Standing) -> str | None:
    """How many candidates the verdict knows nothing of; None if it knows of all, or of none."""
    unseen = sum(row.mean is None for row in standing.rows)
    if not unseen or standing.best is None:
        return None
    return f"{unseen} of {len(standing.rows)} candidates have no score, and may be better"
