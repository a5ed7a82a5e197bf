"""Rate limits by the count of the server that enforces them, in real time over real sockets.

    python -m benchmarks.engine.rate_limits known --minutes 3

A whole study (four prompts, one model of the `openai` provider, dollars counted, everything stored)
runs against the fake server of the tests, which keeps its own count and turns away what is above:

- known: the study names the limits, 3,000 requests and 200,000 tokens a minute;
- told: the study names none, the server's answers do;
- rate: nobody names them: no headers, a bucket of ten seconds;
- silent: the same, and refusals do not tell when to come back either;
- second, minute, sliding, fixed: as rate, and the server counts by a bucket of a second or of a
  minute, in the last 60 s, or in minutes of its own clock;
- capacity: nobody names it: 60 calls at once, no headers;
- chance0, chance1, chance5, chance20: no limit, and so many percent are refused at any rate.

The first minute is left out of what is called steady.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bestarm_agent import Study

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.fake_api import FakeApi, FakeModel, Rates, in_thread, quality

MODEL, RPM, TPM, CAPACITY = "m", 3000, 200_000, 60
EXAMPLES = 4000
MINUTE = 60.0
PADDING = "Think of the digits one by one, carry what is above nine, and check the sum. " * 3

SCENES: dict[str, tuple[Rates, dict[str, Any]]] = {
    "known": (Rates(rpm=RPM, tpm=TPM), {"rpm": RPM, "tpm": TPM}),
    "told": (Rates(rpm=RPM, tpm=TPM), {}),
    "rate": (Rates(rpm=RPM, burst_seconds=10, headers=False), {}),
    "silent": (Rates(rpm=RPM, burst_seconds=10, headers=False, retry_after=False), {}),
    "second": (Rates(rpm=RPM, burst_seconds=1, headers=False), {}),
    "minute": (Rates(rpm=RPM, headers=False), {}),
    "sliding": (Rates(rpm=RPM, headers=False, minute="sliding"), {}),
    "fixed": (Rates(rpm=RPM, headers=False, minute="fixed"), {}),
    "capacity": (Rates(capacity=CAPACITY, headers=False), {}),
    **{
        f"chance{share}": (Rates(chance=share / 100, headers=False, retry_after=False), {})
        for share in (0, 1, 5, 20)
    },
}


@dataclass
class Watch:
    """What the server's counter was seen at, twice a second: (time, let in, tokens, inside)."""

    api: FakeApi
    seen: list[tuple[float, int, float, int]] = field(default_factory=list)

    async def look(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            limiter = self.api.limiter(MODEL)
            self.seen.append((loop.time(), limiter.granted, limiter.tokens, limiter.inside))
            await asyncio.sleep(0.5)


def write_study(
    folder: Path, url: str, limits: dict[str, Any], minutes: float, in_flight: int
) -> Path:
    """Write a study of four prompts."""
    rows = [{"id": f"e{i}", "a": 17 + i, "b": 5 + 3 * i} for i in range(EXAMPLES)]
    lines = [json.dumps({**row, "answer": str(row["a"] + row["b"])}) for row in rows]  # type: ignore[operator]
    (folder / "sums.jsonl").write_text("\n".join(lines) + "\n")
    prompts = [f"{PADDING}{style} {{{{ a }}}}+{{{{ b }}}}" for style in ("Add", "Sum", "Say", "Of")]
    provider = {"base_url": url, "key": "none", "price": {"input": 1, "output": 5}}
    study = {
        "name": "rate limits",
        "models": [f"openai/{MODEL}"],
        "prompts": [
            {"name": f"p{i}", "messages": [{"role": "user", "content": prompt}]}
            for i, prompt in enumerate(prompts)
        ],
        "params": {"max_tokens": 64},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "selector": {"name": "ucb-e", "stop_when_separated": False},
        "budget": {"minutes": minutes, "usd": 50},
        "limits": {"in_flight": in_flight, "providers": {"openai": limits} if limits else {}},
        "providers": {"openai": provider},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


async def run(path: Path, watch: Watch) -> str:
    """Run the study to its end; tell how it ended."""
    async with Study.open(path) as study:
        looking = asyncio.create_task(watch.look())
        standing = await study.run()
        looking.cancel()
        return f"{standing.told} pairs told, ended by {standing.end}"


def most_in_a_minute(times: Sequence[float]) -> int:
    """The highest number of ``times`` in any 60 s."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - MINUTE:
            first += 1
        most = max(most, last - first + 1)
    return most


def steady(watch: Watch, minutes: float, rpm: float) -> Iterator[str]:
    """What the server saw after the first minute."""
    begin = watch.seen[0][0] + MINUTE
    end = watch.seen[0][0] + minutes * MINUTE
    late = [row for row in watch.seen if begin <= row[0] <= end]
    span = (late[-1][0] - late[0][0]) / MINUTE
    requests = (late[-1][1] - late[0][1]) / span
    tokens = (late[-1][2] - late[0][2]) / span
    yield f"steady: {requests:.0f} requests a minute ({requests / rpm:.1%} of {rpm:.0f})"
    yield f"steady: {tokens:.0f} tokens a minute ({tokens / TPM:.1%} of {TPM})"
    inside = statistics.fmean(row[3] for row in late)
    yield f"steady: {inside:.1f} calls inside on average"


def main() -> None:
    """Run one scene and print what the server counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds that a call takes")
    parser.add_argument("--rpm", type=float, default=RPM, help="requests a minute, where limited")
    parser.add_argument("--in-flight", type=int, default=400)
    options = parser.parse_args()
    rates, limits = SCENES[options.scene]
    if rates.rpm is not None:
        rates = replace(rates, rpm=options.rpm)
    api = FakeApi(
        answer=quality({MODEL: 0.8}),
        models={MODEL: FakeModel(rates=rates)},
        key=None,
        latency=lambda _call: options.latency,
    )
    with tempfile.TemporaryDirectory() as name, in_thread(api):
        path = write_study(Path(name), api.openai_url, limits, options.minutes, options.in_flight)
        watch = Watch(api)
        ended = asyncio.run(run(path, watch))
    granted = [note.at for note in api.received if note.status == 200]
    refused = [note.at for note in api.received if note.status == 429]
    late = [at for at in refused if at > api.received[0].at + MINUTE]
    print(f"{options.scene}: {ended}")
    print(f"{len(granted)} requests answered, {len(refused)} refused, {len(late)} of them later")
    print(f"refused: {len(refused) / (len(granted) + len(refused)):.2%}")
    print(f"violations by resource: {dict(api.limiter(MODEL).violations)}")
    print(f"most in any 60 s: {most_in_a_minute(granted)}")
    print(f"answered: {len(granted) / options.minutes:.0f} a minute")
    if options.minutes > 1:
        print("\n".join(steady(watch, options.minutes, options.rpm)))


if __name__ == "__main__":
    main()
