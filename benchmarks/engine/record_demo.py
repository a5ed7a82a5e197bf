"""Record what the shipped models answer, for `bestarm-agent demo`.

First run the whole grid of the arithmetic example once (30,000 calls, some minutes), then turn its
store into the recording:

    bestarm-agent select examples/arithmetic/models.yaml --selector uniform
        --budget-share 1 --store full.sqlite
    python -m benchmarks.engine.record_demo full.sqlite
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from bestarm_agent.domain.events import Told
from bestarm_agent.domain.values import Reply
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store

RECORDING = Path(__file__).parents[2] / "src/bestarm_agent/cli/demo_files/answers.jsonl.gz"


async def read(store: Path) -> tuple[RunState, list[Told], dict[str, Reply]]:
    """Return the latest run of a store, and all replies by key."""
    async with await Store.connect(store, create=False) as opened:
        events = await opened.events_of("latest")
        replies = {key: reply async for key, reply in opened.replies()}
    return fold(events), [event for event in events if isinstance(event, Told)], replies


def rows(state: RunState, told: list[Told], replies: dict[str, Reply]) -> Iterator[str]:
    """Yield the recorded rows as JSON lines, in the order of candidates and examples."""
    found = {}
    for event in told:
        asked = state.ask(event.seq)
        if event.outcome.reply_key is not None:
            found[asked.candidate, asked.example] = replies[event.outcome.reply_key]
    for (candidate, example), reply in sorted(found.items()):
        row = {
            "candidate": state.candidates[candidate].label,
            "example": state.example_ids[example],
            "text": reply.text,
            "input_tokens": reply.usage.input,
            "output_tokens": reply.usage.output,
        }
        yield json.dumps(row, separators=(",", ":"), ensure_ascii=False)


def main() -> None:
    """Write the recording of a full grid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--out", type=Path, default=RECORDING)
    options = parser.parse_args()
    lines = list(rows(*asyncio.run(read(options.store))))
    data = "\n".join(lines) + "\n"
    options.out.write_bytes(gzip.compress(data.encode(), 9, mtime=0))
    print(f"{len(lines):,} rows, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
