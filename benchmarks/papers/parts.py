"""Reproductions in parts: each part is measured once, kept as JSON, and put into the report."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

# Measures one part: from the folder of the score matrices, with so many repetitions.
Part: TypeAlias = Callable[[Path, int], dict[str, Any]]
Parts: TypeAlias = Mapping[str, tuple[Part, int]]  # each with its repetitions in the report


def reproduce(
    name: str,
    parts: Parts,
    write_report: Callable[[Path, Mapping[str, Any]], None],
    description: str | None,
) -> None:
    """Measure the parts asked for on the command line that are not kept yet; write the report.

    Args:
        name: what the files of kept parts begin with.
        parts: what there is to measure.
        write_report: writes what all kept parts found into a folder.
        description: of the program, for ``--help``.
    """
    arguments = _arguments(parts, description)
    arguments.work.mkdir(parents=True, exist_ok=True)
    files = {part: arguments.work / f"{name}_{part}.json" for part in parts}
    for part in arguments.parts:
        if not files[part].exists():
            measure, repetitions = parts[part]
            began = time.process_time()
            found = measure(arguments.data, arguments.repetitions or repetitions)
            seconds = time.process_time() - began
            files[part].write_text(json.dumps({"seconds": seconds, **found}), encoding="utf-8")
            print(f"{part}: {seconds:.0f} s of CPU", flush=True)
    kept = {part: file for part, file in files.items() if file.exists()}
    results = {part: json.loads(file.read_text(encoding="utf-8")) for part, file in kept.items()}
    write_report(arguments.out, results)


def _arguments(parts: Parts, description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of the score matrices")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=list(parts))
    parser.add_argument("--repetitions", type=int, help="of every part; else as reported")
    return parser.parse_args()
