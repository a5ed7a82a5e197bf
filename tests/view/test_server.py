"""The server behind ``view``: who is let in, and what it answers. Real requests over loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.view.server import serve
from tests.support.commands import invoke
from tests.support.studies import run_all
from tests.view.conftest import ATTACK, E0, REPLIES

Json = Any
Capsys = pytest.CaptureFixture[str]


@asynccontextmanager
async def opened(store: Path | str) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose addresses start from the page's."""
    async with serve([store]) as address, aiohttp.ClientSession(address) as session:
        yield session


def visit(store: Path, scene: Callable[[aiohttp.ClientSession], Awaitable[Json]]) -> Json:
    async def play() -> Json:
        async with opened(store) as session:
            return await scene(session)

    return asyncio.run(play())


async def get(session: aiohttp.ClientSession, path: str) -> Json:
    async with session.get(path) as answer:
        return await answer.json()


async def put(session: aiohttp.ClientSession, path: str, value: Json) -> tuple[int, Json]:
    """Send a value as the page does: with its ``Origin``."""
    origin = str(session._base_url.origin()) if session._base_url else ""
    async with session.put(path, data=json.dumps(value), headers={"Origin": origin}) as answer:
        return answer.status, await answer.json()


async def next_news(answer: aiohttp.ClientResponse) -> Json:
    """Read the next server-sent event."""
    async for line in answer.content:
        if line.startswith(b"data: "):
            return json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended")


RUN = "runs/0/latest"


def test_the_page_is_strict(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        for name in ("", "base.js", "base.css", "view.js", "view.css", "runs"):
            async with session.get(name) as answer:
                assert answer.status == 200
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["Cache-Control"] == "no-store"
        token = session._base_url.parts[1] if session._base_url else ""
        async with session.get(f"/{token}") as answer:
            assert (answer.status, answer.url.path[-1]) == (200, "/"), "copied without its last /"

    visit(store, scene)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/runs", {}),
        ("/wrong-token/runs", {}),
        ("runs", {"Host": "evil.example:80"}),
        ("runs", {"Host": "127.0.0.1.evil.example:80"}),
        ("runs", {"Origin": "http://evil.example"}),
        ("runs", {"Origin": "null"}),
        ("runs", {"Origin": "http://127.0.0.1:1"}),
    ],
)
def test_others_are_refused(store: Path, path: str, headers: dict[str, str]) -> None:
    async def scene(session: aiohttp.ClientSession) -> int:
        async with session.get(path, headers=headers) as answer:
            assert "capitals" not in await answer.text()
            return answer.status

    assert visit(store, scene) == 403


