"""What routing by a rule would have been worth on prompts whose every score is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.registry import make_preselector
from bestarm_agent.preselection.types import PreselectionProblem
from bestarm_agent.routing.encoding import PromptEncoder
from bestarm_agent.routing.records import Record
from bestarm_agent.routing.settings import RoutedCandidate, RouterSettings, candidate_features
from bestarm_agent.simulation.preselecting import Table, best_fixed_subset, replay_table
from bestarm_agent.stats.keyed import KeyedRandom

_FIRST = 500  # prompts that features are made from


@dataclass(frozen=True, slots=True)
class Line:
    """How a policy did.

    Attributes:
        policy: rule or yardstick.
        quality: mean score of the best answer among those run.
        error: standard error of ``quality`` over repetitions; 0 for yardsticks.
        late: the same over the second half of the prompts, when most is learnt.
        first: mean score of the candidate named first, over the second half.
        usd: mean dollars of a prompt.
        kind: "rule", "fixed" (always the same candidates) or "oracle".
    """

    policy: str
    quality: float
    error: float
    late: float
    first: float
    usd: float
    kind: str = "rule"


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
    return Table(scores, costs, vectors, candidate_features(known, settings)), names


def simulate(
    table: Table, names: Sequence[str], rules: Mapping[str, RouterSettings], k: int, n: int
) -> list[Line]:
    """Route all prompts, in ``n`` random orders, by each rule; yardsticks follow.

    Args:
        table: what is known.
        names: of its rows.
        rules: by label.
        k: candidates run per prompt, >= 2.
        n: repetitions, >= 1.

    Raises:
        ConfigError: k does not fit the candidates.
    """
    if not 2 <= k <= len(names):
        raise ConfigError(f"k must be in 2..{len(names)}, got {k}")
    lines = [_line(label, table, settings, k, n) for label, settings in rules.items()]
    weight = max(settings.cost_weight for settings in rules.values())
    return [*lines, *yardsticks(table, names, k, weight)]


def yardsticks(table: Table, names: Sequence[str], k: int, cost_weight: float) -> list[Line]:
    """The best that always running the same candidates could do, and the best there is."""
    lines = []
    for size in (1, k):
        rows = best_fixed_subset(table, size, cost_weight=cost_weight)
        quality = float(table.scores[rows].max(axis=0).mean())
        label = f"always {', '.join(names[row] for row in rows)}"
        first = float(table.scores[rows[table.scores[rows].mean(axis=1).argmax()]].mean())
        usd = float(table.costs[rows].sum())
        lines.append(Line(label, quality, 0.0, quality, first, usd, kind="fixed"))
    top = table.scores.max(axis=0)
    cheapest = np.where(table.scores == top, table.costs[:, None], np.inf).min(axis=0)
    best = float(top.mean())
    usd = float(cheapest.mean())
    return [*lines, Line("oracle", best, 0.0, best, best, usd, kind="oracle")]


def worth(lines: Sequence[Line], k: int) -> str:
    """Whether routing paid, in a sentence: the best rule, once it has learnt, and a fixed choice.

    Args:
        lines: of ``simulate``.
        k: candidates run per prompt.

    Example:
        >>> rule = Line("linucb", 0.7, 0.01, 0.75, 0.6, 1.0)
        >>> fixed = Line("always a, b", 0.71, 0.0, 0.71, 0.6, 1.0, "fixed")
        >>> oracle = Line("oracle", 0.81, 0.0, 0.81, 0.8, 1.0, "oracle")
        >>> worth([rule, fixed, oracle], 2)[:66]
        'linucb is worth it: in the second half its best of 2 scores 0.0400'
    """
    rule = max((line for line in lines if line.kind == "rule"), key=lambda line: line.late)
    fixed = [line for line in lines if line.kind == "fixed"][-1]
    oracle = next(line for line in lines if line.kind == "oracle")
    gain, error = rule.late - fixed.late, 2 * rule.error
    verdict = "makes no difference beyond the error"
    if not error:
        verdict = "was tried in one order alone, which tells no error"
    elif abs(gain) > error:
        verdict = "is worth it" if gain > 0 else "is not worth it"
    side = "above" if gain > 0 else "below"
    return (
        f"{rule.policy} {verdict}: in the second half its best of {k} scores {abs(gain):.4f} "
        f"{side} {fixed.policy} (two standard errors: {error:.4f}), of the "
        f"{oracle.late - fixed.late:.4f} that an oracle would gain."
    )


def _line(label: str, table: Table, settings: RouterSettings, k: int, n: int) -> Line:
    runs = np.array([_run(table, settings, k, settings.seed + i) for i in range(n)])
    error = float(runs[:, 0].std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    quality, late, first, usd = runs.mean(axis=0).tolist()
    return Line(label, quality, error, late, first, usd)


def _run(table: Table, settings: RouterSettings, k: int, seed: int) -> tuple[float, ...]:
    problem = PreselectionProblem(len(table.scores), table.n_features, seed)
    rule = make_preselector(settings.rule, problem, **settings.rule_params())
    length = table.scores.shape[1]
    order = KeyedRandom(seed, "order of prompts").at(0).permutation(length)
    chosen = replay_table(rule, table, order, k, cost_weight=settings.cost_weight)
    quality, first = table.best_of(chosen, order), table.best_of(chosen[:, :1], order)
    usd = table.costs[chosen].sum(axis=1).mean()
    late = slice(length // 2, None)
    return float(quality.mean()), float(quality[late].mean()), float(first[late].mean()), float(usd)
