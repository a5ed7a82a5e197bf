"""Studies of calls of tools: who wins, what is shown, and what is refused before a call."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.setup.options import STORE_FILE
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.errors import ConfigError
from bestarm_agent.study import Archive
from tests.support.api_studies import KEYS
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.studies import run_study, study_file
from tests.support.tool_cases import EXAMPLE, cases
from tests.support.tool_models import SHARES, answer

WEATHER: dict[str, Json] = {"name": "get_weather"}
LOCAL = EXAMPLE.parent / "arithmetic" / "models" / "sum-llama-43k"
TALK: Json = [{"role": "user", "content": "Paris?"}]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with in_thread(FakeApi(answer, key=None)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


def test_the_cases_of_the_example_are_what_its_generator_writes() -> None:
    lines = (EXAMPLE / "dataset.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == cases()
    assert len(lines) == 200


@pytest.mark.slow
def test_the_example_names_the_planted_winner_over_all_three_protocols(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "study")
    path = tmp_path / "study" / "study.yaml"
    standing, _ = run_study(path)
    planted = {
        f"{label}/{prompt}": share
        for label, model in zip(("luna", "sol", "haiku"), SHARES, strict=True)
        for prompt, share in zip(("bare", "careful"), SHARES[model], strict=True)
    }
    assert standing.rows[0].candidate.label == max(planted, key=planted.__getitem__)
    assert {one.path for one in api.received} == {
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
    }
    before = len(api.received)
    pairs = tmp_path / "pairs.csv"
    archive = Archive(tmp_path / "study" / "runs" / STORE_FILE)
    asyncio.run(archive.write_report("latest", tmp_path / "report.html"))
    invoke(capsys, "export", "latest", "-o", pairs, "--texts", folder=path.parent)
    assert "get_weather(city=" in (tmp_path / "report.html").read_text().replace("\\&#34;", "")
    with pairs.open() as file:
        found = list(csv.DictReader(file))
    assert any(row["reply"].startswith("get_weather(city=") for row in found)
    again, _ = run_study(path)
    assert again.rows[0].candidate.label == standing.rows[0].candidate.label
    assert len(api.received) < 1.5 * before, "most replies came from the cache"


def plan(folder: Path, row: dict[str, Any], prompt: Any, **changes: Any) -> None:  # noqa: ANN401
    """Prepare a study of a good example and this one."""
    good = {"id": "good", "talk": TALK, "tools": [WEATHER], "calls": "none"}
    study = {
        "models": ["openai/m"],
        "prompts": [{"name": "p", **prompt}],
        "dataset": {"path": "rows.jsonl", "target": "calls"},
        "scorer": "tool-call",
        **changes,
    }
    path = study_file(folder, {"rows": [good, {**good, **row, "id": "odd"}]}, **study)
    make_plan(assemble(load_study(path, {}), Catalog(path.parent)))


SYSTEM: Json = [*TALK, {"role": "system", "content": "Stop."}, *TALK]  # type: ignore[misc]
TALKING: Json = {"messages": ["{{ talk }}"]}
ASKED: Json = {"text": "{{ id }}", "tools": [WEATHER]}


@pytest.mark.parametrize(
    ("row", "prompt", "changes", "complaint"),
    [
        ({"talk": []}, TALKING, {}, r"field `talk`: the conversation lacks messages \(example `o"),
        ({"tools": "x"}, {"text": "{{ id }}", "tools": ["{{ tools }}"]}, {}, r"`tools`.*`odd`"),
        ({"calls": "get_weather"}, TALKING, {}, "example `odd`: judge `tool-call` cannot read"),
        ({"calls": []}, TALKING, {}, "the target is empty"),
        ({"talk": SYSTEM}, TALKING, {"models": ["anthropic/m"]}, "only at the beginning"),
        ({}, ASKED, {"models": ["python/m:f"]}, "has tools.*python/m:f does not take"),
        ({}, ASKED, {"models": [f"hf/{LOCAL}"]}, "has tools.*does not take"),
        (
            {},
            ASKED,
            {"models": ["anthropic/m"], "params": {"response_format": {"type": "json_object"}}},
            "only with `type: json_schema`",
        ),
    ],
)
def test_what_cannot_be_asked_is_found_before_a_call(
    tmp_path: Path, row: dict[str, Any], prompt: Json, changes: dict[str, Any], complaint: str
) -> None:
    (tmp_path / "m.py").write_text("def f(task):\n    return 'x'\n")
    with pytest.raises(ConfigError, match=complaint):
        plan(tmp_path, row, prompt, **changes)


def test_calls_in_a_conversation_need_a_model_that_takes_tools(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(task):\n    return 'x'\n")
    call = {"id": "a", "function": {"name": "now"}}
    talk = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    with pytest.raises(ConfigError, match=r"calls of them \(example `odd`\)"):
        plan(tmp_path, {"talk": talk}, TALKING, models=["python/m:f"])
    plan(tmp_path, {}, TALKING, models=["python/m:f"])
    plan(tmp_path, {"talk": talk}, TALKING)


def test_the_form_of_an_answer_is_an_axis_with_short_labels(tmp_path: Path) -> None:
    schemas = [
        {"name": name, "schema": {"type": "object", "properties": {name: {"type": "string"}}}}
        for name in ("short", "long")
    ]
    forms: list[Any] = [{"type": "json_schema", "json_schema": schema} for schema in schemas]

    def said(call: Call) -> Said:
        wanted = call.body.get("response_format", {}).get("json_schema", {}).get("name", "text")
        return Said(json.dumps({"short": wanted}))

    with in_thread(FakeApi(said, key=None)) as server:
        path = study_file(
            tmp_path,
            {"rows": [{"q": f"{i}", "answer": '{"short": "long"}'} for i in range(4)]},
            models=["openai/m"],
            params={"response_format": [None, {"type": "json_object"}, *forms]},
            dataset={"path": "rows.jsonl", "target": "answer"},
            scorer="exact",
            providers={"openai": {"base_url": server.openai_url}},
        )
        standing, study = run_study(path)
    assert {row.candidate.label for row in standing.rows} == {
        "m",
        "response_format.type=json_object",
        "response_format.type=json_schema/response_format.name=short",
        "response_format.type=json_schema/response_format.name=long",
    }
    assert standing.rows[0].candidate.label.endswith("name=long")
    assert not study.remarks()
