"""How much of a bare ``generate`` loop's speed the ``hf`` provider keeps.

    python -m benchmarks.engine.local_throughput [--model DIR] [--rounds 3]

Both sides answer the same prompts (4 templates x 500 examples) with the same model in this process,
on the same number of torch threads, one after the other in every round:

- bare: prompts sorted by length, tokenized and padded on the left, ``model.generate`` in batches;
- provider: the same requests through ``HfProvider.generate``, a fixed number in flight.

The replies must be equal. Figures are examples per second; the last line is their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.providers.hf.options import HfOptions
from bestarm_agent.providers.hf.provider import HfProvider

MODELS = Path(__file__).parents[2] / "examples" / "arithmetic" / "models"
TEMPLATES = ("{a}+{b}=", "{a} + {b} =", "Q: {a}+{b}\nA:", None)
N_EXAMPLES = 500


@dataclass(frozen=True, slots=True)
class Settings:
    """What both sides have in common.

    Attributes:
        model: folder of the model.
        max_batch: prompts generated together.
        max_tokens: longest reply.
        temperature: 0 for greedy; the bare loop samples with torch's own stream.
        in_flight: calls that the provider holds at once.
        threads: torch threads.
    """

    model: Path
    max_batch: int
    max_tokens: int
    temperature: float
    in_flight: int
    threads: int


def build_requests(settings: Settings) -> list[Request]:
    """The same examples in every template; None stands for a chat message."""
    params = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    requests = []
    for template in TEMPLATES:
        for i in range(N_EXAMPLES):
            text = (template or "{a}+{b}").format(a=i % 100, b=(37 * i + i // 100) % 100)
            requests.append(
                Request(
                    model=settings.model.name,
                    text=None if template is None else text,
                    messages=(Message("user", text),) if template is None else (),
                    params=params,
                )
            )
    return requests


class BareLoop:
    """What one writes by hand with transformers."""

    def __init__(self, settings: Settings) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._tokenizer: Any = AutoTokenizer.from_pretrained(settings.model, padding_side="left")
        loaded: Any = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
        self._model = loaded.eval()

    def run(self, requests: Sequence[Request]) -> list[str]:
        """Answer all requests, in their order."""
        rendered = [self._render(request) for request in requests]
        order = sorted(range(len(requests)), key=lambda i: len(rendered[i][0]))
        texts: dict[int, str] = {}
        for start in range(0, len(order), self._settings.max_batch):
            rows = order[start : start + self._settings.max_batch]
            texts.update(zip(rows, self._batch([rendered[i] for i in rows]), strict=True))
        return [texts[i] for i in range(len(requests))]

    def _render(self, request: Request) -> tuple[str, bool]:
        if request.text is not None:
            return request.text, True
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return str(text), False

    def _batch(self, rendered: Sequence[tuple[str, bool]]) -> list[str]:
        encoded = [
            self._tokenizer(text, add_special_tokens=special)["input_ids"]
            for text, special in rendered
        ]
        padded = self._tokenizer.pad({"input_ids": encoded}, return_tensors="pt")
        sampling: dict[str, Any] = {"do_sample": False}
        if self._settings.temperature > 0:
            sampling = {"do_sample": True, "temperature": self._settings.temperature, "top_k": 0}
        output = self._model.generate(
            **padded,
            max_new_tokens=self._settings.max_tokens,
            pad_token_id=self._tokenizer.pad_token_id,
            **sampling,
        )
        generated = output[:, padded["input_ids"].shape[1] :]
        return list(self._tokenizer.batch_decode(generated, skip_special_tokens=True))


async def run_provider(
    provider: HfProvider, requests: Sequence[Request], in_flight: int
) -> list[Reply]:
    """Answer all requests, in their order, ``in_flight`` at a time."""
    replies: dict[int, Reply] = {}

    async def work(waiting: Iterator[tuple[int, Request]]) -> None:
        for index, request in waiting:
            replies[index] = await provider.generate(request)

    waiting = iter(enumerate(requests))
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work(waiting))
    return [replies[i] for i in range(len(requests))]


async def compare(settings: Settings, rounds: int) -> float:
    """Print both speeds for every round and return the median of their ratios."""
    requests = build_requests(settings)
    options = HfOptions(max_batch=settings.max_batch, threads=settings.threads)
    ratios = []
    async with HfProvider("hf", options, settings.model.parent) as provider:
        bare = BareLoop(settings)
        bare.run(requests)  # warm up: libraries, allocator, garbage collector
        await run_provider(provider, requests, settings.in_flight)
        for number in range(rounds):
            start = time.perf_counter()
            texts = bare.run(requests)
            between = time.perf_counter()
            replies = await run_provider(provider, requests, settings.in_flight)
            end = time.perf_counter()
            if settings.temperature == 0 and texts != [reply.text for reply in replies]:
                raise RuntimeError("the replies of the two sides differ")
            speeds = len(requests) / (between - start), len(requests) / (end - between)
            ratios.append(speeds[1] / speeds[0])
            print(
                f"round {number + 1}: bare {speeds[0]:7.0f} examples/s   "
                f"provider {speeds[1]:7.0f} examples/s   ratio {ratios[-1]:.2f}"
            )
    return statistics.median(ratios)


def read_arguments() -> tuple[Settings, int, float]:
    """Parse the command line: settings, rounds, and the least ratio that passes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=MODELS / "sum-llama-113k")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-batch", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--in-flight", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.7, help="exit with 1 below this ratio")
    given = parser.parse_args()
    settings = Settings(
        model=given.model.resolve(),
        max_batch=given.max_batch,
        max_tokens=given.max_tokens,
        temperature=given.temperature,
        in_flight=given.in_flight,
        threads=given.threads,
    )
    return settings, given.rounds, given.at_least


def main() -> int:
    """Run the comparison; 0 if the provider keeps enough of the speed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    settings, rounds, at_least = read_arguments()
    ratio = asyncio.run(compare(settings, rounds))
    print(
        f"{settings.model.name}, {len(TEMPLATES)} x {N_EXAMPLES} prompts, "
        f"{settings.in_flight} in flight, batches of {settings.max_batch}, "
        f"{settings.threads} thread(s): median ratio {ratio:.2f} (at least {at_least:.2f})"
    )
    return 0 if ratio >= at_least else 1


if __name__ == "__main__":
    sys.exit(main())
