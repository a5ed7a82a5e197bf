"""Means on slices of the examples, as text and for programs."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm_agent.engine.results.slices import SliceMean
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.errors import counted
from bestarm_agent.report.text import safe, share


def slice_text(one: SliceMean) -> tuple[str, str]:
    """Write a mean and its interval."""
    if not one.n:
        return "-", ""
    width = one.mean.upper - one.mean.lower
    value, lower, upper = (share(x, width) for x in one.mean)
    return value, f"[{lower}, {upper}]"


def slice_rows(standing: Standing) -> Sequence[tuple[Row, tuple[SliceMean, ...]]]:
    """Return the candidates that are shown by slice, with their means in the slices' order."""
    columns = [one.means for one in standing.slices]
    return list(zip(standing.rows, zip(*columns, strict=True), strict=False))


def weakest_line(standing: Standing) -> str:
    """Say on which slice the winner is worst; "" without slices."""
    winner = standing.winner
    for row, means in slice_rows(standing):
        seen = [k for k, one in enumerate(means) if one.n]
        if winner is not None and row.index == winner.index and seen:
            k = min(seen, key=lambda k: means[k].mean.value)
            numbers = " ".join(slice_text(means[k]))
            on = safe(standing.slices[k].name)
            seen_there = counted(means[k].n, "score")
            return f"on {on}: {numbers}, {seen_there}; {len(means)} slices in the report"
    return ""


def slices_json(standing: Standing) -> list[dict[str, object]]:
    """Return the means on each slice as JSON objects."""
    labels = [row.candidate.label for row in standing.rows]
    return [
        {
            "slice": one.name,
            "examples": one.n_examples,
            "candidates": [
                {
                    "label": label,
                    "n": mean.n,
                    "mean": mean.mean.value if mean.n else None,
                    "interval": [mean.mean.lower, mean.mean.upper],
                }
                for label, mean in zip(labels, one.means, strict=False)
            ],
        }
        for one in standing.slices
    ]
