"""Studies that are kept on disk: what was run once is not run again."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bestarm_agent.simulation.curves import Curve, Truth, describe, summarise
from bestarm_agent.simulation.replay_many import Plan, run_study
from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix

DIGITS = 6

_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are and how much to run.

    Attributes:
        data: folder of the score matrices.
        work: folder of finished studies.
        out: folder of the report.
        jobs: parallel processes.
        scale: multiplies the number of seeds.
    """

    data: Path
    work: Path
    out: Path
    jobs: int
    scale: float

    def seeds(self, usual: int) -> int:
        """Seeds to run where 1 means ``usual``."""
        return max(2, round(usual * self.scale))

    def matrix(self, location: str, *, without_best: bool = False) -> ScoreMatrix:
        """Load a matrix without its costs: the papers count calls.

        Args:
            location: file, or file and task, in the data folder.
            without_best: whether to leave out the row of the highest mean.
        """
        matrix = replace(load_matrix(str(self.data / location)), costs=None, source=location)
        if not without_best:
            return matrix
        best = int(np.argmax(matrix.means))
        names = tuple(name for i, name in enumerate(matrix.names) if i != best)
        scores = np.delete(matrix.scores, best, axis=0)
        return ScoreMatrix(scores, names, None, f"{location} without {matrix.names[best]}")

    def recall(self, key: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """What was kept under a key, or None."""
        path = self._path(key)
        return json.loads(path.read_text(encoding="utf-8"))["found"] if path.exists() else None

    def keep(self, key: Mapping[str, Any], found: Any) -> None:  # noqa: ANN401 - JSON
        """Keep a result; the key is stored beside it."""
        self.work.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        text = json.dumps({"key": key, "found": _rounded(found)}, indent=1)
        path.with_suffix(".part").write_text(text, encoding="utf-8")
        path.with_suffix(".part").replace(path)

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return self.work / f"{key['part']}-{digest}.json"


def measured(
    bench: Bench, tasks: Mapping[_Name, tuple[Mapping[str, Any], Callable[[], Any]]], jobs: int
) -> dict[_Name, Any]:
    """Measure in parallel what was not measured before, in the order given.

    Args:
        bench: keeps what is found.
        tasks: by name, the key that the result is kept under, and what makes it in a process.
        jobs: processes at once.
    """
    kept = {name: bench.recall(key) for name, (key, _) in tasks.items()}
    found = {name: value for name, value in kept.items() if value is not None}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        left = {name: make for name, (_, make) in tasks.items() if name not in found}
        waiting = {pool.submit(make): name for name, make in left.items()}
        for task in as_completed(waiting):
            name = waiting[task]
            key = tasks[name][0]
            found[name] = task.result()
            bench.keep(key, found[name])
            say(f"{key['part']}: {key['matrix']}, {key['rule']}")
    return found


def study(
    bench: Bench, part: str, matrix: ScoreMatrix, selectors: str, plan: Plan
) -> dict[str, Curve]:
    """Run the selectors that were not run before under this plan; curves by label."""
    curves: dict[str, Curve] = {}
    truth = Truth.of(matrix)
    for contender in parse_contenders(selectors):
        key = {
            "part": part,
            "matrix": matrix.source,
            "selector": contender.label,
            "fractions": list(plan.fractions),
            "seeds": plan.seeds,
        }
        found = bench.recall(key)
        if found is None:
            started = time.perf_counter()
            replays = run_study(matrix, [contender], plan, jobs=bench.jobs)[contender.label]
            found = summarise(truth, replays).as_dict()
            found["wall_seconds"] = time.perf_counter() - started
            bench.keep(key, found)
            say(f"{part}: {matrix.source}, {contender.label}: {found['wall_seconds']:.0f} s")
        curves[contender.label] = curve_of(found)
    return curves


def curve_of(found: Mapping[str, Any]) -> Curve:
    """A curve from its plain form."""
    metrics = [name.removesuffix("_se") for name in found if name.endswith("_se")]
    tops = [name for name in metrics if name.startswith("top1")]

    def crossing(kind: str) -> dict[str, Any]:
        return {m: found[f"budget_to_95{m.removeprefix('top1')}{kind}"] for m in tops}

    return Curve(
        budget_fraction=tuple(found["budget_fraction"]),
        mean={m: np.array(found[m]) for m in metrics},
        se={m: np.array(found[f"{m}_se"]) for m in metrics},
        budget_to_95=crossing(""),
        budget_to_95_isotonic=crossing("_isotonic"),
        budget_to_95_range={m: (ends[0], ends[1]) for m, ends in crossing("_range").items()},
        seconds_per_decision=found["seconds_per_decision"],
    )


def h1_of(matrix: ScoreMatrix) -> str:
    """H1 for people."""
    h1 = describe(Truth.of(matrix))["h1"]
    return "tie for best" if h1 is None else f"{h1:,.0f}"


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [headers, ["---"] + ["--:"] * (len(headers) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent, or that it was not reached."""
    return "n.r." if share is None else f"{100 * share:.{digits}f}"


def say(text: str) -> None:
    """Progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def _rounded(found: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(found, float):
        return float(f"{found:.{DIGITS}g}")
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_rounded(value) for value in found]
    return found
