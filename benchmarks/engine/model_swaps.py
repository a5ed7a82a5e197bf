"""What turns save where the models of a study do not fit into the memory together.

    python -m benchmarks.engine.model_swaps [--pulls 1500] [--selector top-two] [--rounds 3]

Runs the arithmetic example (5 models x 12 prompts and temperatures) with memory for one or for two
of its models, once with turns (``loading_share: 0.1``) and once without (``null``), in every round
in this order and then in the other. The models are tiny and load in a fraction of a second;
``--load-seconds`` makes every load take as long as that of a real one. Printed are loads, seconds,
calls per second, and the winner: examples/arithmetic/README.md says what is best on the whole grid.

With ``--judge`` the largest model also judges every reply, out of the same memory. It is too
small for a judge, so it is asked for the sum, whatever the reply, and half of the score is the
rule's: which candidate wins is decided by the rule, and what is measured are the loads.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent import Options, Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.hf import provider as hf
from bestarm_agent.providers.hf.model_folder import ModelFolder
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.providers.hf.static_engine import StaticBatchEngine

JUDGE: dict[str, Json] = {
    "name": "ensemble",
    "members": [
        {"name": "numeric"},
        {
            "name": "rubric",
            "model": "hf/models/sum-llama-167k",
            "scale": [0, 198],
            "system": "",
            "template": "{{ inputs.a }}+{{ inputs.b }}{{ answer[:0] }}",
            "max_tokens": 6,
            "attempts": 1,
            "explain": False,
        },
    ],
    "quorum": 1,  # now and then the sum cannot be read
}
STUDY = Path(__file__).parents[2] / "examples" / "arithmetic" / "models.yaml"
MEMORY_GB = {"one": 0.00068, "two": 0.00114}  # the models take 0.08 to 0.67 MB


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the study.

    Attributes:
        loads: how often a model was loaded.
        seconds: from the first ask to the last answer.
        calls: how many calls were made.
        winner: the candidate's label.
    """

    loads: int
    seconds: float
    calls: int
    winner: str

    def line(self, name: str) -> str:
        """One line of the table."""
        speed = self.calls / self.seconds
        return (
            f"  {name:8} {self.loads:4} loads {self.seconds:7.1f} s {speed:7.1f} calls/s   "
            f"{self.winner}"
        )


class SlowlyLoaded(HfProvider):
    """The provider, with models that take some time more to load."""

    load_seconds = 0.0

    def _load(self, folder: ModelFolder) -> StaticBatchEngine:
        time.sleep(self.load_seconds)
        return super()._load(folder)


@contextmanager
def slow_loading(seconds: float) -> Iterator[None]:
    """Let every load take ``seconds`` longer."""
    original = hf.HfProvider
    SlowlyLoaded.load_seconds = seconds
    hf.HfProvider = SlowlyLoaded  # type: ignore[misc]
    try:
        yield
    finally:
        hf.HfProvider = original  # type: ignore[misc]


async def run(given: argparse.Namespace, *, turns: bool) -> Run:
    """Run the study once."""
    overrides: dict[str, Json] = {
        "budget": {"pulls": given.pulls},
        "selector": {"name": given.selector, "stop_when_separated": False, "seed": given.seed},
        "limits": {"in_flight": given.in_flight},
        "providers": {
            "hf": {
                "memory_gb": MEMORY_GB[given.room],
                "threads": 1,
                "loading_share": 0.1 if turns else None,
            }
        },
    }
    if given.judge:
        overrides["scorer"] = JUDGE
    with tempfile.TemporaryDirectory() as folder:
        options = Options(store=Path(folder) / "runs.sqlite", use_cache=False)
        async with Study.open(STUDY, overrides=overrides, options=options) as study:
            start = time.perf_counter()
            standing = await study.run()
            seconds = time.perf_counter() - start
            loads = sum(
                p.n_loads for p in study.parts.providers.in_use if isinstance(p, HfProvider)
            )
    if standing.best is None:
        raise RuntimeError("no candidate has a score")
    return Run(loads, seconds, standing.spent.calls, standing.best.candidate.label)


def compare(given: argparse.Namespace) -> tuple[float, float]:
    """Print every round; return the median ratios of loads and of seconds, free over turns."""
    loads, seconds = [], []
    for number in range(given.rounds):
        order = (True, False) if number % 2 else (False, True)
        runs = {turns: asyncio.run(run(given, turns=turns)) for turns in order}
        print(f"round {number + 1}")
        print(runs[False].line("free"))
        print(runs[True].line("turns"))
        loads.append(runs[False].loads / runs[True].loads)
        seconds.append(runs[False].seconds / runs[True].seconds)
    return statistics.median(loads), statistics.median(seconds)


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pulls", type=int, default=1500)
    parser.add_argument("--selector", default="top-two")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--room", choices=sorted(MEMORY_GB), default="one")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--judge", action="store_true", help="a model judges, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--at-least", type=float, default=1.0, help="exit with 1 below this speed-up"
    )
    return parser.parse_args()


def main() -> int:
    """Run the comparison; 0 if turns are no slower than asked."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    given = read_arguments()
    with slow_loading(given.load_seconds):
        loads, speed = compare(given)
    print(
        f"{given.selector}, {given.pulls} pulls{', judged' if given.judge else ''}, "
        f"{given.in_flight} in flight, room for "
        f"{given.room} of 5 models, loads {given.load_seconds:g} s slower: {loads:.1f} times "
        f"fewer loads, {speed:.2f} times as fast (at least {given.at_least:g})"
    )
    return 0 if speed >= given.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
