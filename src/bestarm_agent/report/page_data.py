"""The data that the page's script draws, as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from bestarm_agent.engine.results.pairs import PairOutcome
from bestarm_agent.engine.results.standing import Row, Standing, Status
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.report.matrix import Matrix
from bestarm_agent.report.pair_sample import PairSample, cut
from bestarm_agent.report.quantities import chart_axes, values_of
from bestarm_agent.report.text import seen
from bestarm_agent.store.run_state import RunState

_RACERS = 5
_BINS = 50


@dataclass(frozen=True, slots=True)
class Details:
    """Contents of the report beyond the standing."""

    state: RunState
    trajectory: Trajectory
    matrix: Matrix
    sample: PairSample
    rates: tuple[list[float], list[float]]  # seconds, and outcomes per second there


def page_data(standing: Standing, details: Details) -> str:
    """Return the data as JSON that may stand inside a script element."""
    ids = details.state.example_ids
    matrix = details.matrix
    found = {
        "graded": standing.graded,
        "states": {status.name.lower(): status for status in Status},
        "candidates": [_candidate(row, graded=standing.graded) for row in standing.rows],
        "axes": chart_axes(standing),
        "matrix": {
            "rows": matrix.rows,
            "examples": [ids[j] for j in matrix.columns],
            "cells": matrix.cells,
        },
        "budget": _budget(standing, details.state),
        "race": _race(standing, details.trajectory),
        "rates": {"seconds": _rounded(details.rates[0]), "rates": _rounded(details.rates[1])},
        **_pairs(details),
    }
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _candidate(row: Row, *, graded: bool) -> dict[str, object]:
    return {
        "row": row.index,
        "label": row.candidate.label or row.candidate.id,
        "state": row.status.name.lower(),
        "seen": seen(row, graded=graded),
        "estimate": _number(row.estimate),
        "lower": _number(row.lower),
        "upper": _number(row.upper),
        "values": {name: _number(value) for name, value in values_of(row).items()},
    }


def _budget(standing: Standing, state: RunState) -> dict[str, object]:
    """Count asks by the state that their candidates ended in, over the run."""
    status = {row.index: row.status.name.lower() for row in standing.rows}
    n, bins = len(state.asks), min(_BINS, len(state.asks))
    row, bin_of = state.asks.candidate, np.arange(n) * bins // max(1, n)
    rows_of = {one.name.lower(): list[int]() for one in Status}
    for i, name in status.items():
        rows_of[name].append(i)
    counts = {
        name: np.bincount(bin_of[np.isin(row, rows)], minlength=bins)
        for name, rows in rows_of.items()
    }
    return {
        "asked": [round(n * (k + 1) / bins) for k in range(bins)],
        "counts": {name: of.tolist() for name, of in counts.items() if of.any()},
    }


def _race(standing: Standing, trajectory: Trajectory) -> dict[str, object]:
    racers = [row.index for row in standing.rows if row.estimate is not None][:_RACERS]
    columns = {
        name: [
            [_at(getattr(moment, name), i) for moment in trajectory.moments] for i in racers
        ]
        for name in ("mean", "lower", "upper")
    }  # fmt: skip
    return {
        "asked": [moment.asked for moment in trajectory.moments],
        "rows": racers,
        **columns,
        "left": sorted(trajectory.left.values()),
    }


def _at(values: np.ndarray[tuple[int], np.dtype[np.float64]], i: int) -> float | None:
    return _number(float(values[i])) if i < len(values) else None


def _number(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.4g}")


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def _pairs(details: Details) -> dict[str, object]:
    """Write pairs with their texts; a text that several pairs share is written once."""
    asks, ids = details.state.asks, details.state.example_ids
    texts: dict[str, int] = {}

    def text(value: str | None) -> int | None:
        return None if value is None else texts.setdefault(cut(value) or "", len(texts))

    pairs = [
        {
            "seq": seq,
            "row": asks[seq].candidate,
            "example": ids[asks[seq].example],
            "prompt": text(pair.prompt),
            "target": text(pair.target),
            "reply": text(pair.reply),
            "answer": text(pair.answer),
            "message": text(pair.message),
            **_facts(pair),
            "votes": [
                [vote.by, vote.said or f"{vote.value:g}", vote.value, vote.why]
                for vote in pair.votes
            ],
        }
        for seq, pair in details.sample.pairs.items()
    ]
    return {"pairs": pairs, "texts": list(texts), "differing": details.sample.differing}


def _facts(pair: PairOutcome) -> dict[str, object]:
    return {
        "state": pair.state,
        "score": _number(pair.score),
        "finish": pair.finish,
        "attempts": pair.attempts,
        "tokens": pair.tokens,
        "usd": _number(pair.usd),
        "seconds": _number(pair.seconds),
        "cached": pair.cached,
        "failure": pair.failure,
    }
