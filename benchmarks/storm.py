"""Ten thousand calls through a storm of faults: nothing lost, told twice or spent unseen.

    python -m benchmarks.storm --examples 1700 --share 0.25

Two fake servers, of OpenAI's protocol and of Anthropic's, fail a share of all attempts in every way
that may pass: refusals with and without a time to wait, errors, dropped connections, responses that
are not what they should be. The same study is run without faults for comparison. Waits pass thirty
times faster than they would.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from bestarm_agent.domain.events import Told
from bestarm_agent.domain.outcome import Failed
from bestarm_agent.domain.spend import Spend, usd
from tests.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS
from tests.fake_api import Script, storm
from tests.fake_api.faults import calm
from tests.test_storm import Run, means, run_under, winner


def timed(script: Script, folder: Path, examples: int) -> tuple[Run, float]:
    """Run the study under a script of faults; return what it left behind, and the seconds."""
    started = time.perf_counter()
    run = run_under(script, folder, n_examples=examples)
    return run, time.perf_counter() - started


def key_found(folder: Path) -> bool:
    """Whether any file holds a key."""
    keys = [key.encode() for key in KEYS.values()]
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return any(key in content for content in files for key in keys)


def show(name: str, run: Run, seconds: float, pairs: int) -> None:
    """Print what a run did."""
    told = Counter(event.seq for event in run.events if isinstance(event, Told))
    once = sorted(told) == list(range(pairs)) and set(told.values()) == {1}
    outcomes = [event.outcome for event in run.events if isinstance(event, Told)]
    lost = Counter(outcome.kind.value for outcome in outcomes if isinstance(outcome, Failed))
    books = run.balance
    exact = (
        books.spent.calls == run.requests
        and books.reserved_ever == books.settled + books.refunded
        and books.overrun == books.outstanding == Spend()
    )
    print(f"{name}: {run.requests:,} requests for {pairs:,} pairs in {seconds:.0f} s")
    print(f"  faults: {sum(run.faults.values()):,} of {len(run.faults)} kinds")
    print(f"  every pair told exactly once: {once}; books exact: {exact}")
    print(f"  not measurable: {dict(lost) or 'none'}")
    print(f"  booked: ${usd(books.spent.usd_nanos):.4f}; best: {winner(run.standing)}")


def main() -> None:
    """Run both and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1700)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    os.environ.update(KEYS)
    pairs = options.examples * (len(OPENAI_MODELS) + len(ANTHROPIC_MODELS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faults = storm(options.share, seed=options.seed)
        stormy = timed(faults, folder / "stormy", options.examples)
        quiet = timed(calm, folder / "quiet", options.examples)
        show("storm", *stormy, pairs)
        show("calm", *quiet, pairs)
        equal = means(stormy[0].standing) == means(quiet[0].standing)
        print(f"all scores equal: {equal}; a key in any file: {key_found(folder)}")


if __name__ == "__main__":
    main()
