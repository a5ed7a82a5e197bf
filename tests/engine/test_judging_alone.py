"""New runs and resumed ones pay for nothing that was bought before: answers, or grades."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.parts import Options
from tests.support.fake_api import Call, FakeApi, Fault
from tests.support.judge_answers import mark_in
from tests.support.studies import store_of

N = 6
PRICE = {"price": {"input": 1.0, "output": 2.0}}


def write_study(folder: Path, api: FakeApi, *, question: str = "How good?") -> Path:
    examples = [{"id": f"e{j}", "q": f"question {j}"} for j in range(N)]
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)))
    study = {
        "models": [{"model": f"openai/{name}", "options": PRICE} for name in "ab"],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "examples.jsonl",
        "scorer": {
            "name": "rubric",
            "model": "openai/judge",
            "rubric": question,
            "model_options": PRICE,
        },
        "providers": {"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
        "selector": {"name": "uniform", "stop_when_separated": False},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def answered(call: Call) -> str:
    if call.model != "judge":
        return f"answer of {call.model} to {call.question}"
    return json.dumps({"mark": mark_in(call.prompt), "explanation": "so", "verdict": 7})


async def run(path: Path) -> Standing:
    async with Study.open(path) as study:
        return await study.run()


def asked(api: FakeApi, since: int = 0) -> Counter[str]:
    return Counter(str(received.body["model"]) for received in api.received[since:])


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")


@pytest.mark.slow
def test_a_new_run_with_a_changed_judge_asks_only_the_judge(tmp_path: Path) -> None:
    async def scene() -> tuple[Counter[str], Counter[str], Standing]:
        async with FakeApi(answer=answered) as api:
            await run(write_study(tmp_path, api))
            first = asked(api)
            standing = await run(write_study(tmp_path, api, question="How short?"))
            return first, asked(api, first.total()), standing

    first, second, standing = asyncio.run(scene())
    assert first == {"a": N, "b": N, "judge": 2 * N}
    assert second == {"judge": 2 * N}
    assert standing.spent.calls == 2 * N
    assert standing.told == 2 * N


@pytest.mark.parametrize(
    "edit",
    [
        {"prompts": [{"p": "{{ q }}"}, {"other": "Please: {{ q }}"}]},
        {"prompts": [{"renamed": "{{ q }}"}, {"other": "Please: {{ q }}"}]},
        {"prompts": [{"p": "Please: {{ q }}"}]},
        {
            "prompts": [{"p": "{{ q }}"}, {"p2": "Please: {{ q }}"}],
            "selector": {"name": "uniform", "seed": 7},
            "slices": {"by": ["id"]},
        },
    ],
    ids=["a prompt more", "renamed", "the text changed", "other settings too"],
)
def test_an_edited_study_that_is_selected_again_pays_for_the_new_pairs_alone(
    tmp_path: Path, edit: dict[str, Any]
) -> None:
    """The loop of a prompt's author: edit, select, look, edit, select ... in one store."""

    async def scene() -> tuple[Counter[str], Counter[str], Standing]:
        async with FakeApi(answer=answered) as api:
            path = write_study(tmp_path, api)
            await run(path)
            first = asked(api)
            path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
            standing = await run(path)
            again = asked(api, first.total())
            assert await run(path) is not None
            assert asked(api, first.total()) == again, "a third time, nothing is new"
            return first, again, standing

    first, second, standing = asyncio.run(scene())
    assert first == {"a": N, "b": N, "judge": 2 * N}
    assert second == {"a": N, "b": N, "judge": 2 * N}, "the new prompt's answers, and their grades"
    assert standing.spent.calls == 4 * N
    assert standing.told == 2 * N * len(edit["prompts"])


def test_a_resumed_run_asks_only_the_judge_for_pairs_that_wait_for_it(tmp_path: Path) -> None:
    """The judge cannot be called at first: pairs stay pending, and their answers are kept."""
    is_open = False

    def refused(call: Call) -> Fault | None:
        return None if is_open or call.model != "judge" else Fault.PAYMENT

    async def scene() -> tuple[Counter[str], Counter[str], Standing]:
        nonlocal is_open
        async with FakeApi(answer=answered, script=refused) as api:
            path = write_study(tmp_path, api)
            await run(path)
            first = asked(api)
            is_open = True
            options = Options(store=store_of(path))
            async with Study.resume("latest", options=options) as study:
                standing = await study.run()
            return first, asked(api, first.total()), standing

    first, second, standing = asyncio.run(scene())
    bought = first["a"] + first["b"]
    assert bought > 0
    assert second["judge"] == 2 * N
    assert second["a"] + second["b"] == 2 * N - bought
    assert standing.told == 2 * N