def test_a_change_needs_the_origin_of_the_page(store: Path, tmp_path: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        for headers in ({}, {"Origin": "http://evil.example"}):
            async with session.put(f"{RUN}/pairs/0/label", data="1", headers=headers) as answer:
                assert answer.status == 403

    visit(store, scene)
    assert not list(store.parent.glob("*.labels.jsonl"))


def test_runs_pairs_and_texts(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        [run] = await get(session, "runs")
        assert (run["n_told"], run["stopped"], run["store"]) == (4, "exhausted", 0)
        known = {"candidates": ["c0", "c1"], "slices": []}
        assert await get(session, f"{RUN}/candidates") == known
        listed = await get(session, f"{RUN}/pairs")
        assert {(p["candidate"], p["example"]): p["reply"] for p in listed["pairs"]} == REPLIES
        [wrong] = (await get(session, f"{RUN}/pairs?wrong"))["pairs"]
        assert (wrong["candidate"], wrong["target"], wrong["score"]) == ("c1", "Paris", 0.0)
        pair = await get(session, f"{RUN}/pairs/{wrong['seq']}?candidate=c1")
        assert pair["prompt"].startswith("France?")
        assert {pair["previous"], pair["next"]} - {None} == {
            p["seq"] for p in listed["pairs"] if (p["candidate"], p["example"]) == ("c1", "e1")
        }

    visit(store, scene)


def test_the_report_as_of_now_brings_its_own_policy(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> tuple[str, str]:
        async with session.get(f"{RUN}/report") as answer:
            assert answer.status == 200
            return await answer.text(), answer.headers["Content-Security-Policy"]

    page, policy = visit(store, scene)
    assert "Where do the leaders differ?" in page
    assert 'http-equiv="Content-Security-Policy"' in page
    assert ATTACK not in page
    assert "frame-ancestors 'none'" in policy


def test_the_winners_of_two_runs(store: Path) -> None:
    run_all(store.parents[1] / "study.json")

    async def scene(session: aiohttp.ClientSession) -> None:
        one, two = [run["id"] for run in await get(session, "runs")]
        address = f"runs/0/{one}/compare?other={two}"
        found = await get(session, address)
        assert (found["a"], found["b"], found["n"], found["flips"]) == ("c0", "c0", 2, [])
        found = await get(session, f"{address}&b=c1")
        [[a, b]] = found["flips"]
        assert (a["reply"], b["reply"]) == (REPLIES["c0", E0], REPLIES["c1", E0])

    visit(store, scene)


def test_senseless_requests_are_refused_and_say_nothing_on_the_terminal(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        own = {"Origin": str(session._base_url.origin()) if session._base_url else ""}
        async with session.put(f"{RUN}/pairs/0/label", data="[" * 50_000, headers=own) as answer:
            assert answer.status == 400
            assert len(await answer.text()) < 200
        async with session.get("a" * 20_000) as answer:
            assert answer.status == 400

    visit(store, scene)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_slice_that_is_not_there(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{RUN}/pairs?slice=language%3Dde") as answer:
            assert answer.status == 400
            assert "no slice 'language=de'" in (await answer.json())["error"]

    visit(store, scene)


def test_a_page_beyond_all_is_empty(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        assert (await get(session, f"{RUN}/pairs?start={'7' * 5000}"))["pairs"] == []

    visit(store, scene)


def test_two_candidates(store: Path) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        found = await get(session, f"{RUN}/compare?a=c0&b=c1")
        assert (found["n"], found["both"], found["only_a"], found["neither"]) == (2, 1, 1, 0)
        [[a, b]] = found["flips"]
        assert (a["reply"], b["reply"]) == (REPLIES["c0", E0], REPLIES["c1", E0])

    visit(store, scene)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("runs/0/nowhere/pairs", 404, "there is no run 'nowhere'"),
        ("runs/7/latest/pairs", 404, "there is no store 7"),
        (f"{RUN}/pairs/99", 400, "the run has no pair 99"),
        (f"{RUN}/pairs/{'9' * 5000}", 400, "the run has no pair"),
        (f"runs/{'1' * 5000}/latest/pairs", 404, "there is no store"),
        (f"{RUN}/pairs?candidate=c9", 400, "no candidate 'c9'"),
        (f"{RUN}/compare?a=c0&b=c0", 400, "cannot be compared with itself"),
    ],
)
def test_mistakes_are_explained(store: Path, path: str, status: int, message: str) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        async with session.get(path) as answer:
            assert answer.status == status
            assert message in (await answer.json())["error"]

    visit(store, scene)


def test_labels_are_what_judge_check_reads(store: Path, capsys: Capsys) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        pairs = (await get(session, f"{RUN}/pairs"))["pairs"]
        for pair in pairs:
            path = f"{RUN}/pairs/{pair['seq']}/label"
            assert await put(session, path, 0.25) == (200, {"score": 0.25})
            score = 1.0 if pair["candidate"] == "c0" else 0.0
            assert await put(session, path, score) == (200, {"score": score})
        seen = {
            (pair["candidate"], pair["example"]): pair["label"]
            for pair in (await get(session, f"{RUN}/pairs"))["pairs"]
        }
        # both answered "Rome": a label is about the answer, whoever gave it
        assert seen["c0", "e1"] == seen["c1", "e1"]
        assert (seen["c0", E0], seen["c1", E0]) == (1.0, 0.0)

    visit(store, scene)
    [file] = store.parent.glob("*.labels.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    for labels in ([], [file]):
        done = invoke(capsys, "judge", "check", "latest", *labels, "--store", store, "--json")
        found = json.loads(done.out)
        assert (found["labels"], found["compared"], found["answers"]) == (3, 3, 4)


def test_a_label_is_taken_back(store: Path, capsys: Capsys) -> None:
    async def scene(session: aiohttp.ClientSession) -> None:
        path = f"{RUN}/pairs/0/label"
        assert await put(session, path, 1) == (200, {"score": 1.0})
        assert await put(session, path, None) == (200, {"score": None})
        assert (await get(session, f"{RUN}/pairs/0"))["label"] is None

    visit(store, scene)
    done = invoke(capsys, "judge", "check", "latest", "--store", store)
    assert (done.code, "has no labels; give some in `bestarm-agent view`" in done.err) == (2, True)


@pytest.mark.parametrize("value", [1.5, -1, True, "good", [1], {"score": 1}])
def test_a_label_that_is_no_score_is_refused(store: Path, value: Json) -> None:
    async def scene(session: aiohttp.ClientSession) -> tuple[int, Json]:
        return await put(session, f"{RUN}/pairs/0/label", value)

    status, answer = visit(store, scene)
    assert (status, "a score between 0 and 1" in answer["error"]) == (400, True)


def test_a_port_in_use_and_a_store_that_is_not_there(store: Path) -> None:
    async def scene() -> None:
        async with serve([store]) as address:
            port = int(address.split(":")[2].split("/")[0])
            with pytest.raises(ConfigError, match="give another --port"):
                async with serve([store], port):
                    pass
        with pytest.raises(StoreError, match="there is no store"):
            async with serve([store.with_name("none.sqlite")]):
                pass

    asyncio.run(scene())
