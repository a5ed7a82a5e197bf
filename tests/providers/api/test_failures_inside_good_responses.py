"""A study over a server whose failures come with status 200: no answer is lost to one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.values import Json
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.studies import study_file

N = 40
OPENROUTER: Json = {"code": 502, "message": "Provider returned error"}
LITELLM: Json = {"error": OPENROUTER, "native_finish_reason": "error"}
FORMS: dict[str, dict[str, Json]] = {
    "openrouter": {"finish_reason": "error", "error": OPENROUTER},
    "vllm": {"finish_reason": "abort"},
    "litellm": {"finish_reason": "stop", "provider_specific_fields": LITELLM},
    "unknown": {"finish_reason": "brand_new"},
}


@pytest.mark.parametrize("form", FORMS)
def test_equal_models_stay_equal_and_what_failed_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """One of two equal models fails so at every tenth example, however often it is asked."""
    broken = [True]

    def reshape(call: Call, body: dict[str, Any]) -> dict[str, Any]:
        is_hit = call.model == "b" and int(call.question.split("+")[0]) % 10 == 0
        if is_hit and broken[0]:
            body["choices"][0].update(FORMS[form])
            body["choices"][0]["message"]["content"] = ""
        return body

    def answer(call: Call) -> Said:
        return Said(str(sum(map(int, call.question.split("+")))))

    with in_thread(FakeApi(answer=answer, reshape=reshape, key=None)) as api:
        study_file(
            tmp_path,
            {"rows": [{"q": f"{k}+1", "answer": str(k + 1)} for k in range(1, N + 1)]},
            models=["openai/a", "openai/b"],
            prompts=[{"chat": [{"role": "user", "content": "{{ q }}"}]}],
            dataset={"path": "rows.jsonl", "target": "answer"},
            scorer="numeric",
            selector={"name": "uniform", "stop_when_separated": False},
            limits={"max_attempts": 2},
            providers={
                "openai": {
                    "base_url": api.openai_url,
                    "key": "none",
                    "price": {"input": 1, "output": 5},
                }
            },
        )
        first = invoke(capsys, "select", "study.json", "-q", "--json", folder=tmp_path)
        rows = {row["candidate"]["label"]: row for row in first.json["rows"]}
        assert [row["estimate"] for row in rows.values()] == [1.0, 1.0], "no silent zero"
        shown = invoke(capsys, "answers", "latest", "--json", folder=tmp_path)
        void = [line for line in shown.out.splitlines() if json.loads(line)["score"] is None]
        assert len(void) == N // 10
        told = f"{first.told} {shown.out}"
        assert ("finish: {brand_new: stop}" in told) == (form == "unknown")
        broken[0] = False
        again = invoke(capsys, "select", "study.json", "-q", "--json", folder=tmp_path)
        assert [row["estimate"] for row in again.json["rows"]] == [1.0, 1.0]
        shown = invoke(capsys, "answers", "latest", "--json", folder=tmp_path)
        scores = [json.loads(line)["score"] for line in shown.out.splitlines()]
        assert scores == [1.0] * (2 * N), "what failed was not taken from the cache"
