"""Forecasts of undecided comparisons: by resampling, an opinion that no verdict rests on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bestarm_agent.selectors.types import FloatArray
from bestarm_agent.stats.intervals.non_inferiority import Comparison, Question, shown

_FUTURES = 64
_UNSEEN = np.array([(1.0, -1.0), (0.0, 0.0), (-1.0, 1.0)])  # differences that may yet be met,
_WEIGHT = 1.0 / 3.0  # each with the weight of a third of an example


class Forecast(NamedTuple):
    """The likely course of a comparison that goes on."""

    chance: float  # of an answer within the examples that were allowed, in [0, 1]
    fails: float  # of the answer that it fails
    # median number of examples, those seen included, after which there is an answer; infinite if
    # there is none within the allowed ones
    examples: float


def forecast(comparison: Comparison, n_allowed: int, rng: np.random.Generator) -> Forecast:
    """Forecast a comparison that may come to ``n_allowed`` examples in all, at least ``n``.

    Futures are drawn by the Bayesian bootstrap (Rubin 1981, Annals of Statistics 9(1)): every
    further example is like one of those seen, with weights from a Dirichlet distribution.
    """
    seen = np.column_stack([comparison.gains, comparison.losses]).reshape(-1, 2)
    past = np.broadcast_to(seen, (_FUTURES, *seen.shape))
    drawn = np.concatenate([past, _futures(seen, n_allowed - len(seen), rng)], axis=1)
    found = shown(drawn[..., 0], drawn[..., 1], comparison.question)
    ends = np.minimum(found.passed, found.failed)
    return Forecast(
        chance=float(np.isfinite(ends).mean()),
        fails=float((found.failed < found.passed).mean()),
        examples=float(np.quantile(ends, 0.5, method="higher")),
    )


def least_examples(question: Question) -> float:
    """Return how many examples an answer takes if no reply differs from the baseline's."""
    nothing = np.zeros(question.n_examples)
    found = shown(nothing, nothing, question)
    return float(np.minimum(found.passed, found.failed))


def _futures(seen: FloatArray, length: int, rng: np.random.Generator) -> FloatArray:
    """Return (futures, length, 2) further gains and losses."""
    kinds, counts = np.unique(seen, axis=0, return_counts=True)
    kinds = np.concatenate([kinds, _UNSEEN])
    weights = np.concatenate([counts, np.full(len(_UNSEEN), _WEIGHT)])
    ends = np.cumsum(rng.dirichlet(weights, _FUTURES), axis=1)
    draws = rng.random((_FUTURES, length))
    rows = [np.searchsorted(end[:-1], draw) for end, draw in zip(ends, draws, strict=True)]
    return np.asarray(kinds[np.array(rows, dtype=np.intp)])
