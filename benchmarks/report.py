"""What every reproduction shares: one cache of what was measured, one writer of reports.

A reproduction names its parts; each part measures through ``Bench.found``, which keeps results
under ``--work`` and measures nothing twice, and returns tables in Markdown. ``run`` prints these,
and puts them into the README beside the script, between ``<!-- name -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

_DIGITS = 6
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are and how much to run."""

    data: Path  # folder of the score matrices
    work: Path  # folder of what was measured
    jobs: int  # processes at once
    scale: float  # multiplies the number of seeds

    def seeds(self, usual: int) -> int:
        """Seeds to run where 1 means ``usual``."""
        return max(2, round(usual * self.scale))

    def found(self, key: Mapping[str, Any], measure: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
        """Return what is kept under a key, which begins with its part; else measure and keep it."""
        [found] = self.all_found({0: (key, measure)}).values()
        return found

    def all_found(
        self, tasks: Mapping[_Name, tuple[Mapping[str, Any], Callable[[], Any]]]
    ) -> dict[_Name, Any]:
        """Return what is kept under each key; measure the rest, several in processes."""
        kept = {name: self._kept(key) for name, (key, _) in tasks.items()}
        found = {name: value for name, value in kept.items() if value is not None}
        left = {name: task for name, task in tasks.items() if name not in found}
        if self.jobs == 1 or len(left) < 2:
            for name, (key, measure) in left.items():
                found[name] = self._keep(key, measure())
        else:
            with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
                waiting = {pool.submit(measure): name for name, (_, measure) in left.items()}
                for task in as_completed(waiting):
                    name = waiting[task]
                    found[name] = self._keep(left[name][0], task.result())
        return {name: found[name] for name in tasks}

    def of_matrices(
        self, part: str, measure: Callable[[Path, str, int], Any], titles: Iterable[str], n: int
    ) -> dict[tuple[str, int], Any]:
        """Measure every matrix of these titles with ``n`` seeds: ``measure(data, title, seed)``."""
        seeds = range(self.seeds(n))
        return self.all_found(
            {
                (title, seed): (
                    {"part": part, "matrix": title, "seed": seed},
                    partial(measure, self.data, title, seed),
                )
                for title in titles
                for seed in seeds
            }
        )

    def _kept(self, key: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        path = self._path(key)
        return json.loads(path.read_text(encoding="utf-8"))["found"] if path.exists() else None

    def _keep(self, key: Mapping[str, Any], found: Any) -> Any:  # noqa: ANN401 - JSON
        """Keep a result with its key; return it as it will be read."""
        self.work.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        text = json.dumps({"key": key, "found": _rounded(found)}, indent=1)
        path.with_suffix(".part").write_text(text, encoding="utf-8")
        path.with_suffix(".part").replace(path)
        say(", ".join(str(value) for value in key.values()))
        return json.loads(text)["found"]

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        return self.work / f"{next(iter(key.values()))}-{digest}.json"


Part: TypeAlias = Callable[[Bench], Mapping[str, str]]  # tables by the name of their place


def run(parts: Mapping[str, Part], readme: Path, description: str | None) -> None:
    """Run the parts named on the command line, or all; print their tables and write the README."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the seeds")
    parser.add_argument("--write", action="store_true", help=f"fill the tables of {readme.name}")
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="all if none is named")
    options = parser.parse_args()
    bench = Bench(options.data, options.work, options.jobs, options.scale)
    for name in options.parts or parts:
        began = time.perf_counter()
        tables = parts[name](bench)
        say(f"== {name}: {time.perf_counter() - began:.0f} s")
        for place, table in tables.items():
            print(f"\n{place}\n\n{table}", flush=True)
        if options.write:
            fill(readme, tables)


def fill(readme: Path, tables: Mapping[str, str]) -> None:
    """Put tables into their places in a README.

    Raises:
        ValueError: there is no such place.
    """
    text = readme.read_text(encoding="utf-8")
    for place, table in tables.items():
        before, mark, rest = text.partition(f"<!-- {place} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not (mark and end):
            raise ValueError(f"{readme} has no place <!-- {place} --> ... <!-- end -->")
        text = f"{before}{mark}{table}\n{end}{after}"
    readme.write_text(text, encoding="utf-8")


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
        return float(f"{found:.{_DIGITS}g}")
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_rounded(value) for value in found]
    return found
