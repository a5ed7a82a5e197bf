"""Quantities of candidates that the report draws against each other, and lists."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.results.standing import Row, Standing

_PER = 1000  # calls of a price
_MEASURE = "measure: "  # keeps the names of measures apart from the others
_AXES = (
    ("price", "dollars for 1,000 pairs", True),
    ("tokens", "tokens of a pair", True),
    ("latency", "seconds of a call, median", True),
    ("length", "tokens of a reply, mean", True),
    ("estimate", "estimate of the mean score", False),
)


def price_per_1k(row: Row) -> float | None:
    """Return dollars for 1,000 pairs of a candidate, by what its pairs have cost; None: unknown."""
    if row.price is not None and not isnan(row.price.value):
        return row.price.value
    if not row.priced or not row.spend.pulls:
        return None
    return _PER * usd(row.spend.usd_nanos) / row.spend.pulls


def values_of(row: Row) -> Mapping[str, float | None]:
    """Return a candidate's quantities by name; amounts of 0 count as unknown."""
    tokens = row.spend.tokens / row.spend.pulls if row.spend.pulls else None
    return {
        "price": price_per_1k(row) or None,
        "tokens": tokens or None,
        "latency": None if row.latency is None else row.latency.p50 or None,
        "length": row.output_tokens,
        "estimate": row.estimate,
        **{f"{_MEASURE}{one.name}": one.mean for one in row.measures},
    }


def chart_axes(standing: Standing) -> list[dict[str, object]]:
    """Return the quantities that two candidates or more have, with whether less is better.

    Of a measure that is limited from above less is better, of others more.
    """
    found = [values_of(row) for row in standing.rows]
    limited = [] if standing.objective is None else standing.objective.spec.constraints
    low = {one.name for one in limited if one.at_most}
    names = [one.name for one in standing.rows[0].measures] if standing.rows else []
    axes = [*_AXES, *((f"{_MEASURE}{name}", f"{name}, mean", name in low) for name in names)]
    return [
        {"key": key, "label": label, "low": is_low}
        for key, label, is_low in axes
        if sum(values[key] is not None for values in found) > 1
    ]
