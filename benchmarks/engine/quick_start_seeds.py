"""How often the quick start finds the best: the full grid once, then many seeds at a tenth of it.

    python -m benchmarks.engine.quick_start_seeds --seeds 20

The seeds take their replies from the cache that the full run filled, so all of them face the same
30,000 scores.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bestarm_agent import Options, Standing, Study

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic" / "models.yaml"


async def run(store: Path, **overrides: object) -> Standing:
    """Run the example with some settings changed."""
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    async with Study.open(EXAMPLE, overrides=keys, options=Options(store=store)) as study:
        return await study.run()


async def compare(seeds: int, share: float, selector: str) -> None:
    """Print the full grid's ranking, then what every seed finds."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs.sqlite"
        full = await run(store, budget__share=1.0, selector__stop_when_separated=False)
        truth = {row.candidate.label: row.estimate or 0.0 for row in full.rows}
        top = max(truth.values())
        print(f"full grid: {full.told:,} pairs, {full.seconds:.0f} s")
        for row in full.rows:
            print(f"  {row.candidate.label:32} {row.estimate:.3f}")
        within = 0
        for seed in range(seeds):
            found = await run(
                store, budget__share=share, selector__seed=seed, selector__name=selector
            )
            assert found.best is not None
            regret = top - truth[found.best.candidate.label]
            within += regret <= 0.02
            print(f"seed {seed:2}: {found.best.candidate.label:32} regret {regret:.3f}")
        print(f"{selector} at {share:.0%}: within 0.02 of the best in {within} of {seeds} seeds")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--selector", default="auto")
    options = parser.parse_args()
    asyncio.run(compare(options.seeds, options.share, options.selector))


if __name__ == "__main__":
    main()
