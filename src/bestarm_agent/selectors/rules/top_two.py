"""Top-two Thompson sampling: compare the probable best with its probable rival.

Russo 2016, "Simple Bayesian Algorithms for Best Arm Identification", section 3.3 (TTTS). Anytime.
It compares candidates on different examples, so many close, correlated ones cost it more than rules
on common examples.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import (
    Ask,
    Belief,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    Tell,
)

_MOST_REDRAWS = 16


class TopTwo(Selector):
    """Pull the best of a posterior draw, or the first other best of further draws.

    A draw is of every candidate's mean over its N examples: seen scores as they are, unseen ones at
    a posterior draw of their mean. If 16 redraws bring no other best, the second of the last one is
    the rival. A candidate that may not be asked leaves its turn to its rival, then to the best that
    may.

    In flight: pending and void pulls enter the posterior at its mean: they narrow it and leave the
    mean alone. Void pulls of a candidate without any score count as 0.

    Args:
        posterior: "beta", Beta(1 + total, 1 + n - total), for scores that are mostly 0 or 1;
            "gaussian", with the pooled variance of the scores, for graded ones.
        leader_share: probability of pulling the leader rather than its rival, in (0, 1), where both
            cost the same.
    """

    name: ClassVar[str] = "top-two"

    def __init__(
        self,
        problem: Problem,
        *,
        posterior: Literal["beta", "gaussian"] = "beta",
        leader_share: float = 0.5,
    ) -> None:
        if not 0 < leader_share < 1:
            raise ValueError(f"leader_share must be in (0, 1), got {leader_share}")
        if posterior not in ("beta", "gaussian"):
            raise ValueError(f"posterior must be 'beta' or 'gaussian', got {posterior!r}")
        super().__init__(problem)
        self.posterior = posterior
        self.leader_share = leader_share
        self._squares = 0.0  # sum of the squares of all scores
        self._grown()

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        turn = rng.random()
        draw = self._draw_means(rng)
        leader = int(draw.argmax())
        candidate, leads = leader, turn < self.leader_share
        if self.problem.costs is not None or not (leads and allowed[leader]):
            rival, draw = self._rival(leader, rng)
            leads = turn < self._share_of(leader, rival)
            candidate = leader if leads and allowed[leader] else rival
        if not allowed[candidate]:
            candidate = leader
        if not allowed[candidate]:
            candidate = int(np.where(allowed, draw, -np.inf).argmax())
        example, propensity = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), propensity, "lead" if leads else "rival")

    def _rival(self, leader: int, rng: np.random.Generator) -> tuple[int, FloatArray]:
        """Return the best of the first draw in which the leader is not best, and that draw."""
        for _ in range(_MOST_REDRAWS):
            draw = self._draw_means(rng)
            if (rival := int(draw.argmax())) != leader:
                return rival, draw
        others = draw.copy()
        others[leader] = -np.inf
        return int(others.argmax()), draw

    def _share_of(self, leader: int, rival: int) -> float:
        """Return the probability of pulling the leader; with costs, shares go by 1 / weight."""
        if self.problem.costs is None:
            return self.leader_share
        for_leader = self.leader_share / self.weights[leader]
        for_rival = (1 - self.leader_share) / self.weights[rival]
        return float(for_leader / (for_leader + for_rival))

    def _draw_means(self, rng: np.random.Generator) -> FloatArray:
        """(K,) a draw of every candidate's mean over all N examples."""
        if self.posterior == "beta":
            unseen = rng.beta(self._wins, self._losses)
        else:
            weight = self._wins + self._losses
            spread = np.sqrt(self._pooled_variance() / (weight - 1))
            unseen = rng.normal(self._wins / weight, spread)
        draws: FloatArray = self._seen_part + self._unseen_share * unseen
        draws[self.barred] = -np.inf
        return draws

    def _pooled_variance(self) -> float:
        """Variance of scores within candidates; a variance of 1/4 counts as one score."""
        n, total = self.table.n_scored, self.table.total
        within = self._squares - float((total**2 / np.maximum(n, 1)).sum())
        degrees = int(n.sum()) - int((n > 0).sum())
        return (0.25 + max(within, 0.0)) / (1 + degrees)

    def _belief(self) -> Belief:
        """Return the posterior means: a single lucky score makes no candidate the best."""
        means = self._seen_part + self._unseen_share * self._wins / (self._wins + self._losses)
        return Belief(np.where(self.table.n_scored > 0, means, np.nan))

    def _asked(self, ask: Ask) -> None:
        self._update(ask.pair.candidate)

    def _told(self, tell: Tell) -> None:
        self._squares += float(self.table.score[tell.seq]) ** 2
        self._update(int(self.table.candidate[tell.seq]))

    def _grown(self) -> None:
        k = self.table.n_candidates
        self._wins, self._losses = np.ones(k), np.ones(k)
        self._seen_part, self._unseen_share = np.zeros(k), np.ones(k)
        for candidate in range(k):
            self._update(candidate)

    def _update(self, candidate: int) -> None:
        scored, total, pending, void = self.table.tally(candidate)
        zeros = 0 if scored else void  # never worked: as good as wrong
        mean = (1 + total) / (2 + scored + zeros)
        guessed = pending + void - zeros
        self._wins[candidate] = 1 + total + guessed * mean
        self._losses[candidate] = 1 + (scored + zeros - total) + guessed * (1 - mean)
        self._seen_part[candidate] = total / self.table.n_examples
        self._unseen_share[candidate] = 1 - scored / self.table.n_examples
