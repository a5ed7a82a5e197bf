"""The lower confidence bound that betting against one hypothesised mean after the other gives."""

from __future__ import annotations

from array import array

import numpy as np

from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds, Wager

_FINE = 1 / 64  # distance from bound to new probe, as a share of that to the sample mean
_COARSE = 4.0  # a probe this many times farther off is moved: the sample mean came down


class LowerBound:
    """The anytime-valid lower bound, (4) of ``betting_bounds``, for a mean of values in [0, 1].

    Since K_t(m) falls in m, one wager at the ``probe`` just above the bound is enough. When it is
    rejected, the bound moves there and the draws so far are replayed at the next probe, about once
    per 1.5 % of progress. The bound is rounded down: by 1/64 of the way to the sample mean when
    the probe was placed, and at most four times that.

    Args:
        alpha: probability with which the bound may ever exceed the mean, in (0, 1).
        bets: from ``bet_grid``, or with ``shares`` from ``early_bets``.
        size: as in ``Wager``.

    Attributes:
        lower: the bound; starts at 0 and never falls. Without replacement ``total / size`` is
            certain and may be larger.
    """

    __slots__ = (
        "_bets",
        "_draws",
        "_enough",
        "_grain",
        "_odds",
        "_probe",
        "_shares",
        "_size",
        "_wager",
        "lower",
    )

    def __init__(
        self,
        alpha: float,
        bets: tuple[float, ...],
        size: int | None = None,
        shares: tuple[float, ...] | None = None,
    ) -> None:
        self.lower = 0.0
        self._enough = 1.0 / alpha
        self._bets = bets
        self._size = size
        self._shares = shares
        self._grain = 0.1 * bets[0] ** 2 if size is None else 0.5 / size  # finest step of a probe
        self._draws = array("d")
        self._odds = array("d")  # ratio and most of every draw; empty while all are even
        self._probe = self._grain
        self._wager = Wager(self._probe, bets, size, shares)

    @property
    def total(self) -> float:
        """Sum of the draws."""
        return self._wager.total

    def push(self, value: float, odds: Odds = EVEN) -> None:
        """Take the next draw, in [0, 1]; a value below the true one is safe."""
        if self._odds or odds != EVEN:
            self._odds.extend(odds if self._odds else (*EVEN * len(self._draws), *odds))
        self._draws.append(value)
        wager = self._wager
        wager.push(value, odds)
        if wager.wealth >= self._enough:
            self._advance(self._probe)
        elif self._probe - self.lower > _COARSE * self._step():
            self._advance(self.lower)

    def draws(self) -> array[float]:
        """Return the draws so far, in order; not to be changed."""
        return self._draws

    def _step(self) -> float:
        n = len(self._draws)
        reach = self._wager.total / n - self.lower
        return max(_FINE * reach, self._grain)

    def _advance(self, rejected: float) -> None:
        """Find the edge of what is rejected by galloping upwards, then closing in."""
        certain = 0.0 if self._size is None else self._wager.total / self._size
        edge = max(rejected, certain)
        step = fine = self._step()
        factor = 2.0
        draws = np.frombuffer(self._draws)
        odds = np.frombuffer(self._odds).reshape(-1, 2) if self._odds else None
        while edge < 1.0:
            probe = min(1.0, edge + step)
            wager = Wager(probe, self._bets, self._size, self._shares)
            wager.extend(draws, odds)
            if wager.wealth >= self._enough:
                edge = probe
            elif step > fine:
                factor = 0.5
            else:
                self._probe, self._wager = probe, wager
                break
            step = max(fine, step * factor)
        self.lower = min(1.0, edge)
