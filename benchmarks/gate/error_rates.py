"""Error rates and sizes of gates, beside gates of a fixed size on the same worlds.

    python -m benchmarks.gate.error_rates --worlds 10000 --out docs/reproduction

Every gate is looked at after every example. Writes the tables into ``gate.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import binom

from tests.support.gate_worlds import (
    World,
    best_bets,
    examples_taken,
    fixed_gate,
    question_of,
    simulate,
    simulate_sliced,
    verdicts,
    wrong,
    wrong_verdicts,
    wrongly_worse,
)

LEVEL = 0.05
MARGIN = 0.05
N = 500
TIES = (-MARGIN, 0.0)
SIZES = (100, 200, 400)  # of fixed gates
SLICES = (300, 160, 40)
SLICE_MARGIN = 0.1
SIZED = ((1_800, 200), (1_500, 300, 150, 50))
HEAD = """# Gates: error rates and examples needed

Written by `python -m benchmarks.gate.error_rates`; {worlds:,} worlds per setting, margin
{margin:g}, confidence {confidence:.0%}, looked at after every example. A world is a pool of
examples, of which the baseline gets 80 % right; each challenger differs from it on a share of them.
"""


def settings() -> Iterator[tuple[World, bool]]:
    """Yield worlds at the edges of what is true, and whether an improvement is asked for."""
    for challengers in (1, 3, 10):
        for difference in (*TIES, -0.06, -0.02):
            yield World(N, difference, 0.15, challengers), False
        yield World(N, MARGIN, 0.15, challengers), True
    for difference in TIES:
        yield World(N, difference, 0.06), False
        yield World(N, difference, 0.30), False
        yield World(N, difference, 0.15, void=0.02), False
    for difference in TIES:
        for challengers in (1, 10):
            yield World(N, difference, 0.15, challengers, draws=3), False


def error_table(worlds: int, seed: int) -> str:
    """Return how often any statement about any challenger was ever wrong."""
    rows = [
        "| asked | true difference | disagree | challengers | void | draws | mistakes | p-value |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for index, (world, improve) in enumerate(settings()):
        question = question_of(world, MARGIN, LEVEL, improve=improve)
        found = simulate(world, question, worlds, np.random.default_rng([seed, index]))
        mistakes = int(wrong(found, world, question).sum())
        rows.append(
            f"| {'better' if improve else 'not worse'} | {world.difference:+.2f} "
            f"| {world.disagreement:.0%} | {world.n_challengers} | {world.void:.0%} "
            f"| {world.draws} | {mistakes / worlds:.2%} | {_p_value(mistakes, worlds):.2g} |"
        )
    return "\n".join(rows)


def slice_settings() -> Iterator[tuple[tuple[float, ...], int]]:
    """Yield the true differences on slices, and the number of challengers."""
    for challengers in (1, 3):
        yield (-MARGIN,) * 3, challengers
        yield (0.0,) * 3, challengers
        yield (0.0, 0.0, -MARGIN), challengers
        yield (0.1, 0.1, -0.075), challengers
        yield (0.02, 0.02, -0.1), challengers


def slice_table(worlds: int, seed: int) -> str:
    """Return how often any statement is wrong, and what a gate with slices takes."""
    rows = [
        "| differences by slice | challengers | wrong verdict | p-value | wrongly worse | p-value "
        "| passes | fails |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for index, (differences, challengers) in enumerate(slice_settings()):
        slices = [
            World(size, difference, 0.15, challengers)
            for size, difference in zip(SLICES, differences, strict=True)
        ]
        rng = np.random.default_rng([seed, 300 + index])
        found = simulate_sliced(slices, MARGIN, LEVEL, worlds, rng)
        counts = [int(one(found).sum()) for one in (wrong_verdicts, wrongly_worse)]
        shares = [f"{n / worlds:.2%} | {_p_value(n, worlds):.2g}" for n in counts]
        passed, failed = verdicts(found)
        texts = " / ".join(f"{difference:+.2f}" for difference in differences)
        rows.append(
            f"| {texts} | {challengers} | {' | '.join(shares)} "
            f"| {passed.mean():.1%} | {failed.mean():.1%} |"
        )
    return "\n".join(rows)


def order_table(worlds: int, seed: int) -> str:
    """Return after how many examples a gate with slices ends, by its order and by a uniform one."""
    rows = [
        "| slices | difference on the smallest | verdict | by turns | in one order |",
        "| --- | ---: | --- | ---: | ---: |",
    ]
    for index, (sizes, worst) in enumerate(product(SIZED, (0.0, -0.25))):
        slices = [World(n, worst if n == min(sizes) else 0.0, max(0.1, -worst)) for n in sizes]
        rng = np.random.default_rng([seed, 400 + index])
        by_turns, in_order = examples_taken(slices, SLICE_MARGIN, LEVEL, worlds, rng)
        rows.append(
            f"| {' / '.join(f'{n:,}' for n in sizes)} | {worst:+.2f} "
            f"| {'passes' if worst == 0.0 else 'fails'} "
            f"| {np.median(by_turns):.0f} | {np.median(in_order):.0f} |"
        )
    return "\n".join(rows)


def power_table(worlds: int, seed: int) -> str:
    """Return after how many of 2,000 examples there is an answer."""
    rows = [
        "| true difference | disagree | passes | examples | fails | examples | at best "
        "| shown worse after |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for index, (difference, disagreement) in enumerate(_powers()):
        world = World(2_000, difference, disagreement)
        rng = np.random.default_rng([seed, 100 + index])
        question = question_of(world, MARGIN, LEVEL)
        passed, failed, worse = (part[:, 0] for part in simulate(world, question, worlds, rng))
        best = best_bets(world, question, worlds, rng)
        answers = [_share(passed), _median(passed), _share(failed), _median(failed)]
        cells = [*answers, _median(best), _median(worse)]
        rows.append(f"| {difference:+.2f} | {disagreement:.0%} | {' | '.join(cells)} |")
    return "\n".join(rows)


def fixed_table(worlds: int, seed: int) -> str:
    """Return how often gates of a fixed size, which compare two means, pass."""
    rows = [
        f"| true difference | {' | '.join(f'{size} examples' for size in SIZES)} |",
        f"| ---: |{' ---: |' * len(SIZES)}",
    ]
    for difference in (0.03, 0.0, -0.05, -0.1):
        world = World(2_000, difference, 0.15)
        rng = np.random.default_rng([seed, 200])
        shares = [fixed_gate(world, MARGIN, size, worlds, rng) for size in SIZES]
        rows.append(f"| {difference:+.2f} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    return "\n".join(rows)


def _p_value(mistakes: int, worlds: int) -> float:
    return float(binom.sf(mistakes - 1, worlds, LEVEL))


def _powers() -> Iterator[tuple[float, float]]:
    for disagreement in (0.06, 0.10, 0.15):
        for difference in (0.03, 0.0, -0.1):
            if abs(difference) <= disagreement:
                yield difference, disagreement


def _share(after: np.ndarray) -> str:
    return f"{np.isfinite(after).mean():.1%}"


def _median(after: np.ndarray) -> str:
    """Write the median of those that have an answer."""
    some = after[np.isfinite(after)]
    return f"{np.median(some):.0f}" if len(some) > len(after) / 2 else "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of gate.md; else stdout")
    given = parser.parse_args(arguments)
    head = HEAD.format(worlds=given.worlds, margin=MARGIN, confidence=1 - LEVEL)
    page = f"""{head}
