"""Two runs over one store, faulty servers, kills: nothing lost, bought twice or spent unseen.

    python -m benchmarks.engine.storm --calls 20000 --kills 60

Two processes ask the same six models and the same judge about the same examples. Two fake servers,
of OpenAI's protocol and of Anthropic's, fail a share of all attempts in every way that may pass,
and repeat the keys that they are sent. The processes are killed in turn, by SIGKILL or a double
Ctrl-C, and resumed. At the end the requests that the servers counted are compared with what the
runs recorded, and all files are searched for the keys. Ends with 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.kill_storm import SHARES, Aftermath, Storm, weather

_REQUESTS_OF_PAIRS = 1.6  # of all pairs of one run: judgements, and attempts that fail


def show(after: Aftermath) -> None:
    """Print what the storm did and what it left."""
    storm, faults = after.storm, after.faults()
    recorded = [spend.calls for spend in after.recorded()]
    lost = sorted(after.bought_again())
    print(
        f"{len(after.received):,} requests for 2 x {storm.pairs:,} pairs in {after.seconds:.0f} s"
    )
    print(f"faults: {faults.total():,} of {len(faults)} kinds")
    print(f"processes ended: {len(after.killed_at)}")
    print(f"recorded calls: {recorded[0]:,} + {recorded[1]:,}, caps {storm.cap:,} each")
    print(f"replies lost to a kill and bought again: {len(lost)}")
    if lost:
        print(
            f"  seconds from answer to kill: median {lost[len(lost) // 2]:.3f}, most {lost[-1]:.3f}"
        )
    failed = Counter(one.failure.message for one in after.not_scored() if one.failure)
    print(f"pairs not told exactly once: {after.untold()}; without a score: {failed.total()}")
    for message, count in failed.most_common():
        print(f"  {count} x {message}")
    print(f"files with a key: {after.leaks() or 'none'}")


def main() -> None:
    """Run a storm and check what it left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="about as many requests")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--no-429", action="store_true", help="leave rate limits out")
    options = parser.parse_args()
    n_examples = max(1, round(options.calls / len(SHARES) / _REQUESTS_OF_PAIRS))
    storm = Storm(
        n_examples, options.kills, options.share, seed=options.seed, refuses=not options.no_429
    )
    with tempfile.TemporaryDirectory() as folder:
        after = weather(storm, Path(folder))
        show(after)
        broken = after.broken_promises()
    sys.exit("\n".join(["broken:", *broken]) if broken else 0)


if __name__ == "__main__":
    main()
