"""The winner's mean, said so that the choice does not flatter it."""

from __future__ import annotations

from math import isnan

from bestarm_agent.engine.results.confirmation import Confirmation, Confirmed
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.text import estimate, safe, share
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure


def number_lines(standing: Standing) -> list[tuple[str, str]]:
    """Return what holds of the winner's mean in spite of the choice, each as a title and a text."""
    if standing.winner is None or standing.winner.estimate is None:
        return []
    found = standing.confirmation
    if found is not None and found.winner is not None:
        return _confirmed(found, found.winner)
    if not standing.is_flattering:
        return []
    return [("Its mean", _corrected(standing))]


def number_json(standing: Standing) -> dict[str, object] | None:
    """Return the same as a JSON object; None before the winner has a score."""
    winner, found = standing.winner, standing.confirmation
    if winner is None or winner.estimate is None:
        return None
    return {
        "seen": winner.total / winner.n if winner.n else None,
        "estimate": winner.estimate,
        "biased_upwards": standing.is_flattering,
        "interval": [winner.lower, winner.upper] if _is_valid(standing) else None,
        "confidence": standing.confidence,
        "confirmed": None if found is None else _confirmation_json(found),
    }


def _is_valid(standing: Standing) -> bool:
    return standing.guarantee is not Guarantee.HEURISTIC


def _corrected(standing: Standing) -> str:
    """Give the joint interval: it holds for all candidates together, so for whichever is chosen."""
    winner, count = standing.winner, len(standing.rows)
    if winner is None:
        return ""
    high = f"{estimate(winner)} tends to be too high, as it was chosen for it"
    if not _is_valid(standing):
        return f"{high}; no interval holds here, and `confirm` would give a number that does"
    width = winner.upper - winner.lower
    return (
        f"from {share(winner.lower, width)} to {share(winner.upper, width)} over all "
        f"{standing.n_examples:,} examples, {standing.confidence:.0%} sure in spite of the choice "
        f"among {count:,}; {high}"
    )


def _confirmed(found: Confirmation, winner: Confirmed) -> list[tuple[str, str]]:
    asked = f"{winner.n:,} of {found.held_back:,}" if not found.is_complete else f"{winner.n:,}"
    void = f", {winner.void:,} void" if winner.void else ""
    whose = f"{asked} examples kept back{void}; {found.confidence:.0%} sure for examples like these"
    lines = [("Confirmed", f"{safe(winner.label)}: {_mean(winner.mean)} on {whose}")]
    if found.baseline is not None and found.difference is not None:
        text = f"{safe(found.baseline.label)}: {_mean(found.baseline.mean)} on the same; the winner"
        lines.append(("Baseline", f"{text} scores {_signed(found.difference)} more"))
    return lines


def _mean(found: Measure) -> str:
    width = found.upper - found.lower
    value = "-" if isnan(found.value) else share(found.value, width)
    return f"{value} [{share(found.lower, width)}, {share(found.upper, width)}]"


def _signed(found: Measure) -> str:
    value = "-" if isnan(found.value) else f"{found.value:+.3f}"
    return f"{value} [{found.lower:+.3f}, {found.upper:+.3f}]"


def _confirmation_json(found: Confirmation) -> dict[str, object]:
    return {
        "held_back": found.held_back,
        "confidence": found.confidence,
        "complete": found.is_complete,
        "winner": _confirmed_json(found.winner),
        "baseline": _confirmed_json(found.baseline),
        "difference": None if found.difference is None else _measure_json(found.difference),
    }


def _confirmed_json(one: Confirmed | None) -> dict[str, object] | None:
    if one is None:
        return None
    return {"label": one.label, "n": one.n, "void": one.void, **_measure_json(one.mean)}


def _measure_json(found: Measure) -> dict[str, object]:
    value = None if isnan(found.value) else found.value
    return {"mean": value, "interval": [found.lower, found.upper]}
