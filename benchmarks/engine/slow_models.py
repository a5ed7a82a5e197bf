"""Pairs and seconds until the best is established, where the rate of one model is limited.

A run that spares pairs (it waits when it is the turn of a busy model, and begins with few in
flight), beside one that asks others meanwhile and uses all places. The scores are replayed: 12
candidates on 400 examples, each call takes 50 ms.

    python -m benchmarks.engine.slow_models [--seeds 3] [--rpm 600] [--in-flight 16]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np
from scipy.stats import norm

from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.next_pairs import NextPairs
from bestarm_agent.study import Study

_MEANS = (0.80, 0.72, 0.70, 0.66, 0.64, 0.60, 0.58, 0.55, 0.50, 0.45, 0.40, 0.30)
_EXAMPLES = 400
_LIMITED = {"none": (), "the best": (0,), "the second": (1,), "the tenth": (9,), "all": range(12)}


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rpm", type=int, default=600)
    parser.add_argument("--in-flight", type=int, default=16)
    given = parser.parse_args()
    print("| limited | pairs: spared | not | seconds: spared | not |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, limited in _LIMITED.items():
        models = {f"replay/{row}": {"rpm": given.rpm} for row in limited}
        limits = {"in_flight": given.in_flight, "models": models}
        cells = []
        for spares in (True, False):
            found = [_established(seed, limits, spares=spares) for seed in range(given.seeds)]
            cells.append([median(one.asked for one in found), median(one.seconds for one in found)])
        pairs, seconds = zip(*cells, strict=True)
        texts = [f"{n:,.0f}" for n in pairs] + [f"{s:.0f}" for s in seconds]
        print(f"| {name} | {' | '.join(texts)} |", flush=True)


def _established(seed: int, limits: Mapping[str, object], *, spares: bool) -> Standing:
    with tempfile.TemporaryDirectory() as name:
        path = _write_study(Path(name), seed, limits)
        if spares:
            return asyncio.run(_run(path))
        with mock.patch.object(NextPairs, "_spares_pairs", return_value=False):
            return asyncio.run(_run(path))


async def _run(path: Path) -> Standing:
    async with Study.open(path) as study:
        standing = await study.run()
    assert standing.established
    return standing


def _write_study(folder: Path, seed: int, limits: Mapping[str, object]) -> Path:
    rng = np.random.default_rng(seed)
    level = np.asarray(norm.ppf(_MEANS))[:, None] * np.sqrt(1 + 0.8**2)
    noise = rng.normal(size=(len(_MEANS), _EXAMPLES))
    scores = level + 0.8 * rng.normal(size=_EXAMPLES) + noise > 0
    np.savez(folder / "scores.npz", scores=scores.astype(float))
    examples = ({"id": str(j), "question": f"q{j}"} for j in range(_EXAMPLES))
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)))
    study = {
        "name": "slow",
        "models": [f"replay/{i}" for i in range(len(_MEANS))],
        "prompts": [{"q": "{{ question }}"}],
        "dataset": "examples.jsonl",
        "scorer": "recorded",
        "providers": {"replay": {"path": "scores.npz", "latency_seconds": 0.05}},
        "limits": limits,
        "selector": {"name": "auto", "seed": seed},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


if __name__ == "__main__":
    main()
