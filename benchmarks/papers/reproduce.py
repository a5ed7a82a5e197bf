"""Reproduce the published figures on real score matrices.

    python -m benchmarks.papers.reproduce --data ../shared/data --out docs/reproduction

Writes the figures, and the tables into the marked places of the report's README. Finished studies
are kept under ``--work``, so an interrupted command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.papers.best_row import run_ablations, run_best
from benchmarks.papers.best_sets import run_sets
from benchmarks.papers.budget_table import run_table
from benchmarks.papers.stored_studies import Bench, say

PARTS: Mapping[str, Callable[[Bench], dict[str, str]]] = {
    "table": run_table,
    "figure3": run_best,
    "figure4": run_ablations,
    "sets": run_sets,
}


def main() -> None:
    """Run the parts asked for and put their tables into the report."""
    arguments = _arguments()
    bench = Bench(arguments.data, arguments.work, arguments.out, arguments.jobs, arguments.scale)
    bench.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.parts or PARTS:
        say(f"== {name}")
        fill_report(bench.out / "README.md", PARTS[name](bench))


def fill_report(report: Path, tables: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end -->``; make the file if absent.

    Raises:
        ValueError: the report has no such place.
    """
    text = report.read_text(encoding="utf-8") if report.exists() else _blank(tables)
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        found = place.search(text)
        if found is None:
            raise ValueError(f"{report} has no place <!-- {name} --> ... <!-- end -->")
        text = f"{text[: found.end(1)]}{table}\n{text[found.start(2) :]}"
    report.write_text(text, encoding="utf-8")


def _blank(tables: Mapping[str, str]) -> str:
    return "".join(f"<!-- {name} -->\n<!-- end -->\n\n" for name in tables)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the seeds")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all if none is named")
    return parser.parse_args()


if __name__ == "__main__":
    main()
