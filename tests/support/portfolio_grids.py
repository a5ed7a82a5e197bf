"""Priors of the universal portfolio on uniform grids, for comparison with the quadrature."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.certification.betting import (
    BetPrior,
    BettingRule,
    Goal,
    Method,
    UniversalPortfolio,
)
from bestarm_agent.stats.arrays import FloatArray

_DENSITY_FLOOR = 1e-8  # where the published library evaluates the infinite density of an end point


def exact_prior(count: int = 10_000) -> BetPrior:
    """Return ``count`` evenly spaced nodes with the prior's exact mass of the bin around each."""
    nodes = np.linspace(0.0, 1.0, count)
    edges = np.concatenate([[0.0], (nodes[1:] + nodes[:-1]) / 2, [1.0]])
    return BetPrior(nodes, np.diff(2 / math.pi * np.arcsin(np.sqrt(edges))))  # the arcsine CDF


def published_prior(count: int = 10_000, floor: float = _DENSITY_FLOOR) -> BetPrior:
    """Return the prior as the published code has it: the density at each point, normalised.

    The density is infinite at 0 and 1 and is evaluated at ``floor`` instead. With 10,000 points and
    1e-8 each end point gets 19 % of the mass (43 % with 1e-10, as in the published toy script). The
    test stays valid; it needs more labels.
    """
    nodes = np.linspace(0.0, 1.0, count)
    inside = np.clip(nodes, floor, 1.0 - floor)
    density = 1.0 / np.sqrt(inside * (1.0 - inside))
    return BetPrior(nodes, density / density.sum())


@dataclass(frozen=True)
class GridMethod(Method):
    """A method whose portfolio has another prior, by default the published one."""

    prior: BetPrior = field(default_factory=published_prior)

    def bets(self, goal: Goal, spans: FloatArray) -> BettingRule:
        """Make the portfolio."""
        return UniversalPortfolio(goal.risk, spans, self.prior)
