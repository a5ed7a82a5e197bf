"""Routers that go by vectors which a model behind an API makes of prompts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.embedder import open_embedder
from bestarm_agent.preselection.feedback import Record
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serving import Service
from bestarm_agent.preselection.settings import RoutedCandidate, RouterSettings
from bestarm_agent.store.store import Store
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, in_thread
from tests.support.studies import write_study

MODEL = "openai/text-embedding-3-small"
SETTINGS = RouterSettings(source="embedding", embedder=MODEL, collect=10, n_components=3)


def vector(call: Call) -> str:
    """Poems and sums lie apart; "fail" has no vector."""
    length = len(call.question) / 100
    return json.dumps([1.0, 0.0, length] if "poem" in call.question else [0.0, 1.0, length])


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with in_thread(FakeApi(vector)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", server.key or "none")
        yield server


def prompt(i: int) -> str:
    return f"a poem on {'x' * (i % 7)}" if i % 2 else f"add {'1' * (i % 5)} to 3"


def lines(n: int) -> str:
    rows = [
        {"prompt": prompt(i), "shown": ["poet", "sums"], "winner": "poet" if i % 2 else "sums"}
        for i in range(n)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_router_learns_on_vectors_and_a_prompt_is_embedded_once(api: FakeApi) -> None:
    async def main() -> None:
        store = Store.in_memory()
        names = [RoutedCandidate("poet"), RoutedCandidate("sums")]
        async with (
            Router.open("r", store, names, SETTINGS) as router,
            open_embedder(MODEL, store, Options()) as embedder,
        ):
            records = [Record(prompt(i), ("poet", "sums"), (_winner(i),)) for i in range(40)]
            for record in await embedder.described(records):
                router.learn(record)
            assert len(api.received) <= 35  # as many as there are different prompts
            for text, best in (("a new poem", "poet"), ("add 99 to 3", "sums")):
                assert router.choose(text, 1, features=await embedder.vector(text)) == [best]

    asyncio.run(main())


def _winner(i: int) -> str:
    return "poet" if i % 2 else "sums"


def test_the_commands_embed_what_they_are_given(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history.jsonl").write_text(lines(60))
    settings = [f"--set=embedder={MODEL}", "--set=source=embedding", "--set=n_components=3"]
    done = invoke(capsys, "preselect", "train", "history.jsonl", *settings, folder=tmp_path)
    assert done.code == 0, done.err
    one = invoke(capsys, "preselect", "choose", "-k", "1", "a poem on red", folder=tmp_path)
    assert (one.code, one.out) == (0, "poet\n")
    assert {note.path for note in api.received} == {"/v1/embeddings"}


def test_a_service_pays_for_vectors_out_of_its_budget(api: FakeApi, tmp_path: Path) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=20)

    async def main() -> None:
        overrides = {"budget.calls": 19}
        async with Service.open(path, settings=SETTINGS, overrides=overrides) as service:
            served = [await service.serve(example, 2) for example in service.parts.examples]
            assert service.spent.calls == 19  # a vector and two answers each: 6 times, and 1 call
            assert len([one for one in served if one is not None]) == 6
            assert len(api.received) == 7

    asyncio.run(main())


@pytest.mark.parametrize(
    ("source", "embedder"), [("embedding", ""), ("text", MODEL), ("embedding", "small")]
)
def test_source_and_embedder_go_together(source: str, embedder: str) -> None:
    with pytest.raises(ConfigError, match="go together"):
        RouterSettings(source=source, embedder=embedder)  # type: ignore[arg-type]


def test_a_server_that_fails_is_named(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history.jsonl").write_text(lines(5))
    api.key = "another key"
    settings = [f"--set=embedder={MODEL}", "--set=source=embedding"]
    done = invoke(capsys, "preselect", "train", "history.jsonl", *settings, folder=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert "openai/text-embedding-3-small" in done.err
