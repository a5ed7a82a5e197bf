"""Would routing pay? Routing replayed on prompts whose every score is known, beside a fixed choice.

The prompts come in random orders. In each, the router routes them all; the k candidates that were
best on the first half, by all their scores there, are the fixed choice. On the second half the two
are compared prompt by prompt. Standard errors count a prompt once, in however many orders it comes,
so that where routing gains nothing it is said to pay for at most one table in twenty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from bestarm_agent.domain.text import signed, signed_range
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.features import PromptFeatures, contexts_of
from bestarm_agent.preselection.records import Record, RouterSettings
from bestarm_agent.preselection.rule import FloatArray, IntArray, Preselector, score_feedback
from bestarm_agent.stats.arrays import one_thread
from bestarm_agent.stats.keyed_random import KeyedRandom

_ORDERS = 3
_MOST_PROMPTS = 2_000  # of a history: more would not make it clearer, only slower
_MOST_SUBSETS = 20_000
_Z = 1.959964  # of a two-sided interval at 95 %


@dataclass(frozen=True, slots=True)
class Table:
    """All utilities of n candidates on N prompts, and what describes the prompts."""

    utility: FloatArray  # (n, N) score less what the dollars weigh
    prompts: FloatArray  # (N, p) features of the prompts
    # (n,) what a candidate's dollars weigh: of k that are run, each is paid, and the best counts
    weighed: FloatArray

    def gained(self, chosen: IntArray, prompts: IntArray) -> FloatArray:
        """Return the (T,) best scores less all dollars of (T, k) chosen rows on T prompts."""
        # Utility is score less dollars of one candidate. Of k that are run the best score counts
        # once, but all k are paid: the dollars are added back, and taken off for all.
        scores = self.utility[chosen.T, prompts] + self.weighed[chosen.T]
        gained: FloatArray = scores.max(axis=0) - self.weighed[chosen].sum(axis=1)
        return gained


@dataclass(frozen=True, slots=True)
class Worth:
    """The gain of routing over a fixed choice, per prompt, in units of utility."""

    gain: float
    low: float  # ends of its 95 % interval
    high: float
    oracle: float  # what always running the best candidate alone would gain
    k: int
    n_prompts: int

    def __str__(self) -> str:
        """Say it in a sentence.

        Example:
            >>> print(Worth(0.04, 0.02, 0.06, 0.1, 2, 500))
            Routing pays: on the second half of 500 prompts it gains +4.0 points over the 2 \
