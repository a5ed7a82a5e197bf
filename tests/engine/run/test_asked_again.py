"""A run asked again, its replies from the cache: it takes the same course, and decides alike."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.study import Study
from tests.support.api_studies import KEYS
from tests.support.fake_api import FakeApi
from tests.support.fake_api.answers import add
from tests.support.fake_api.calls import Call, chance
from tests.support.studies import events_of, study_file

MODELS = {"alpha": 0.62, "beta": 0.8, "gamma": 0.7}
PROMPTS = {"plain": 0.0, "steps": 0.1, "only": 0.06, "poor": -0.2}
PRICE = {"input": 1, "output": 5}


def answer(seed: int) -> Any:  # noqa: ANN401
    """Say what models say: right or wrong by (seed, model, question, prompt)."""

    def said(call: Call) -> str:
        prompt = call.question.split(":")[0]
        share = MODELS[call.model] + PROMPTS[prompt]
        right = add(call.question)
        # what is hard for one is hard for the others, mostly
        hard = 0.6 * chance(seed, call.question.split(":")[1])
        is_right = hard + 0.4 * chance(seed, call.model, call.question) < 0.15 + 0.7 * share
        return right if is_right else f"{right}1"

    return said


def write(folder: Path, url: str, **more: Any) -> Path:  # noqa: ANN401
    sums = [{"a": 17 + i, "b": 5 + 3 * i, "answer": str(22 + 4 * i)} for i in range(60)]
    prompts = [{name: name + ": {{ a }}+{{ b }}"} for name in PROMPTS]
    study = {
        "models": [f"openai/{name}" for name in MODELS],
        "prompts": prompts,
        "params": {"max_tokens": 16},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "providers": {"openai": {"base_url": url, "key": "OPENAI_API_KEY", "price": PRICE}},
        **more,
    }
    return study_file(folder, {"sums": sums}, **study)


def course(path: Path) -> list[tuple[int, ...]]:
    """Return the asks and outcomes of the latest run in their order."""
    course = list[tuple[int, ...]]()
    for event in events_of(path):
        if isinstance(event, Asked):
            course.append((event.seq, event.candidate, event.example))
        elif isinstance(event, Told):
            course.append((event.seq,))
    return course


async def run_twice(folder: Path, seed: int, **more: Any) -> tuple[Standing, Standing, int]:  # noqa: ANN401
    """Run a study against a server, then again; return both, and the calls of the second."""
    n = iter(range(10_000))
    async with FakeApi(answer=answer(seed), key=KEYS["OPENAI_API_KEY"]) as api:
        api.latency = lambda _call: 0.03 * chance(seed, "wait", next(n)) ** 3
        path = write(folder, api.openai_url, **more)
        standings = []
        for _ in range(2):
            before = len(api.received)
            async with Study.open(path) as study:
                standings.append(await study.run())
        return standings[0], standings[1], len(api.received) - before


@pytest.mark.parametrize("seed", range(5))
def test_a_run_and_its_repetition_decide_alike(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    selector = {"name": "auto", "seed": seed}
    first, again, n_calls = asyncio.run(run_twice(tmp_path, seed, selector=selector))
    assert n_calls == 0
    assert again.decision == first.decision
