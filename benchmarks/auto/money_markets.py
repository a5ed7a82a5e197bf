"""Matrices with prices: real ones, response lengths, and drawn ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.papers.stored_studies import Bench

from bestarm_agent.simulation.score_matrices import FloatArray, ScoreMatrix, load_matrix
from bestarm_agent.stats.keyed_random import KeyedRandom

HUNDREDFOLD, DEARER_IS_BETTER = "100-fold", "100-fold, dearer is better"
OWN = "its prices"
SPREAD, NOISE = 100.0, 0.5  # a price's rank correlates with the quality's by about .5
ABLATED = ("LiveCodeBench", "SAT12", "AlpacaEval, real, no annotator", "GSM8K")


@dataclass(frozen=True, slots=True)
class Market:
    """A matrix with prices.

    Attributes:
        title: of the matrix.
        prices: how they are drawn by each seed, or OWN.
        note: what the report says of them; ``prices`` if empty.
        seeds: how many.
    """

    title: str
    prices: str
    seeds: int = 60
    note: str = ""


MARKETS = (
    *(Market(title, how) for how in (HUNDREDFOLD, DEARER_IS_BETTER) for title in ABLATED),
    Market("BFCL", HUNDREDFOLD),
    Market("BFCL", DEARER_IS_BETTER),
    Market("rhymes", HUNDREDFOLD, 24),
    Market("letters list", HUNDREDFOLD, 24),
    Market("GSM8K", OWN, note="output characters"),
    Market("LLMRouter", OWN, note="$ per token"),
    Market("LLMRouter", HUNDREDFOLD),
    Market("LLMRouter", DEARER_IS_BETTER),
    Market("AlpacaEval, real", OWN, note="response characters"),
    Market("AlpacaEval, real", HUNDREDFOLD),
    Market("AlpacaEval, no annotator", HUNDREDFOLD, 40),
    Market("negation", HUNDREDFOLD, 40),
    Market("PSN-IRT", HUNDREDFOLD, 40),
)


def priced(bench: Bench, market: Market, seed: int) -> ScoreMatrix:
    """The matrix with the prices of one seed."""
    place = MATRICES[market.title]
    scores = scores_of(bench.data, place)
    k = len(scores)
    rng = KeyedRandom(seed, "prices").at(0)
    if market.prices == OWN:
        whole = load_matrix(str(bench.data / place.location))
        costs = np.asarray(whole.costs)
        costs = np.delete(costs, int(np.argmax(whole.means))) if place.without_best else costs
    elif market.prices == HUNDREDFOLD:
        costs = SPREAD ** rng.random(k)
    else:
        key = _ranks(scores.mean(axis=1, dtype=np.float64)) + NOISE * rng.standard_normal(k)
        costs = SPREAD ** _ranks(key)
    return ScoreMatrix(scores, tuple(map(str, range(k))), costs, market.title)


def _ranks(values: FloatArray) -> FloatArray:
    """Places from 0 to 1, by rising value."""
    return np.asarray(np.argsort(np.argsort(values)) / (len(values) - 1), dtype=np.float64)
