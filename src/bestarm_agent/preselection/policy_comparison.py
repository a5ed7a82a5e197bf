"""Comparison of routing with fixed choices, on prompts whose every score is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.feedback import Record
from bestarm_agent.preselection.prompt_features import PromptEncoder
from bestarm_agent.preselection.rules.registry import make_preselector
from bestarm_agent.preselection.rules.types import FloatArray, IntArray, PreselectionProblem
from bestarm_agent.preselection.settings import RoutedCandidate, RouterSettings, candidate_features
from bestarm_agent.preselection.table_replay import Table, best_fixed_subset, replay_table
from bestarm_agent.stats.keyed_random import KeyedRandom

_FIRST = 500  # prompts that features are made from


_LEVEL = 0.05  # probability that any rule's interval misses its gain


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its ends."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Results of a policy.

    Attributes:
        gain: mean utility over the second half, less that of the candidates that were best on the
            first half, on the same prompts; None for fixed choices. All rules' intervals hold
            together with a confidence of 95 %.
    """

    policy: str  # rule, fixed choice or oracle
    quality: float  # mean score of the best answer among those run
    late: float  # the same over the second half of the prompts, when most is learnt
    first: float  # mean score of the candidate named first, over the second half
    usd: float  # mean dollars of a prompt in the second half
    gain: Interval | None = None
    kind: str = "rule"  # "rule", "fixed" (always the same candidates) or "oracle"


def table_of(records: Sequence[Record], settings: RouterSettings) -> tuple[Table, list[str]]:
    """Turn records into a table, and name its rows.

    Raises:
        ConfigError: a record lacks the scores of some candidates, or there are too few records.
    """
    if len(records) < 2:
        raise ConfigError(f"a simulation needs at least 2 records, got {len(records)}")
    names = list(records[0].scores)
    for number, record in enumerate(records, start=1):
        if not names or set(record.scores) != set(names):
            raise ConfigError(
                f"record {number} lacks scores that others have; every candidate needs a score on "
                f"every prompt, so leave out those that have holes"
            )
    scores = np.array([[record.scores[name] for record in records] for name in names])
    usd = np.array([[record.usd.get(name, 0.0) for record in records] for name in names])
    costs = usd.mean(axis=1)
    known = [
        RoutedCandidate(n, float(c) if c > 0 else None) for n, c in zip(names, costs, strict=True)
    ]
    encoder = PromptEncoder(settings)
    prompts = [(record.prompt, record.features) for record in records]
    for prompt in prompts:
        encoder.check(prompt)
    encoder.fit(prompts[:_FIRST])
    vectors = np.array([encoder.vector(prompt) for prompt in prompts])
    try:
        return Table(scores, costs, vectors, candidate_features(known, settings)), names
    except ValueError as error:
        raise ConfigError(str(error)) from error


def simulate(
    table: Table, names: Sequence[str], rules: Mapping[str, RouterSettings], k: int, n: int
) -> list[PolicyResult]:
    """Route all prompts, in ``n`` random orders, by each rule; fixed choices and oracle follow.

    Gains are paired by prompt. In each order the fixed choice is found on the first half of the
    prompts, by all their scores, and compared with the rule on the second half. Standard errors are
    clustered by prompt, which may be in the second half of several orders, and the intervals are
    Bonferroni's over the rules, since the best of them will be looked at.
    """
    if not 1 <= k <= len(names):
        raise ConfigError(f"k must be in 1..{len(names)}, got {k}")
    weight = max(settings.cost_weight for settings in rules.values())
    seed = next(iter(rules.values())).seed
    splits = [_split(table, k, weight, seed + i) for i in range(n)]
    z = float(ndtri(1 - _LEVEL / (2 * len(rules))))
    results = [_result(label, table, settings, k, splits, z) for label, settings in rules.items()]
    return [*results, *_fixed_choices(table, names, k, weight), _oracle(table, weight, splits)]


def verdict(results: Sequence[PolicyResult], k: int, n_prompts: int) -> str:
    """Say in a sentence whether routing by the best rule beats a fixed choice.

    Example:
        >>> rule = PolicyResult("linucb", 0.7, 0.75, 0.6, 1.0, Interval(0.04, 0.02, 0.06))
        >>> oracle = PolicyResult("oracle", 0.81, 0.81, 0.8, 1.0, Interval(0.1, 0.1, 0.1), "oracle")
        >>> verdict([rule, oracle], 2, 500)[:72]
        'linucb is worth it: on the second half of the prompts it gains 0.0400 ov'
    """
    gains = {one.policy: one.gain for one in results if one.kind == "rule" and one.gain}
    best = max(gains, key=lambda policy: gains[policy].value)
    gain = gains[best]
    oracle = next(one.gain.value for one in results if one.kind == "oracle" and one.gain)
    said = f"makes no difference that {n_prompts:,} prompts can show"
    if gain.low > 0:
        said = "is worth it"
    elif all(one.high < 0 for one in gains.values()):
        said = "is not worth it, nor is any other rule" if len(gains) > 1 else "is not worth it"
    below = _below_random(gains)
    choice = "candidate that was" if k == 1 else f"{k} candidates that were"
    among = f" and corrected for the choice among {len(gains)} rules" if len(gains) > 1 else ""
    return (
        f"{best} {said}: on the second half of the prompts it gains {gain.value:.4f} over the "
        f"{choice} best on the first half (95 % interval {gain.low:.4f} to {gain.high:.4f}, paired "
        f"by prompt{among}); an oracle would gain {oracle:.4f}.{below}"
    )


