"""What a model takes is learned from its refusal: real sockets, servers with GPT-6's rules."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.events import CandidatesBarred, Event
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.setup.options import STORE_FILE
from bestarm_agent.providers.api.refusals import named_in
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.store.store import Store
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, FakeModel, in_thread
from tests.support.fake_api.answers import add
from tests.support.fake_api.calls import chance
from tests.support.judge_answers import mark_in
from tests.support.replay_check import unexplained_asks
from tests.support.studies import run_study, study_file

THINKS = FakeModel(thinks=True, max_tokens_fields=frozenset({"max_completion_tokens"}))
MODELS = ("gpt-6-luna", "gpt-6-sol", "gpt-6-astra")
SHARES = {"gpt-6-luna": 0.4, "gpt-6-sol": 0.95, "gpt-6-astra": 0.6}


def answer(call: Call) -> str:
    if "<<<answer" in call.prompt:
        verdict = 9 if "right" in call.prompt.rpartition("<<<answer")[2] else 1
        return json.dumps({"mark": mark_in(call.prompt), "explanation": "so", "verdict": verdict})
    right = chance(0, call.model, call.question) < SHARES.get(call.model, 0.5)
    return f"{add(call.question)}{'' if right else 1}{' right' if right else ''}"


def server(**models: FakeModel) -> FakeApi:
    known = {**dict.fromkeys(MODELS, THINKS), **{n.replace("_", "-"): m for n, m in models.items()}}
    return FakeApi(answer=answer, key=None, models=known)


def write(folder: Path, api: FakeApi, n: int = 40, **changes: Any) -> Path:  # noqa: ANN401
    rows = [{"id": f"e{i}", "q": f"{17 + i}+{5 + 3 * i}", "a": str(22 + 4 * i)} for i in range(n)]
    price = {"input": 0.1, "output": 0.5}
    study: dict[str, Any] = {
        "name": "s",
        "models": [f"openai/{name}" for name in MODELS],
        "prompts": [{"plain": "{{ q }}"}, {"asked": "What is {{ q }}"}],
        "params": {"temperature": [0, 0.7], "max_tokens": 64},
        "dataset": {"path": "rows.jsonl", "target": "a"},
        "scorer": "numeric",
        "selector": {},
        "budget": {"usd": 2},
        "providers": {"openai": {"base_url": api.openai_url, "key": "none", "price": price}},
    }
    return study_file(folder, {"rows": rows}, **{**study, **changes})


def asked_twice(api: FakeApi) -> list[Any]:
    """Return what was answered more than once."""
    answered = (one.body for one in api.received if one.status == 200)
    bodies = Counter(json.dumps(body, sort_keys=True) for body in answered)
    return [body for body, n in bodies.items() if n > 1]


def test_a_study_on_models_that_refuse_temperature_ends_with_a_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_thread(server()) as api:
        path = write(tmp_path, api)
        done = invoke(capsys, "select", path, "--json")
        assert done.code == 0, done.err
        refused = [one for one in api.received if one.status == 400]
        assert not asked_twice(api)
        n = len(api.received)
        again = invoke(capsys, "select", path, "--json", "--no-cache")
        assert again.code == 0
        assert not any(one.status == 400 for one in api.received[n:]), "the store remembers"
    assert {one.body["model"] for one in refused} == set(MODELS)
    assert len(refused) <= 2 * len(MODELS), "learned once of each model"
    best = done.json["rows"][0]["candidate"]["label"]
    assert best.startswith("gpt-6-sol")
    merged = [row for row in done.json["rows"] if " does not take" in (row["problem"] or "")]
    assert len(merged) == 6
    for row in merged:
        label = row["candidate"]["label"]
        assert row["problem"].startswith(f"is {label.replace('t=0.7', 't=0')}, without what")
    told = [line for line in done.err.splitlines() if "does not take `temperature`" in line]
    assert len(told) == len(MODELS), "one notice a model"
    assert all(line.count("t=0 stands for") == 2 for line in told)


def test_a_judge_that_refuses_its_temperature_is_asked_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_thread(server(judge=THINKS)) as api:
        scorer = {"name": "rubric", "model": "openai/judge"}
        path = write(tmp_path, api, n=12, scorer=scorer, params={"max_tokens": 64})
        done = invoke(capsys, "select", path)
        assert done.code == 0, done.err
    judged = [one for one in api.received if one.body["model"] == "judge"]
    assert [one.status for one in judged].count(400) == 1
    assert all("temperature" not in one.body for one in judged[1:])
    assert "openai/judge does not take `temperature`" in done.err


def test_a_judge_does_without_a_form_of_answers_and_log_probabilities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_thread(server(judge=FakeModel(refuses=frozenset({"response_format"})))) as api:
        scorer = {"name": "rubric", "model": "openai/judge"}
        path = write(tmp_path, api, n=6, scorer=scorer, params={"max_tokens": 64})
        done = invoke(capsys, "select", path)
        assert done.code == 0, done.err
        assert "openai/judge does not take `response_format`" in done.err
        api.received.clear()
        api.models = {**dict.fromkeys(MODELS, FakeModel()), "judge": THINKS}
        api.answer = lambda call: "4" if call.model == "judge" else answer(call)
        scorer = {"name": "g-eval", "model": "openai/judge", "rubric": "Is it right?"}
        path = write(tmp_path / "b", api, n=6, scorer=scorer, params={"max_tokens": 64})
        done = invoke(capsys, "select", path)
    judged = [one for one in api.received if one.body["model"] == "judge"]
    assert done.code in (0, 3), done.err
    assert [one.status for one in judged].count(400) == 2
    assert not {"logprobs", "temperature"} & judged[-1].body.keys()


def test_what_is_refused_depends_on_the_effort(tmp_path: Path) -> None:
    params = {"temperature": [0, 0.7], "effort": ["none", "low"], "max_tokens": 64}
    with in_thread(server()) as api:
        models = ["openai/gpt-6-sol"]
        path = write(tmp_path, api, n=6, models=models, params=params, prompts=[{"q": "{{ q }}"}])
        standing, study = run_study(path)
    sent = {
        (one.body.get("reasoning_effort"), one.body.get("temperature"))
        for one in api.received
        if one.status == 200
    }
    assert sent == {("none", 0), ("none", 0.7), ("low", None)}
    assert not asked_twice(api)
    left = [row for row in standing.rows if row.problem is None]
    assert len(left) == 3
    (told,) = [one for one in study.remarks() if "does not take" in one]
    assert "`temperature` at effort low" in told


def test_the_limit_of_answers_goes_by_its_other_name(tmp_path: Path) -> None:
    old = FakeModel(max_tokens_fields=frozenset({"max_tokens"}))
    with in_thread(server(old=old)) as api:
        path = write(tmp_path, api, n=4, models=["openai/old"], params={"max_tokens": 9})
        standing, study = run_study(path)
        n = len(api.received)
        run_study(path)
        assert len(api.received) == n, "all replies were there"
    first, *others = api.received
    assert (first.status, first.body["max_completion_tokens"]) == (400, 9)
    assert all(one.body["max_tokens"] == 9 and one.status == 200 for one in others)
    assert not [one for one in study.remarks() if "does not take" in one]
    assert standing.rows[0].estimate is not None


def test_neither_name_of_the_limit_is_an_end(tmp_path: Path) -> None:
    none = FakeModel(max_tokens_fields=frozenset())
    with in_thread(server(none=none)) as api:
        path = write(tmp_path, api, n=4, models=["openai/none"], prompts=[{"q": "{{ q }}"}])
        standing, _ = run_study(path)
    assert len(api.received) <= 3 * 2
    assert standing.end is not None
    assert all("max_" in (row.problem or "") for row in standing.rows if row.problem)


def test_a_form_of_answers_is_never_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = FakeModel(refuses=frozenset({"response_format", "seed"}))
    form = {"type": "json_object"}
    models: list[Json] = [
        {"model": "openai/plain", "params": {"response_format": [None, form]}},
        "openai/gpt-6-sol",
    ]
    with in_thread(server(plain=plain)) as api:
        path = write(tmp_path, api, n=6, models=models, params={"seed": 7, "max_tokens": 64})
        standing, study = run_study(path)
    answered = [one.body for one in api.received if one.status == 200]
    assert not any("response_format" in one for one in answered)
    broken = [row for row in standing.rows if row.problem]
    assert {row.candidate.params.get("response_format") is None for row in broken} == {False}
    assert all("response_format" in (row.problem or "") for row in broken)
    others = [row for row in standing.rows if not row.problem]
    assert others
    assert all(row.n for row in others)
    assert any("plain does not take `seed`" in one for one in study.remarks())


ONE = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "logit_bias",
)
SENT: Mapping[str, frozenset[str]] = {
    **{name: frozenset({name}) for name in ONE},
    "effort": frozenset({"reasoning_effort"}),
    "top_logprobs": frozenset({"logprobs", "top_logprobs"}),
    "response_schema": frozenset({"response_format"}),
    "limit": frozenset({"max_tokens"}),
}
PENALTIES = "presence_penalty frequency_penalty"
UNKNOWN = 'Invalid JSON payload received. Unknown name "{}": Cannot find field.'


def openai(message: str, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": "bad", "param": param, "code": code}}


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (
            openai(
                "Unsupported parameter: 'top_p' is not supported with this model.",
                "top_p",
                "unsupported_parameter",
            ),
            "top_p",
        ),
        (
            openai(
                "Unsupported value: 'temperature' does not support 0.2 with this model. "
                "Only the default (1) value is supported.",
                "temperature",
                "unsupported_value",
            ),
            "temperature",
        ),
        (openai("This is not supported by the model.", "seed", "unsupported"), "seed"),
        (
            openai(
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead."
            ),
            "limit",
        ),
        (
            openai(
                "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model."
                " Supported values are: 'low'.",
                "reasoning_effort",
            ),
            "effort",
        ),
        (
            {"type": "error", "error": {"message": "`temperature` is deprecated for this model."}},
            "temperature",
        ),
        ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
        (
            {"code": "bad", "error": "Argument not supported on this model: presencePenalty"},
            "presence_penalty",
        ),
        (
            {"code": "bad", "error": "Model grok does not support parameter reasoningEffort."},
            "effort",
        ),
        (
            [{"error": {"code": 400, "message": "\n".join(map(UNKNOWN.format, ("seed", "stop")))}}],
            "seed stop",
        ),
        ("Penalty is not enabled for models/gemini", PENALTIES),
        (
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "seed"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
            "seed",
        ),
        ({"error": {"message": "property 'logit_bias' is unsupported"}}, "logit_bias"),
        (
            {"error": {"message": "invalid temperature: only 1 is allowed for this model"}},
            "temperature",
        ),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error": {"message": "`top_p` is not supported"}}'},
                }
            },
            "top_p",
        ),
        (
            json.dumps({"message": "`top_p` is not supported\nsent: {'seed': 1, 'stop': []}"}),
            "top_p",
        ),
        ("Logprobs are not supported with reasoning models.", "top_logprobs"),
        ("This response_format type is unavailable now", "response_schema"),
        ("Structured outputs are not supported by this model", "response_schema"),
        ("Reasoning is mandatory for this endpoint and cannot be disabled.", "effort"),
        ("unexpected keyword argument 'seed'", "seed"),
        ("frequency_penalty: not implemented", "frequency_penalty"),
        (
            openai(
                "Invalid 'temperature': decimal above maximum value. Expected a value <= 2.",
                "temperature",
                "decimal_above_max_value",
            ),
            "",
        ),
        ("temperature: range: 0..1", ""),
        ("`temperature` and `top_p` cannot both be specified for this model.", ""),
        (
            openai(
                "max_tokens is too large: 200000. This model supports at most 128000 tokens",
                "max_tokens",
                "invalid_value",
            ),
            "",
        ),
        ("The model does not exist", ""),
        (None, ""),
    ],
)
def test_the_refusals_of_all_vendors_are_read(said: object, names: str) -> None:
    assert named_in(said, SENT) == frozenset(names.split())


def test_try_learns_for_the_runs_that_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_thread(server()) as api:
        path = write(tmp_path, api, n=4)
        tried = invoke(capsys, "try", path)
        assert tried.code == 0, tried.err
        n = len(api.received)
        assert sum(one.status == 400 for one in api.received) == len(MODELS) * 2, "all at once"
        assert invoke(capsys, "select", path).code == 0
    assert not any(one.status == 400 for one in api.received[n:])
    assert not asked_twice(api)


def test_a_run_goes_on_with_what_it_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a log says of asks and of who left holds; nothing is refused or paid twice."""
    with in_thread(server()) as api:
        path = write(tmp_path, api, selector={"name": "uniform", "stop_when_separated": False})
        stopped = invoke(capsys, "select", path, "--budget-answers", "30")
        assert stopped.code in (0, 3)
        n = len(api.received)
        done = invoke(capsys, "resume", "--budget-answers", "1000", folder=tmp_path)
        assert done.code == 0, done.err
    assert not any(one.status == 400 for one in api.received[n:])
    assert not asked_twice(api)
    assert len(api.received) == len(MODELS) + len(MODELS) * 2 * 40


async def _events(store: Path) -> list[Event]:
    async with await Store.connect(store) as opened:
        return await opened.events_of("latest")


def test_candidates_that_left_are_in_the_log_and_every_ask_follows_from_it(tmp_path: Path) -> None:
    with in_thread(server()) as api:
        rule = {"name": "ucb-e", "stop_when_separated": False}
        run_study(write(tmp_path, api, n=6, selector=rule))
    events = asyncio.run(_events(tmp_path / "runs" / STORE_FILE))
    barred = [row for one in events if isinstance(one, CandidatesBarred) for row in one.candidates]
    assert sorted(barred) == [1, 3, 5, 7, 9, 11], "the later of two that are equal"
    selector = make_selector("ucb-e", Problem(12, 6, stop_when_separated=False))
    assert unexplained_asks(events, selector) == []
