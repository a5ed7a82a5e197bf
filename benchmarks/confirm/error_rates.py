"""How far a winner's mean is off, by the choice alone, and what is said instead of it.

    python -m benchmarks.confirm.error_rates --worlds 10000 --out docs/reproduction

Writes the tables into ``confirm.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.confirm.worlds import World, simulate
from scipy.stats import binom

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell

LEVEL = 0.05
SETTINGS = (
    ("10 alike, .80", World((0.8,) * 10)),
    ("40 alike, .80", World((0.8,) * 40)),
    ("8 of .82 to .50", World((0.82, 0.8, 0.8, 0.78, 0.78, 0.7, 0.6, 0.5))),
    ("one of .90, two of .50", World((0.9, 0.5, 0.5))),
    ("10 alike, 10 of 200 seen", World((0.8,) * 10, n_seen=10)),
    ("10 alike, 190 of 200 seen", World((0.8,) * 10, n_seen=190)),
)
RULES = ("auto", "sequential-halving", "ucb-e", "uniform")
N, SHARE = 400, 0.15  # examples of the runs with real rules; pairs asked, of all
HEAD = """# The winner's mean: bias, and what is said instead

Written by `python -m benchmarks.confirm.error_rates`; {worlds:,} worlds per setting, intervals at
95%, looked at after every example.

## Choosing the highest of K means

Bias is the mean of what is said less the truth: on the examples that it was chosen by (50 of 200,
unless said otherwise), and on 50 kept back. An interval may miss the truth in 5% of the worlds at
most: the joint one of those chosen among, and that on the examples kept back. The p-value is that
of a binomial test of the larger share.

| candidates | bias, chosen by | bias, kept back | joint misses | kept back misses | p-value |
| --- | ---: | ---: | ---: | ---: | ---: |
"""


def simulated(worlds: int, seed: int) -> str:
    """Return a row for each setting."""
    rows = []
    for index, (name, world) in enumerate(SETTINGS):
        found = simulate(world, worlds, np.random.default_rng([seed, index]), LEVEL)
        misses = int(found.corrected_missed.sum()), int(found.confirmed_missed.sum())
        p_value = float(binom.sf(max(misses) - 1, worlds, LEVEL))
        shares = " | ".join(f"{count / worlds:.2%}" for count in misses)
        rows.append(
            f"| {name} | {found.naive.mean():+.4f} | {found.confirmed.mean():+.4f} | {shares} "
            f"| {p_value:.2g} |"
        )
    return "\n".join(rows)


def chosen_by_rule(name: str, worlds: int, seed: int) -> str:
    """Return a row: how a rule's estimate of its winner compares with the truth."""
    gaps = []
    for world in range(worlds):
        rng = np.random.default_rng([seed, 500, world])
        truth = np.array([0.82, 0.8, 0.8, 0.78, 0.78, 0.7, 0.6, 0.5])
        ease = rng.normal(0, 0.15, N)  # what makes an example hard for all
        scores = rng.random((len(truth), N)) < np.clip(truth[:, None] + ease, 0, 1)
        budget = int(SHARE * scores.size)
        pairs = make_selector(name, Problem(len(truth), N, seed=world, budget=budget))
        while pairs.table.n_asked < budget and (asks := pairs.ask()):
            pairs.tell([Tell(a.seq, State.DONE, float(scores[a.pair])) for a in asks])
        best = pairs.best().best
        mean = scores[best].mean()
        gaps.append((pairs.table.mean()[best] - mean, pairs.estimates().mean[best] - mean))
    means = np.mean(gaps, axis=0)
    error = np.std(gaps, axis=0) / len(gaps) ** 0.5
    cells = " | ".join(f"{m:+.4f} ± {2 * e:.4f}" for m, e in zip(means, error, strict=True))
    return f"| {name} | {cells} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of confirm.md; else stdout")
    given = parser.parse_args(arguments)
    few = max(2, given.worlds // 50)
    rules = "\n".join(chosen_by_rule(name, few, given.seed) for name in RULES)
    page = f"""{HEAD.format(worlds=given.worlds)}{simulated(given.worlds, given.seed)}

## Choosing by a rule

Eight candidates of .82 to .50 on {N} examples, {SHARE:.0%} of the pairs asked, {few:,} worlds.
What the winner scored on the examples seen, and the rule's estimate, each less its mean over all
{N}; ± two standard errors.

| rule | mean seen | estimate |
| --- | ---: | ---: |
{rules}
"""
    if given.out is None:
        print(page)
    else:
        (given.out / "confirm.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