## Mistakes

Any wrong statement about any challenger, at any time; at most {LEVEL:.0%} are allowed. The p-value
is that of a binomial test of that rate. A gate with calls in flight takes the examples in their
order however late answers come, so it looks at some of these moments and at no other. With 3 draws
a score is their mean.

{error_table(given.worlds, given.seed)}

## Mistakes with slices

Slices of {", ".join(map(str, SLICES))} examples, margin {MARGIN:g} on each and over all. A verdict
is wrong if a challenger that is worse by more than the margin on some slice passes on all, or if
one that is so on none fails, at any time. Beside it: any challenger is said to be worse, or worse
by more than the margin, on a slice or over all examples where it is not. At most {LEVEL:.0%} are
allowed of either. One that is worse by the margin exactly may pass.

{slice_table(given.worlds, given.seed)}

## Examples with slices

Medians of the examples that a gate asks until it ends, with a margin of {SLICE_MARGIN:g}. By turns:
all examples and every slice advance alike, and what is decided is left, as gates do. In one order:
the examples are asked in the common random order until all is decided.

{order_table(max(1, given.worlds // 50), given.seed)}

## Examples until there is an answer, of 2,000

Medians of the gates that gave this answer. "Shown worse" is the statement that the challenger is
worse by any amount; a gate fails a challenger that is worse by more than the margin. "At best" is
the median of a gambler who knows how many of the examples left are better, equal and worse: no bet
on the next example gains more on average.

{power_table(max(1, given.worlds // 10), given.seed)}

## Gates of a fixed size

How often a gate passes that compares the mean score with an earlier mean on other examples, and
allows the margin: what is equal is blocked, and what is worse passes, by the luck of the draw.

{fixed_table(given.worlds, given.seed)}
"""
    if given.out is None:
        print(page)
    else:
        (given.out / "gate.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
