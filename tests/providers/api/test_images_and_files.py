"""Images and files: what the three protocols send, what it is bounded by, whom it selects."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bestarm_agent.config.attachments import Attachment
from bestarm_agent.domain.values import DataUrl, Json, Message, Request, part_of
from bestarm_agent.study import Study
from bestarm_agent.view.server import serve
from tests.support.api_cases import provider_of
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, FakeModel, in_thread
from tests.support.fake_api.calls import Api
from tests.support.pictures import looking, pdf, picture_study, png
from tests.support.provider_calls import reply

SHARES = {"sharp": 0.95, "dim": 0.55, "blind": 0.3}
WIRES: dict[str, tuple[str, dict[str, Json]]] = {
    "chat": ("openai", {}),
    "responses": ("openai", {"api": "responses"}),
    "messages": ("anthropic", {}),
}
ROOT = Path(__file__).parents[3]
ADDRESS = "https://host/a.png"


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(lambda call: ", ".join(kind for kind, _ in call.attached))) as server:
        yield server


def carrying(*parts: tuple[str, str]) -> Request:
    return Request("good", messages=(Message("user", tuple(part_of(*one) for one in parts)),))


def read(type: str, content: bytes, folder: Path) -> str:
    (folder / "file").write_bytes(content)
    return Attachment(type, "file", folder).read()


@pytest.mark.parametrize("wire", WIRES)
def test_each_protocol_sends_parts_in_its_own_form(api: FakeApi, wire: str, tmp_path: Path) -> None:
    vendor, options = WIRES[wire]
    red, paper = png("red"), pdf(2)
    request = carrying(
        ("text", "What?"),
        ("image_url", read("image_url", red, tmp_path)),
        ("image_url", ADDRESS),
        ("file", read("file", paper, tmp_path)),
    )
    found = reply(provider_of(vendor, api, **options), request)
    body = api.received[-1].body
    assert isinstance(body, dict)
    expected = [("image/png", red), ("", ADDRESS.encode()), ("application/pdf", paper)]
    assert Call(Api(wire), body).attached == expected
    assert found.usage.input > 3000, "the server counted them"
    assert "base64" not in json.dumps(found.sent), "the record holds no prompt"
    turn = (body.get("messages") or body["input"])[0]
    kinds = {
        "chat": ["text", "image_url", "image_url", "file"],
        "responses": ["input_text", "input_image", "input_image", "input_file"],
        "messages": ["text", "image", "image", "document"],
    }
    assert [part["type"] for part in turn["content"]] == kinds[wire]


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_an_image_is_bounded_by_a_number_and_a_file_by_its_pages(
    api: FakeApi, vendor: str, tmp_path: Path
) -> None:
    def bound(*parts: tuple[str, str], **options: Json) -> int:
        return provider_of(vendor, api, **options).bound(carrying(*parts)).tokens

    words = ("text", "What?")
    small, large = (DataUrl(f"data:{n * 'x'}", name="a", digest="b" * 64) for n in (9, 9**7))
    few = bound(words, image_tokens=1000)
    per_image = {n: bound(words, ("image_url", n), image_tokens=1000) - few for n in (small, large)}
    assert len(set(per_image.values())) == 1, "however many bytes it has"
    assert 1000 <= per_image[small] < 1100
    usual = bound(words, ("image_url", small)) - few
    assert usual > 1500, "the default is on the safe side"
    pages = read("file", pdf(7), tmp_path)
    assert 7 * 5000 <= bound(words, ("file", pages), image_tokens=1000) - few < 7 * 5000 + 100


def test_images_that_take_more_than_is_stated_raise_later_bounds(api: FakeApi) -> None:
    provider = provider_of("openai", api, image_tokens=10)
    request = carrying(("text", "What?"), ("image_url", ADDRESS))
    plain = carrying(("text", "What?"))
    before, without = provider.bound(request), provider.bound(plain)
    found = reply(provider, request)
    assert found.usage.input > 1000, "what the server says is charged"
    assert found.notices == (
        "took more tokens for images than `image_tokens` states; raise it in its options",
    )
    assert provider.bound(request).tokens >= found.usage.input > before.tokens - 4096
    assert provider.bound(plain) == without
    assert reply(provider, request).notices == ()


@pytest.fixture(scope="module")
def seeing() -> Iterator[FakeApi]:
    with in_thread(FakeApi(looking(SHARES), models=dict.fromkeys(SHARES, FakeModel()))) as server:
        yield server


def study_of(seeing: FakeApi, folder: Path, n: int = 60, **changes: Any) -> Path:  # noqa: ANN401
    price = {"input": 1, "output": 5}
    models: list[str | Mapping[str, Json]] = [
        "openai/dim",
        {"model": "openai/sharp", "options": {"api": "responses"}},
        "anthropic/blind",
    ]
    providers = {
        "openai": {"base_url": seeing.openai_url, "key": "OPENAI_API_KEY", "price": price},
        "anthropic": {"base_url": seeing.url, "key": "ANTHROPIC_API_KEY", "price": price},
    }
    return picture_study(folder, n, **{"models": models, "providers": providers, **changes})


@pytest.fixture(autouse=True)
def keys(seeing: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, seeing.key or "none")


def test_the_model_that_sees_best_is_named(
    seeing: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And store, log and report hold no copy of a picture but the report's thumbnails."""
    path = study_of(seeing, tmp_path / "s", selector="auto", budget={"usd": 5})

    async def run() -> tuple[str, Path]:
        async with Study.open(path) as live:
            await live.run()
            standing = live.standing()
            assert standing.winner is not None
            report = await live.write_report()
            return standing.winner.candidate.label, report

    winner, report = asyncio.run(run())
    assert winner == "sharp"
    store = tmp_path / "s" / "runs" / "runs.sqlite"
    with closing(sqlite3.connect(store)) as database:
        assert "base64" not in "\n".join(database.iterdump())
    data = json.loads(report.read_text().split('id="data">')[1].split("</script>")[0])
    assert all(len(pair["pictures"]) == 1 for pair in data["pairs"])
    pictures = {pair["example"]: data["texts"][pair["pictures"][0]] for pair in data["pairs"]}
    assert all(one.startswith("data:image/png;base64,") for one in pictures.values())
    assert sum("base64" in text for text in data["texts"]) == len(pictures)

    async def viewed() -> dict[str, Any]:
        async with (
            serve([store]) as address,
            aiohttp.ClientSession(address) as session,
            session.get("runs/0/latest/pairs/0") as answer,
        ):
            found: dict[str, Any] = await answer.json()
            return found

    example = asyncio.run(viewed())["example"]
    photo = tmp_path / "s" / "photos" / f"{int(example) - 1}.png"
    assert asyncio.run(viewed())["pictures"] == [
        Attachment("image_url", photo.name, photo.parent).read()
    ]
    answers = invoke(capsys, "answers", "--example", example, folder=tmp_path / "s")
    assert f"[image photos/{photo.name}, {photo.stat().st_size} bytes]" in answers.out
    photo.unlink()
    gone = invoke(capsys, "answers", "--example", example, folder=tmp_path / "s")
    assert f"[image photos/{photo.name}: there is no such file]" in gone.out
    assert asyncio.run(viewed())["pictures"] == []


