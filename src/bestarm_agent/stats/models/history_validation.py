"""Cross-validation of history: how well it predicts candidates that it does not contain.

In each of five folds the examples' factors are learned from four fifths of the past candidates;
each candidate of the rest reveals a few of its scores, and the others are predicted. Of held-out
candidate h, with hidden scores E_j and predictions f_j,

    gain_h = 1 - Var_j(E_j - f_j) / Var_j(E_j)                                                 (1)

is the share of variance that a control variate f removes. Predictions are used if the mean gain,
less its standard error, is above 0 (``is_useful``) or above 0.15 (``is_strong``). Rank and ridge
follow the one-standard-error rule: the smallest model whose mean excess loss over the best one is
within the standard error of that excess, taken over candidates (paired).

References:
    Tolochinsky, Tenzer and Romano (2026), section 4, "Low-rank model". Friedman, Hastie and
    Tibshirani (2010), Journal of Statistical Software 33 (the 1-SE rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.models.example_factors import Factors
from bestarm_agent.stats.models.logistic_low_rank import fit_factors

RANKS = (0, 1, 2, 4, 8, 16, 24)
RIDGES = (4.0, 16.0)
FOLDS = 5
STRONG = 0.15  # below this gain, choosing examples by predictions was harmful in trials
_FEWEST = 3  # held-out candidates needed to judge
_ROWS_PER_FOLD = 60  # held-out candidates tried per fold


@dataclass(frozen=True, slots=True)
class Validation:
    """The chosen model, and how well it predicts new candidates."""

    rank: int  # directions of the chosen model
    ridge: float  # its penalty on the loadings
    gain: float  # mean of (1) over held-out candidates; below 0 the predictions add noise
    gain_se: float  # standard error of ``gain``
    loss: float  # mean binary cross-entropy of the held-out scores, in nats
    baseline: float  # the same for the candidate's mean over its revealed scores
    n_candidates: int  # number of held-out candidates

    @property
    def is_useful(self) -> bool:
        """Return whether predictions remove variance, by more than a standard error."""
        return self._is_above(0.0)

    @property
    def is_strong(self) -> bool:
        """Return whether they remove enough variance to choose examples by."""
        return self._is_above(STRONG)

    def _is_above(self, gain: float) -> bool:
        return self.n_candidates >= _FEWEST and self.gain - self.gain_se > gain


@dataclass(frozen=True, slots=True)
class HistoryModel:
    """The factors learned from history, and their validation."""

    factors: Factors
    validation: Validation

    def factors_of(self, n_examples: int) -> Factors:
        """Return the factors of all examples; later ones are taken to be average."""
        known = self.factors.n_examples
        if known > n_examples:
            raise ValueError(
                f"history has factors of {known} examples, the problem has only {n_examples};"
                " align the history with the problem's examples"
            )
        columns = np.arange(n_examples)
        return self.factors.at(np.where(columns < known, columns, -1))


class _Trial(NamedTuple):
    loss: float
    baseline: float
    gain: float


def learn(
    scores: NDArray[np.floating],
    *,
    ranks: Sequence[int] = RANKS,
    ridges: Sequence[float] = RIDGES,
    revealed: int | None = None,
    seed: int = 0,
) -> HistoryModel:
    """Choose rank and ridge by cross-validation, then learn from all past candidates.

    ``scores`` (H, N) are NaN where unknown; every row has at least 2. A held-out candidate shows
    ``revealed`` scores; by default a twentieth of its own, at least 16 and at most half.
    """
    if not (ranks and ridges):
        raise ValueError("ranks and ridges need at least one value each")
    trials = _cross_validate(scores, sorted(ranks), sorted(ridges), revealed, seed)
    rank, ridge = _one_standard_error(trials)
    factors = fit_factors(scores, rank, ridge=ridge)
    return HistoryModel(factors, _summary(rank, ridge, trials[rank, ridge]))


def _cross_validate(
    scores: NDArray[np.floating],
    ranks: Sequence[int],
    ridges: Sequence[float],
    revealed: int | None,
    seed: int,
) -> dict[tuple[int, float], list[_Trial]]:
    """Try every model on every held-out candidate.

    Each fold is fitted once per ridge at the highest rank; lower ranks use its leading directions.
    """
    found: dict[tuple[int, float], list[_Trial]] = {(k, w): [] for w in ridges for k in ranks}
    for held in _folds(len(scores), seed):
        rest = np.setdiff1d(np.arange(len(scores)), held)
        for ridge in ridges:
            full = fit_factors(scores[rest], ranks[-1], ridge=ridge)
            for rank in ranks:
                factors = full.cut(rank)
                found[rank, ridge] += [
                    _try_out(factors, scores[row], revealed, KeyedRandom(seed, f"reveal {row}"))
                    for row in held[:_ROWS_PER_FOLD]
                ]
    return found


def _folds(n_candidates: int, seed: int) -> Iterator[NDArray[np.int64]]:
    if n_candidates < 2:
        return
    order = KeyedRandom(seed, "folds").at(0).permutation(n_candidates)
    yield from np.array_split(order, min(FOLDS, n_candidates))


def _try_out(
    factors: Factors, row: NDArray[np.floating], revealed: int | None, random: KeyedRandom
) -> _Trial:
    known = random.at(0).permutation(np.flatnonzero(~np.isnan(row)))
    half = len(known) // 2
    n_shown = min(half, max(16, len(known) // 20) if revealed is None else revealed)
    shown, hidden = known[:n_shown], known[n_shown:]
    truth = row[hidden].astype(float)
    guess = factors.predict(factors.locate(shown, row[shown].astype(float)))[hidden]
    plain = np.full(len(hidden), (row[shown].sum() + 0.5) / (n_shown + 1.0))
    spread = truth.var()
    gain = 1.0 - float((truth - guess).var()) / spread if spread > 0 else 0.0  # (1)
    return _Trial(_cross_entropy(truth, guess), _cross_entropy(truth, plain), gain)


def _cross_entropy(truth: FloatArray, guess: NDArray[np.floating]) -> float:
    chance = np.clip(guess.astype(float), 1e-6, 1.0 - 1e-6)
    return float(-(truth * np.log(chance) + (1.0 - truth) * np.log1p(-chance)).mean())


def _one_standard_error(trials: dict[tuple[int, float], list[_Trial]]) -> tuple[int, float]:
    """Return the smallest rank, then largest ridge, within one standard error of the best."""
    losses = {model: np.array([trial.loss for trial in found]) for model, found in trials.items()}
    if not next(iter(losses.values())).size:
        return min(trials)
    best = min(losses, key=lambda model: float(losses[model].mean()))
    good = [
        m for m, loss in losses.items() if (excess := loss - losses[best]).mean() <= _se(excess)
    ]
    return min(good, key=lambda model: (model[0], -model[1]))


def _summary(rank: int, ridge: float, trials: Sequence[_Trial]) -> Validation:
    if not trials:
        return Validation(rank, ridge, 0.0, 0.0, float("nan"), float("nan"), 0)
    loss, baseline, gain = np.array(trials).T
    return Validation(
        rank=rank,
        ridge=ridge,
        gain=float(gain.mean()),
        gain_se=_se(gain),
        loss=float(loss.mean()),
        baseline=float(baseline.mean()),
        n_candidates=len(trials),
    )


def _se(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
