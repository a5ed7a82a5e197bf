"""Dollars with and without prompt caches, by the published rules of two providers.

    python -m benchmarks.engine.prompt_caches

20 prompts, each with 3,000 tokens of its own before the first field, are asked 500 examples each,
64 calls at once, of the fake server of the tests. It keeps beginnings of 1,024 tokens and more for
five minutes from the end of the call that wrote them: OpenAI's in steps of 128 tokens, Anthropic's
where `cache_control` says so. Prices are those of the table. Without: `cache_from: 0`, so that
nothing is marked and no call waits for another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent import Standing, Study

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.fake_api import Call, FakeApi, FakeModel, in_thread

TOKENS, BYTES_PER_TOKEN = 3000, 4
RULE = "Work out the digits one by one, and carry what is above nine. "


@dataclass(frozen=True)
class Scene:
    """A model, and how it is asked."""

    model: str  # provider and model
    what: str
    is_used: bool = True
    field_first: bool = False

    def prompt(self, number: int) -> str:
        """Return the template of a prompt: constant text, and what is asked."""
        text = f"Version {number:02}. {RULE * 200}"[: TOKENS * BYTES_PER_TOKEN]
        asked = "{{ a }}+{{ b }}"
        return f"{asked} is asked.\n{text}\n{asked}" if self.field_first else f"{text}\n{asked}"


SCENES = (
    Scene("anthropic/claude-sonnet-4-5", "no marks", is_used=False),
    Scene("anthropic/claude-sonnet-4-5", "marked, one call first"),
    Scene("openai/gpt-5", "no call waits", is_used=False),
    Scene("openai/gpt-5", "one call first"),
    Scene("openai/gpt-5", "the question first", field_first=True),
)


def write_study(folder: Path, api: FakeApi, scene: Scene, prompts: int, examples: int) -> Path:
    """Write the study of a scene; all pairs are asked."""
    provider = scene.model.partition("/")[0]
    rows = [{"a": i, "b": 3 * i, "answer": str(4 * i)} for i in range(examples)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {
        "base_url": api.openai_url if provider == "openai" else api.url,
        "vendor": provider,
        "key": "none",
        **({} if scene.is_used else {"cache_from": 0}),
    }
    study = {
        "models": [scene.model],
        "prompts": [{f"p{i}": scene.prompt(i)} for i in range(prompts)],
        "params": {"max_tokens": 64},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "selector": {"name": "uniform", "stop_when_separated": False},
        "providers": {provider: options},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


async def run(path: Path) -> Standing:
    """Run a study to its end."""
    async with Study.open(path) as study:
        return await study.run()


def answer(call: Call) -> str:
    """Say the sum that is asked."""
    return str(sum(int(one) for one in call.question.splitlines()[-1].split("+")))


def rows(prompts: int, examples: int, latency: float) -> Iterator[tuple[str, ...]]:
    """Play the scenes; yield a row of the table for each."""
    for scene in SCENES:
        name = scene.model.partition("/")[2]
        models = {name: FakeModel(context=100_000, cache_from=1024)}
        api = FakeApi(answer, models=models, key=None, latency=lambda _call: latency)
        with tempfile.TemporaryDirectory() as folder, in_thread(api):
            began = time.monotonic()
            standing = asyncio.run(run(write_study(Path(folder), api, scene, prompts, examples)))
            seconds = time.monotonic() - began
        dollars, read = f"${standing.spent.usd_nanos / 1e9:.2f}", f"{standing.cached_tokens:,}"
        yield scene.model, scene.what, dollars, read, f"{seconds:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds that a call takes")
    options = parser.parse_args()
    print("| model | | dollars | tokens read from caches | seconds |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in rows(options.prompts, options.examples, options.latency):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