@pytest.mark.parametrize("command", ["plan", "try", "select"])
def test_a_broken_picture_is_found_before_a_call(
    seeing: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = study_of(seeing, tmp_path / "s", confirm={"share": 0.5})
    (tmp_path / "s" / "photos" / "7.png").write_text("<html>not found</html>")
    before = len(seeing.received)
    done = invoke(capsys, command, path)
    assert done.code == 2
    assert "photos/7.png" in done.told
    assert "(example `000008`)" in done.told
    assert len(seeing.received) == before


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"model": "openai/dim", "options": {"images": False}}, "openai/dim"),
        ("openai/gpt-3.5-turbo", "openai/gpt-3.5-turbo"),
        ({"model": f"hf/{ROOT / 'examples/arithmetic/models/sum-llama-167k'}"}, "hf//"),
    ],
    ids=["by an option", "by the catalogue", "by its kind"],
)
def test_models_that_take_no_images_are_refused_by_name(
    seeing: FakeApi,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: object,
    name: str,
) -> None:
    done = invoke(capsys, "plan", study_of(seeing, tmp_path / "s", models=[model]))
    assert done.code == 2
    assert name in done.told
    assert "takes no images and files, which prompt `look` carries" in done.told


def test_a_function_is_given_parts_in_the_form_of_openai(
    seeing: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study_of(seeing, tmp_path / "s", 3, models=["python/eyes:look"])
    (tmp_path / "s" / "eyes.py").write_text(
        "from base64 import b64decode\n"
        "from tests.support.pictures import colour_of\n"
        "def look(task):\n"
        "    text, image = task.messages[0].content\n"
        "    assert text == {'type': 'text', 'text': 'Which colour is it?'}\n"
        "    return colour_of(b64decode(image['image_url']['url'].partition(',')[2]))\n"
    )
    done = invoke(capsys, "select", path)
    assert done.code == 0, done.err
    assert "3 of 3" in done.out
