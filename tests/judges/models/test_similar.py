from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import Blame
from tests.support.fake_api import Call, FakeApi
from tests.support.judge_answers import Script, failure, make, score

VECTORS = {"up": [0, 2], "right": [1, 0], "between": [3, 3], "down": [0, -1], "nothing": [0, 0]}


def embed(request: Request) -> str:
    return json.dumps(VECTORS[str(request.text)])


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("up", "up", 1.0),
        ("between", "up", math.sqrt(0.5)),
        ("between", ("down", "right"), math.sqrt(0.5)),
        ("up", "right", 0.0),
        ("up", "down", 0.0),  # -1: no score is below 0
        ("nothing", "up", 0.0),
    ],
)
def test_the_score_is_the_cosine(
    answer: str, reference: str | tuple[str, ...], value: float
) -> None:
    example = Example("e1", {}, reference)
    script = Script(embed)
    assert score(make("similar"), script, answer, example).value == pytest.approx(value)
    asked = [reference] if isinstance(reference, str) else reference
    assert [request.text for request in script.requests] == [answer, *asked]


def test_a_threshold_makes_it_right_or_wrong() -> None:
    example = Example("e1", {}, "up")
    found = [
        score(make("similar", threshold=least), Script(embed), "between", example).value
        for least in (0.7, 0.71)
    ]
    assert found == [1.0, 0.0]


@pytest.mark.parametrize("said", ["Hello!", '{"a": 1}', '["a"]', "[NaN, 1.0]"])
def test_a_reply_that_is_no_vector_is_the_judges_failure(said: str) -> None:
    error = failure(make("similar"), Script(lambda _: said), Reply("46"))
    assert error.blame is Blame.JUDGE
    assert "is no embedding" in str(error)


def test_vectors_of_unequal_length_do_not_compare() -> None:
    error = failure(make("similar"), Script(["[1, 0]", "[1, 0, 0]"]), Reply("46"))
    assert "2 and 3 numbers" in str(error)


def test_embeddings_are_booked_and_each_text_is_asked_for_once(tmp_path: Path) -> None:
    def answer(call: Call) -> str:
        return json.dumps(VECTORS[call.question]) if "embed" in call.model else call.question

    async def spent() -> tuple[float, list[str]]:
        async with FakeApi(answer=answer, key=None) as api:
            prices: Json = {
                "price": {"input": 1000, "output": 0},
                "base_url": api.openai_url,
                "key": "none",
            }
            (tmp_path / "data.json").write_text(json.dumps([{"q": "up", "a": "right"}] * 2))
            study: dict[str, Json] = {
                "models": ["openai/one", "openai/two"],
                "prompts": [{"p": "{{ q }}"}],
                "dataset": {"path": str(tmp_path / "data.json"), "target": "a"},
                "scorer": {"name": "similar", "model": "openai/text-embedding-x"},
                "providers": {"openai": prices},
                "selector": {"stop_when_separated": False},
            }
            async with Study.open(study, options=Options(store=tmp_path / "runs.db")) as opened:
                standing = await opened.run()
            texts = [one.body["input"] for one in api.received if "input" in one.body]
            judging = next(line.spend for line in standing.costs if "judg" in line.what)
            return usd(judging.usd_nanos), texts

    cost, texts = asyncio.run(spent())
    assert sorted(texts) == ["right", "up"]
    assert cost == pytest.approx(0.011)  # 5 and 6 tokens at a dollar for a thousand