def _below_random(gains: Mapping[str, Interval]) -> str:
    """Return a warning about rules that gain less than random arms: they settled too early."""
    if "random" not in gains:
        return ""
    worse = [policy for policy, gain in gains.items() if gain.value < gains["random"].value]
    if not worse:
        return ""
    return (
        f" Random arms gain more than {', '.join(worse)}: a rule can settle too early, "
        f"for good, above all where most prompts end in a tie."
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """One random order of the prompts, and the fixed choice to compare with."""

    seed: int  # of the order, and of rules that route in it
    order: IntArray  # (N,) prompts
    late: IntArray  # (h,) those of the second half
    fixed: FloatArray  # (h,) utilities of the fixed choice on these


def _split(table: Table, k: int, cost_weight: float, seed: int) -> _Split:
    n_prompts = table.scores.shape[1]
    order = KeyedRandom(seed, "order of prompts").at(0).permutation(n_prompts)
    early, late = order[: n_prompts // 2], order[n_prompts // 2 :]
    seen = replace(table, scores=table.scores[:, early], prompts=table.prompts[early])
    rows = best_fixed_subset(seen, k, cost_weight=cost_weight)
    quality = table.scores[np.ix_(rows, late)].max(axis=0)
    return _Split(seed, order, late, quality - cost_weight * table.costs[rows].sum())


def _fixed_choices(
    table: Table, names: Sequence[str], k: int, cost_weight: float
) -> list[PolicyResult]:
    results = []
    for size in sorted({1, k}):
        rows = best_fixed_subset(table, size, cost_weight=cost_weight)
        quality = float(table.scores[rows].max(axis=0).mean())
        label = f"always {', '.join(names[row] for row in rows)}"
        first = float(table.scores[rows[table.scores[rows].mean(axis=1).argmax()]].mean())
        usd = float(table.costs[rows].sum())
        results.append(PolicyResult(label, quality, quality, first, usd, kind="fixed"))
    return results


def _oracle(table: Table, cost_weight: float, splits: Sequence[_Split]) -> PolicyResult:
    """Return the results of always running the cheapest of the best candidates alone."""
    top = table.scores.max(axis=0)
    usd = np.where(table.scores == top, table.costs[:, None], np.inf).min(axis=0)
    best = float(top.mean())
    utility = table.utility(cost_weight).max(axis=0)
    gain = float(np.mean([utility[split.late] - split.fixed for split in splits]))
    interval = Interval(gain, gain, gain)
    return PolicyResult("oracle", best, best, best, float(usd.mean()), interval, kind="oracle")


def _result(
    label: str, table: Table, settings: RouterSettings, k: int, splits: Sequence[_Split], z: float
) -> PolicyResult:
    chosen = np.array([_route(table, settings, k, split) for split in splits])  # (n, N, k)
    orders = np.array([split.order for split in splits])
    half = orders.shape[1] // 2
    quality, first = (
        np.array([table.best_of(c, order) for c, order in zip(part, orders, strict=True)])
        for part in (chosen, chosen[:, :, :1])
    )
    usd = table.costs[chosen[:, half:]].sum(axis=2)
    utility = quality[:, half:] - settings.cost_weight * usd
    gains = utility - np.array([split.fixed for split in splits])
    return PolicyResult(
        policy=label,
        quality=float(quality.mean()),
        late=float(quality[:, half:].mean()),
        first=float(first[:, half:].mean()),
        usd=float(usd.mean()),
        gain=_clustered(gains, orders[:, half:], z),
    )


def _route(table: Table, settings: RouterSettings, k: int, split: _Split) -> IntArray:
    problem = PreselectionProblem(len(table.scores), table.n_features, split.seed)
    rule = make_preselector(settings.rule, problem, **settings.rule_params())
    return replay_table(rule, table, split.order, k, cost_weight=settings.cost_weight)


def _clustered(gains: FloatArray, prompts: IntArray, z: float) -> Interval:
    """Return the mean of (n, h) gains +- z standard errors, clustered by prompt.

    With residuals e = gain - mean, summed over the orders of each of m prompts, the variance of the
    mean is m / (m - 1) sum (sum e)^2 / (n h)^2 (Liang and Zeger 1986, Biometrika 73).
    """
    mean = float(gains.mean())
    sums = np.bincount(prompts.ravel(), weights=(gains - mean).ravel())
    m = len(np.unique(prompts))
    error = float(np.sqrt(m / max(1, m - 1) * (sums**2).sum())) / gains.size
    return Interval(mean, mean - z * error, mean + z * error)
