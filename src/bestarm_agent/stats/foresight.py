"""How well does history predict a candidate that it does not contain?

Five-fold cross-validation over past candidates: the examples' factors are learned from four fifths
of them; each candidate of the rest reveals a few of its scores, and the others are predicted. That
is how the factors are used later. The rank and the ridge follow from it by the one-standard-error
rule (the smallest model within one standard error of the best), and so does the decision whether to
use predictions at all.

References:
    Tolochinsky, Tenzer and Romano (2026), section 4, "Low-rank model". Friedman, Hastie and
    Tibshirani (2010), Journal of Statistical Software 33 (the 1-SE rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.factors import Factors
from bestarm_agent.stats.keyed import KeyedRandom
from bestarm_agent.stats.logistic_low_rank import fit_factors

FloatArray: TypeAlias = NDArray[np.float64]

RANKS = (0, 1, 2, 4, 8, 16, 24)
RIDGES = (4.0, 16.0)
FOLDS = 5
STRONG = 0.15  # gain below which examples chosen by predictions misled in trials
_FEWEST = 3  # past candidates from which anything can be judged
_ROWS_PER_FOLD = 60  # held-out candidates looked at per fold


@dataclass(frozen=True, slots=True)
class Foresight:
    """How well history predicts, and with which model.

    Attributes:
        rank: directions of the chosen model.
        ridge: its penalty on the loadings.
        gain: share of a new candidate's score variance (over examples) that the predictions
            remove, averaged over held-out candidates; below 0 they add noise.
        gain_se: standard error of ``gain``.
        loss: mean binary cross-entropy of the held-out scores, in nats.
        baseline: the same for the candidate's mean over its revealed scores.
        n_candidates: held-out candidates that this rests on.
    """

    rank: int
    ridge: float
    gain: float
    gain_se: float
    loss: float
    baseline: float
    n_candidates: int

    @property
    def is_useful(self) -> bool:
        """Whether predictions remove variance, by more than a standard error."""
        return self._surely_above(0.0)

    @property
    def is_strong(self) -> bool:
        """Whether they remove enough to choose examples by, by more than a standard error."""
        return self._surely_above(STRONG)

    def _surely_above(self, gain: float) -> bool:
        return self.n_candidates >= _FEWEST and self.gain - self.gain_se > gain


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was learned from history: the factors, and how far to trust them."""

    factors: Factors
    foresight: Foresight


class _Trial(NamedTuple):
    """One held-out candidate under one model."""

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
) -> Lesson:
    """Choose rank and ridge by cross-validation, then learn from all past candidates.

    Args:
        scores: (H, N) in [0, 1], NaN where unknown; every row has at least 2 scores.
        ranks: to choose from, each >= 0.
        ridges: to choose from, each > 0.
        revealed: scores that a held-out candidate shows; a twentieth of its own, at least 16 and at
            most half, by default.
        seed: of folds and revealed scores, >= 0.

    Raises:
        ValueError: ``scores`` break a rule of ``fit_factors``, or nothing is left to choose from.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> ease = rng.normal(size=200)
        >>> solved = rng.random((30, 200)) < 1 / (1 + np.exp(-3 * ease))
        >>> learn(solved.astype(float)).foresight.is_useful
        True
    """
    if not (ranks and ridges):
        raise ValueError("ranks and ridges need at least one value each")
    trials = _cross_validate(scores, sorted(ranks), sorted(ridges), revealed, seed)
    rank, ridge = _one_standard_error(trials)
    factors = fit_factors(scores, rank, ridge=ridge)
    return Lesson(factors, _summary(rank, ridge, trials[rank, ridge]))


def _cross_validate(
    scores: NDArray[np.floating],
    ranks: Sequence[int],
    ridges: Sequence[float],
    revealed: int | None,
    seed: int,
) -> dict[tuple[int, float], list[_Trial]]:
    """Try every model on every held-out candidate.

    Each fold is fitted once per ridge at the highest rank; its leading directions serve the others.
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
    """Show a few of a candidate's scores, predict the others."""
    known = random.at(0).permutation(np.flatnonzero(~np.isnan(row)))
    half = len(known) // 2
    n_shown = min(half, max(16, len(known) // 20) if revealed is None else revealed)
    shown, hidden = known[:n_shown], known[n_shown:]
    truth = row[hidden].astype(float)
    guess = factors.predict(factors.locate(shown, row[shown].astype(float)))[hidden]
    plain = np.full(len(hidden), (row[shown].sum() + 0.5) / (n_shown + 1.0))
    spread = truth.var()
    gain = 1.0 - float((truth - guess).var()) / spread if spread > 0 else 0.0
    return _Trial(_cross_entropy(truth, guess), _cross_entropy(truth, plain), gain)


def _cross_entropy(truth: FloatArray, guess: NDArray[np.floating]) -> float:
    chance = np.clip(guess.astype(float), 1e-6, 1.0 - 1e-6)
    return float(-(truth * np.log(chance) + (1.0 - truth) * np.log1p(-chance)).mean())


def _one_standard_error(trials: dict[tuple[int, float], list[_Trial]]) -> tuple[int, float]:
    """The smallest rank, then the largest ridge, within one standard error of the lowest loss."""
    losses = {model: np.array([trial.loss for trial in found]) for model, found in trials.items()}
    if not next(iter(losses.values())).size:
        return min(trials)
    best = min(losses, key=lambda model: float(losses[model].mean()))
    good = [
        m for m, loss in losses.items() if (excess := loss - losses[best]).mean() <= _se(excess)
    ]
    return min(good, key=lambda model: (model[0], -model[1]))


def _summary(rank: int, ridge: float, trials: Sequence[_Trial]) -> Foresight:
    if not trials:
        return Foresight(rank, ridge, 0.0, 0.0, float("nan"), float("nan"), 0)
    loss, baseline, gain = np.array(trials).T
    return Foresight(
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