candidates that were best on the first half (95 % interval +2.0 to +6.0, paired by prompt); the \
best choice for each prompt would gain +10.0.
        """
        says = f"Routing makes no difference that {self.n_prompts:,} prompts can show"
        if self.low > 0:
            says = "Routing pays"
        elif self.high < 0:
            says = "Routing does not pay"
        fixed = "candidate that was" if self.k == 1 else f"{self.k} candidates that were"
        return (
            f"{says}: on the second half of {self.n_prompts:,} prompts it gains "
            f"{signed(self.gain)} points over the {fixed} best on the first half (95 % interval "
            f"{signed_range(self.low, self.high)}, paired by prompt); the best choice for each "
            f"prompt would gain {signed(self.oracle)}."
        )


def would_pay(records: Sequence[Record], settings: RouterSettings, k: int) -> Worth | None:
    """Replay a router of these settings on a history; None if it is not a full table of scores.

    Raises:
        ConfigError: k is more than there are candidates, or scikit-learn is missing.
    """
    records = records[:_MOST_PROMPTS]
    # Only a full table lets another choice be replayed: of a partial one, the scores of what was
    # not run are unknown, and guesses would flatter the router.
    names = list(records[0].scores) if records else []
    if len(records) < 4 or any(set(row.scores) != set(names) for row in records) or len(names) < 2:
        return None
    if not 1 <= k <= len(names):
        raise ConfigError(f"k must be in 1..{len(names)}, got {k}")
    scores = np.array([[row.scores[name] for row in records] for name in names])
    usd = np.array([[row.usd.get(name, 0.0) for row in records] for name in names]).mean(axis=1)
    features = PromptFeatures(settings.n_components, seed=settings.seed)
    prompts = [row.prompt for row in records]
    features.fit(prompts)
    weighed = settings.cost_weight * usd
    table = Table(scores - weighed[:, None], features.vectors(prompts), weighed)
    return worth(table, settings, k)


@one_thread  # the rules' matrices are small: threads would cost more than they gain
def worth(table: Table, settings: RouterSettings, k: int, *, orders: int = _ORDERS) -> Worth:
    """Compare routing with the fixed choice, in random orders of the prompts."""
    n_prompts, n_features = table.prompts.shape
    half = n_prompts // 2
    gains, late, oracle = [], [], []
    for turn in range(orders):
        seed = settings.seed + turn
        order = KeyedRandom(seed, "order of prompts").at(0).permutation(n_prompts)
        rule = settings.make_rule(len(table.utility), n_features, seed)
        chosen = route(rule, table, order, k)[half:]
        late.append(order[half:])
        # The fixed choice may look at all scores of the first half, the router only at those of
        # what it ran: so a gain is not owed to a weak opponent.
        rows = best_fixed_subset(table, order[:half], k)
        fixed = table.gained(np.tile(rows, (n_prompts - half, 1)), order[half:])
        gains.append(table.gained(chosen, order[half:]) - fixed)
        oracle.append(table.utility[:, order[half:]].max(axis=0) - fixed)
    gain, error = clustered(np.array(gains), np.array(late))
    ends = (gain - _Z * error, gain + _Z * error)
    return Worth(gain, *ends, float(np.mean(oracle)), k, n_prompts)


def route(rule: Preselector, table: Table, order: IntArray, k: int) -> IntArray:
    """Route the prompts one after another; after each, give the rule what its choice was worth.

    A single answer teaches nothing about which candidate is better. With k = 1 two candidates are
    therefore run on each prompt of the first half; in the second half one is run, and the rule
    learns no more. ``order`` (T,) holds the prompts as they arrive. Return the (T, k) choices, the
    most promising first.
    """
    draws = KeyedRandom(rule.seed, "ties of scores")
    chosen = np.empty((len(order), k), dtype=np.intp)
    # With k = 1 the second half is as it would be in use: one call for each prompt, and nothing to
    # learn from it.
    n_paired = len(order) // 2 if k == 1 else len(order)
    for t, prompt in enumerate(order):
        contexts = contexts_of(table.prompts[prompt], len(table.utility))
        run = rule.choose(contexts, max(k, 2) if t < n_paired else k, t)
        chosen[t] = run[:k]
        if len(run) > 1:
            seen = table.utility[run, prompt]
            rule.learn(score_feedback(contexts, run.tolist(), seen, draws.at(t)))
    return chosen


def best_fixed_subset(table: Table, prompts: IntArray, k: int) -> IntArray:
    """Return the (k,) rows that gain most on these prompts if always run together."""
    n = len(table.utility)
    if comb(n, k) > _MOST_SUBSETS:
        raise ConfigError(f"{comb(n, k):,} subsets of {k} of {n} are too many to try")
    scores = table.utility[:, prompts] + table.weighed[:, None]
    subsets = np.array(list(combinations(range(n), k)))
    worths = [scores[rows].max(axis=0).mean() - table.weighed[rows].sum() for rows in subsets]
    return np.asarray(subsets[int(np.argmax(worths))])


def clustered(gains: FloatArray, prompts: IntArray) -> tuple[float, float]:
    """Return the mean of (n, h) gains and its standard error, clustered by prompt.

    With residuals e = gain - mean, summed over the orders of each of m prompts, the variance of the
    mean is m / (m - 1) sum (sum e)^2 / (n h)^2 (Liang and Zeger 1986, Biometrika 73).
    """
    mean = float(gains.mean())
    sums = np.bincount(prompts.ravel(), weights=(gains - mean).ravel())
    m = len(np.unique(prompts))
    return mean, float(np.sqrt(m / max(1, m - 1) * (sums**2).sum())) / gains.size
