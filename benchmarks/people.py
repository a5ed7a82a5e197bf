"""Labels that a proof by people takes: all candidates, the contenders alone, or with a judge.

    python -m benchmarks.people --data ../shared/data --write

The 20 tasks of ``rautoeval_prompting.npz`` with 500 examples: ``true`` scores are people's, and
``fake`` ones of three qualities are judges'. A world is 12 of the 100 prompts on 500 examples.
Contenders are the six best by the judge. A label is one score of one answer; labels are counted to
the proof in worlds whose best is .02 ahead of the second. Regret is that of the prompt named after
24 labelled examples, over all worlds. Fills the table of docs/reproduction/README.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.report import Bench, markdown, run

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.people import LabelledRows

QUALITIES = {"good": "gooderer", "medium": "med", "bad": "bad"}
PROMPTS, EXAMPLES, CONTENDERS, EARLY = 12, 500, 6, 24
GAP, ALPHA = 0.02, 0.05


def worlds(data: Path, quality: str, repeats: int) -> tuple[FloatArray, FloatArray]:
    """Return (worlds, 12, 500) scores of people and of a judge."""
    rng, found = np.random.default_rng(0), []
    with np.load(data / "rautoeval_prompting.npz") as tables:
        for task in tables["tasks"].tolist():
            _, size, is_binary = tables[f"shape__{task}"].tolist()
            if not is_binary or size < EXAMPLES:
                continue
            both = [
                np.unpackbits(tables[f"{name}__{task}"], axis=1)[:, :size]
                for name in ("true", f"fake_{quality}")
            ]
            for _ in range(repeats):
                rows = rng.choice(len(both[0]), PROMPTS, replace=False)
                columns = rng.choice(size, EXAMPLES, replace=False)
                found.append([one[np.ix_(rows, columns)] for one in both])
    people, judge = np.array(found, dtype=float).transpose(1, 0, 2, 3)
    return people, judge


def race(
    people: FloatArray, judge: FloatArray, *, drop: bool = True
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Label every example in a random order.

    Returns:
        (worlds,) labels to the proof, the row named after the first ``EARLY`` examples, and whether
        a best row was ruled out.
    """
    n, rows, size = people.shape
    rng, at = np.random.default_rng(1), np.arange(n)
    order = rng.permuted(np.tile(np.arange(size), (n, 1)), axis=1)
    rows_left, labels = LabelledRows(judge, ALPHA), np.zeros(n)
    named = rows_left.leader
    for place, examples in enumerate(order.T):
        left = rows_left.alive.sum(axis=1)
        labels += np.where(left == 1, 0, left if drop else rows)
        scores = people[at, :, examples]
        rows_left.add(examples, scores, scores)
        named = rows_left.leader if place + 1 == EARLY else named
    means = people.mean(axis=2)
    best = means == means.max(axis=1, keepdims=True)
    return labels, named, (best & ~rows_left.alive).sum(axis=1) == best.sum(axis=1)


def measure(data: Path, quality: str, repeats: int) -> dict[str, list[float]]:
    """Return mean labels, regret and errors of each way to ask people."""
    people, judge = worlds(data, quality, repeats)
    means = people.mean(axis=2)
    first, second = np.sort(means, axis=1)[:, :-3:-1].T
    near = np.argsort(-judge.mean(axis=2), axis=1, kind="stable")[:, :CONTENDERS, None]
    some, judged = (np.take_along_axis(one, near, axis=1) for one in (people, judge))
    nothing = np.full_like(people, np.nan)
    found = {}
    for name, result, own in (
        ("all candidates", race(people, nothing, drop=False), people),
        ("contenders, labels alone", race(some, nothing[:, :CONTENDERS]), some),
        ("contenders, with the judge", race(some, judged), some),
    ):
        labels, named, wrong = result
        value = own.mean(axis=2)[np.arange(len(own)), named]
        regret = (first - value).mean()
        found[name] = [labels[first - second >= GAP].mean(), regret, wrong.mean()]
    return {name: [float(one) for one in values] for name, values in found.items()}


def people(bench: Bench) -> dict[str, str]:
    """Measure with judges of three qualities."""
    cells = []
    for name, quality in QUALITIES.items():
        repeats = bench.seeds(10)
        key = {"part": "people", "quality": quality, "repeats": repeats}
        found = bench.found(key, partial(measure, bench.data, quality, repeats))
        cells += [
            [name, way, f"{labels:,.0f}", f"{regret:.3f}", f"{wrong:.1%}"]
            for way, (labels, regret, wrong) in found.items()
        ]
    heads = ["judge", "people are asked about", "labels to the proof", "regret at 24", "errors"]
    return {"people": markdown(heads, cells)}


if __name__ == "__main__":
    run({"people": people}, Path(__file__).parents[1] / "docs/reproduction/README.md", __doc__)
