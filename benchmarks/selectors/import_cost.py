"""CPU time of imports as ratios to ``import numpy, scipy.special``, which every rule needs.

    python -m benchmarks.selectors.import_cost

Each import runs in fresh interpreters, in turns, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

BASE = "import numpy, scipy.special"
IMPORTS = (
    BASE,
    "import bestarm_agent",
    "import bestarm_agent.selectors",
    "from bestarm_agent.selectors import make_selector, Problem\n"
    "make_selector('auto', Problem(3, 10))",
    "from bestarm_agent import Study",
)
ROUNDS = 9


def cpu_seconds(code: str) -> float:
    """Return the CPU seconds of one import in a fresh interpreter."""
    code = f"import time\nbegan = time.process_time()\n{code}\nprint(time.process_time() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return float(done.stdout)


def main() -> None:
    """Print the median of each import and its ratio to the base."""
    rounds = [[cpu_seconds(code) for code in IMPORTS] for _ in range(ROUNDS)]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    for code, seconds in zip(IMPORTS, medians, strict=True):
        label = code.replace("\n", "; ")
        print(f"{seconds:6.3f} s  {seconds / medians[0]:5.2f}  {label}")


if __name__ == "__main__":
    main()
