"""New runs and resumed ones pay for nothing that was bought before: answers, or grades."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from tests.support.fake_api import Call, FakeApi, Fault
from tests.support.judge_answers import mark_in
from tests.support.studies import store_of, study_file

N = 6
PRICE = {"price": {"input": 1.0, "output": 2.0}}


def write_study(folder: Path, api: FakeApi, *, question: str = "How good?") -> Path:
    return study_file(
        folder,
        {"rows": [{"id": f"e{j}", "q": f"question {j}"} for j in range(N)]},
        models=[{"model": f"openai/{name}", "options": PRICE} for name in "ab"],
        scorer={
            "name": "rubric",
            "model": "openai/judge",
            "rubric": question,
            "model_options": PRICE,
        },
        providers={"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
    )


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


ASKED = {"a": N, "b": N, "judge": 2 * N}


@pytest.mark.parametrize(
    ("edit", "again"),
    [
        ({"prompts": [{"p": "{{ q }}"}, {"other": "Please: {{ q }}"}]}, ASKED),
        ({"prompts": [{"renamed": "{{ q }}"}, {"other": "Please: {{ q }}"}]}, ASKED),
        ({"prompts": [{"p": "Please: {{ q }}"}]}, ASKED),
        (
            {
                "prompts": [{"p": "{{ q }}"}, {"p2": "Please: {{ q }}"}],
                "selector": {"name": "uniform", "seed": 7},
                "slices": {"by": ["id"]},
            },
            ASKED,
        ),
        ({"rubric": "How short?"}, {"judge": 2 * N}),
    ],
    ids=["a prompt more", "renamed", "the text changed", "other settings too", "another rubric"],
)
async def test_an_edited_study_that_is_selected_again_pays_for_what_is_new_alone(
    tmp_path: Path, edit: dict[str, Any], again: dict[str, int]
) -> None:
    """The loop of a prompt's author: edit, select, look, edit, select ... in one store."""
    async with FakeApi(answer=answered) as api:
        path, calls = write_study(tmp_path, api), []
        await run(path)
        calls.append(asked(api))
        content = json.loads(path.read_text())
        if "rubric" in edit:
            content["scorer"] |= edit
        path.write_text(json.dumps(content | edit if "prompts" in edit else content))
        standing = await run(path)
        calls.append(asked(api, calls[0].total()))
        await run(path)
        calls.append(asked(api, calls[0].total() + calls[1].total()))
    assert calls == [ASKED, again, {}], "a third time, nothing is new"
    assert standing.spent.calls == sum(again.values())
    assert standing.told == 2 * N * len(edit.get("prompts", [{}]))


async def test_a_resumed_run_asks_only_the_judge_for_pairs_that_wait_for_it(tmp_path: Path) -> None:
    """The judge cannot be called at first: pairs stay pending, and their answers are kept."""
    is_open = False

    def refused(call: Call) -> Fault | None:
        return None if is_open or call.model != "judge" else Fault.PAYMENT

    async with FakeApi(answer=answered, script=refused) as api:
        path = write_study(tmp_path, api)
        await run(path)
        first = asked(api)
        is_open = True
        options = Options(store=store_of(path))
        async with Study.resume("latest", options=options) as study:
            standing = await study.run()
        first, second, standing = first, asked(api, first.total()), standing
    bought = first["a"] + first["b"]
    assert bought > 0
    assert second["judge"] == 2 * N
    assert second["a"] + second["b"] == 2 * N - bought
    assert standing.told == 2 * N
