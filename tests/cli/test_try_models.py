"""``try``: one call to each model and the judge, against a server on real sockets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, Fault
from tests.support.fake_api.threads import in_thread
from tests.support.judge_answers import mark_in

Capsys = pytest.CaptureFixture[str]
RUBRIC = {"name": "rubric", "model": "openai/judge", "rubric": "Is it good?"}


def answered(call: Call) -> str:
    if call.model == "judge":
        return json.dumps({"mark": mark_in(call.prompt), "explanation": "so it is", "verdict": 7})
    return f"It is \x1b[31m{call.question}"


def faulty(call: Call) -> Fault | None:
    return Fault.BAD_REQUEST if call.model == "bad" else None


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")
    with in_thread(FakeApi(answer=answered, script=faulty)) as api:
        yield api


def write_study(folder: Path, api: FakeApi, models: str, **changes: Any) -> None:  # noqa: ANN401
    rows = [{"id": f"e{i}", "q": f"Which number is {i + 1}?", "answer": i + 1} for i in range(3)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = {
        "models": [f"openai/{name}" for name in models.split()],
        "prompts": [{"p": "{{ q }}"}, {"other": "Now: {{ q }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer"},
        "scorer": RUBRIC,
        "providers": {
            "openai": {
                "base_url": api.openai_url,
                "key": "OPENAI_API_KEY",
                "price": {"input": 1, "output": 2},
            }
        },
        "selector": {"name": "uniform", "stop_when_separated": False},
        **changes,
    }
    (folder / "study.yaml").write_text(json.dumps(study))


def asked(api: FakeApi) -> Counter[str]:
    return Counter(str(received.body["model"]) for received in api.received)


def test_prompt_reply_verdict_and_score_are_shown(
    tmp_path: Path, capsys: Capsys, api: FakeApi
) -> None:
    write_study(tmp_path, api, "a b")
    done = invoke(capsys, "try", folder=tmp_path)
    assert done.code == 0, done.err
    assert asked(api) == {"a": 2, "b": 2, "judge": 2}, "one judgement of equal replies"
    assert "prompt  Now: Which number is 1?" in done.out
    assert "openai/a (a/p) on example e0: score 0.667" in done.out
    assert "prompt  Which number is 1?" in done.out
    assert "reply   It is \N{REPLACEMENT CHARACTER}[31mWhich number is 1?" in done.out
    assert "openai/judge: 7 (0.666667): so it is" in done.out
    assert "4 of 4 first calls answered and scored: 6 calls" in done.out


def test_select_takes_what_was_tried_from_the_reply_cache(
    tmp_path: Path, capsys: Capsys, api: FakeApi
) -> None:
    write_study(tmp_path, api, "a")
    for _ in range(2):
        assert invoke(capsys, "try", folder=tmp_path).code == 0
    assert invoke(capsys, "select", "--quiet", folder=tmp_path).code == 0
    assert asked(api) == {"a": 6, "judge": 6}, "two prompts x three examples, each once"


def test_a_model_that_fails_is_shown_with_the_reason_and_exit_code_4(
    tmp_path: Path, capsys: Capsys, api: FakeApi
) -> None:
    write_study(tmp_path, api, "a bad", scorer="numeric")
    done = invoke(capsys, "try", "--json", folder=tmp_path)
    good, also_good, bad, _ = json.loads(done.out)
    assert (good["candidate"], also_good["candidate"]) == ("a/p", "a/other")
    assert done.code == 4
    assert (good["target"], good["parsed"], good["score"], good["calls"]) == ("1", "1", 1.0, 1)
    assert (bad["reply"], bad["score"]) == (None, None)
    assert "400" in bad["problem"]
    told = invoke(capsys, "try", folder=tmp_path).out
    assert "  problem " in told
    assert "  target  1\n" in told


def test_the_budget_binds_trials_too(tmp_path: Path, capsys: Capsys, api: FakeApi) -> None:
    write_study(tmp_path, api, "a", budget={"calls": 1})
    done = invoke(capsys, "try", folder=tmp_path)
    assert done.code == 4
    assert "budget does not pay the call and its judging" in done.out
    assert not asked(api), "what cannot be judged is not bought"


def test_what_a_server_says_of_a_model_is_told(
    tmp_path: Path, capsys: Capsys, api: FakeApi
) -> None:
    api.more_headers = {"Sunset": "Wed, 11 Nov 2026 23:59:59 GMT"}
    api.redirects["a"] = "b"
    write_study(tmp_path, api, "a", scorer="numeric")
    told = invoke(capsys, "try", folder=tmp_path).out
    assert "notice  openai/a was answered by b, which is not the name asked for" in told
    assert "notice  openai/a is to be shut down on 2026-11-11, as its server says" in told
    (call, _) = json.loads(invoke(capsys, "try", "--json", folder=tmp_path).out)
    assert (call["cached"], len(call["notices"])) == (True, 2), "the cache holds them too"


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        (
            "exact",
            "stands in 4 of the 4 wrong replies to the first prompts; try scorer `contains`",
        ),
        ("numeric", ""),
    ],
)
def test_what_would_have_scored_is_said(
    tmp_path: Path, capsys: Capsys, api: FakeApi, scorer: str, said: str
) -> None:
    write_study(tmp_path, api, "a b", scorer=scorer)
    done = invoke(capsys, "try", folder=tmp_path)
    assert said in done.out
    assert ("notice:" in done.out) == bool(said)


def test_of_many_models_and_prompts_each_is_tried(
    tmp_path: Path, capsys: Capsys, api: FakeApi
) -> None:
    prompts = [{f"p{i}": f"{i}: {{{{ q }}}}"} for i in range(9)]
    models = [f"m{i}" for i in range(7)]
    write_study(tmp_path, api, " ".join(models), prompts=prompts, scorer="numeric")
    tried = json.loads(invoke(capsys, "try", "--json", folder=tmp_path).out)
    assert {one["model"] for one in tried} == {f"openai/{name}" for name in models}
    assert {one["prompt"].partition(":")[0] for one in tried} == set("012345678")
    assert len(tried) <= len(models) + len(prompts)
