"""Studies over fake API servers: additions, asked of models of known quality."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bestarm_agent.engine.limits.clock import Clock
from tests.support.fake_api import FakeApi
from tests.support.studies import study_file

KEYS = {"OPENAI_API_KEY": "key-of-openai-5d81c2", "ANTHROPIC_API_KEY": "key-of-anthropic-77ab0e"}
OPENAI_MODELS = {"alpha": 0.55, "beta": 0.8, "gamma": 0.65}
ANTHROPIC_MODELS = {"delta": 0.6, "epsilon": 0.95, "zeta": 0.5}
_PRICE = {"input": 1, "output": 5}


class FastClock(Clock):
    """A clock whose time runs faster than the machine's, for waits that would be long."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        await super().sleep(seconds / self._speed, unless)


def write_api_study(
    folder: Path,
    openai_url: str,
    anthropic_url: str,
    *,
    n_examples: int,
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a study of six models behind two servers; return the path of its file."""
    rows = [{"id": f"e{i}", "a": 17 + i, "b": 5 + 3 * i} for i in range(n_examples)]
    sums = [{**row, "answer": str(22 + 4 * i)} for i, row in enumerate(rows)]
    models = [f"openai/{name}" for name in OPENAI_MODELS]
    models += [f"anthropic/{name}" for name in ANTHROPIC_MODELS]
    study = {
        "name": "additions",
        "models": models,
        "prompts": [{"chat": [{"role": "user", "content": "{{ a }}+{{ b }}"}]}],
        "params": {"max_tokens": 16},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "selector": {"name": "ucb-e", "stop_when_separated": False},
        "providers": {
            "openai": {"base_url": openai_url, "key": "OPENAI_API_KEY", "price": _PRICE},
            "anthropic": {"base_url": anthropic_url, "key": "ANTHROPIC_API_KEY", "price": _PRICE},
        },
        **(changes or {}),
    }
    return study_file(folder, {"sums": sums}, **study)


def study_of(folder: Path, one: FakeApi, other: FakeApi, **more: Any) -> Path:  # noqa: ANN401
    """Write a study of the models behind two running servers."""
    return write_api_study(folder, one.openai_url, other.url, **more)
