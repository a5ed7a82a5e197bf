"""CPU time of commands that do no work, as ratios to ``import typer, rich``.

    python -m benchmarks.cli.start_cost

Each runs in fresh interpreters, in turns, so that a busy machine slows all of them alike. The
help of a typer application with one command of its own shows what typer itself takes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

START = "import sys; sys.argv[0] = 'bestarm-agent'\nfrom bestarm_agent.cli.main import main; main()"
EMPTY = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
COMPLETION = {
    "_BESTARM_AGENT_COMPLETE": "complete_bash",
    "COMP_WORDS": "bestarm-agent sel",
    "COMP_CWORD": "1",
}
CASES: Mapping[str, tuple[list[str], Mapping[str, str]]] = {
    "import typer, rich": (["import typer, rich"], {}),
    "typer's own --help": ([EMPTY, "--help"], {}),
    "bestarm-agent --version": ([START, "--version"], {}),
    "bestarm-agent --help": ([START, "--help"], {}),
    "bestarm-agent select --help": ([START, "select", "--help"], {}),
    "completion": ([START], COMPLETION),
}
ROUNDS = 9


def cpu_seconds(arguments: list[str], variables: Mapping[str, str]) -> float:
    """Return the CPU seconds of one process, its interpreter's start included."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    """Print the median of each and its ratio to the first."""
    began = time.monotonic()
    rounds = [[cpu_seconds(*case) for case in CASES.values()] for _ in range(ROUNDS)]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    for name, seconds in zip(CASES, medians, strict=True):
        print(f"{seconds:6.3f} s  {seconds / medians[0]:5.2f}  {name}")
    print(f"{ROUNDS} rounds in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
