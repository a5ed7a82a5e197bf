"""Images and files of prompts: where they are found, what is refused, what is read once."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bestarm_agent.config import attachments
from bestarm_agent.config.attachments import Attachment, brief, url_of
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.input_specs import DatasetSpec, PromptBody
from bestarm_agent.config.prompts import CompiledPrompt, check_prompt
from bestarm_agent.domain.values import (
    DataUrl,
    Example,
    Json,
    Message,
    content_of,
)
from bestarm_agent.errors import ConfigError
from tests.support.pictures import pdf, png

LOOK = ["Which colour?", {"image": "{{ photo }}"}]


def prompt_of(content: object, folder: Path = Path(), role: str = "user") -> CompiledPrompt:
    spec = PromptBody.model_validate({"messages": [{"role": role, "content": content}]})
    return CompiledPrompt(spec.template("look"), folder=folder)


def message_of(prompt: CompiledPrompt, **inputs: Json) -> Message:
    rendered = prompt.render(inputs)
    assert not isinstance(rendered, str)
    return rendered[0]


def data_url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def test_one_picture_is_the_same_wherever_it_lies(tmp_path: Path) -> None:
    red = png("red")
    for name in ("a.png", "b.jpg"):
        (tmp_path / name).write_bytes(red)
    prompt = prompt_of(LOOK, tmp_path)
    values = ("a.png", "./b.jpg", data_url(red), data_url(red, "image/jpeg"))
    found = [message_of(prompt, photo=value) for value in values]
    assert len({str(one.as_json()) for one in found}) == 1, "keys depend on the content alone"
    assert all(content_of(one.content[1]) == data_url(red) for one in found if one.content)  # type: ignore[arg-type]
    assert found[0].text == f"Which colour?\n[image a.png, {len(red)} bytes]"
    (tmp_path / "a.png").write_bytes(png("blue"))
    assert message_of(prompt, photo="a.png").as_json() != found[0].as_json(), "it has changed"


def test_addresses_are_sent_as_they_are_and_plain_prompts_stay_texts() -> None:
    photo = "https://host/a.png?size=2"
    content = message_of(prompt_of(LOOK), photo=photo).content
    assert content[1] == {"type": "image_url", "image_url": {"url": photo}}
    assert message_of(prompt_of("{{ photo }}"), photo="a.png") == Message("user", "a.png")


def test_a_file_is_read_once_for_all_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(png("green"))
    encoded: list[int] = []

    def counted(content: bytes) -> bytes:
        encoded.append(len(content))
        return b64encode(content)

    monkeypatch.setattr(attachments, "b64encode", counted)
    for words in ("Which colour?", "Name the colour."):
        prompt = prompt_of([words, {"image": "{{ photo }}"}], tmp_path)
        message_of(prompt, photo="a.png").as_json()
    assert len(encoded) == 1


PAPER = {"file": "{{ photo }}"}
REFUSED: list[tuple[str, Mapping[str, str], object, str]] = [
    ("missing", {"image": "{{ photo }}"}, "gone.png", "`gone.png` cannot be read from"),
    ("a folder", {"image": "{{ photo }}"}, "sub", "`sub` cannot be read from"),
    ("nothing", {"image": "{{ photo }}"}, "", "cannot be read"),
    ("outside", {"image": "{{ photo }}"}, "../a.png", "leaves the folder of the dataset"),
    ("in disguise", {"image": "{{ photo }}"}, "sub/../../a.png", "leaves the folder"),
    ("absolute", {"image": "{{ photo }}"}, "/etc/hostname", "leaves the folder"),
    ("no picture", {"image": "{{ photo }}"}, "page.png", "is no PNG, JPEG, GIF or WebP by its"),
    ("a PDF", {"image": "{{ photo }}"}, "paper.pdf", "is a PDF, which is a `file`"),
    ("no PDF", PAPER, "a.png", "is no PDF by its first bytes"),
    (
        "huge",
        {"image": "{{ photo }}"},
        "huge.png",
        "has 30,000,000 bytes, at most 20,000,000 are sent",
    ),
    ("a page", PAPER, "https://host/a.pdf", "costs by its pages, which an address does not tell"),
    ("broken data", {"image": "{{ photo }}"}, "data:image/png;base64,?", "cannot be read"),
    ("data of a page", {"image": "{{ photo }}"}, "data:text/html;base64,aGk=", "is no PNG, JPEG"),
    ("zero", {"image": "{{ photo }}"}, "\0", "cannot be read"),
    ("null", {"image": "{{ photo }}"}, None, "a value is null"),
]


@pytest.mark.parametrize(("part", "value", "complaint"), [one[1:] for one in REFUSED])
def test_what_cannot_be_sent_is_found_before_a_call(
    tmp_path: Path, part: Mapping[str, str], value: Json, complaint: str
) -> None:
    """With the example, the field, the path and the way out."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "page.png").write_text("<html>not found</html>")
    (tmp_path / "paper.pdf").write_bytes(pdf(2))
    (tmp_path / "a.png").write_bytes(png("red"))
    with (tmp_path / "huge.png").open("wb") as file:
        file.write(png("red"))
        file.truncate(30_000_000)
    good = "paper.pdf" if part is PAPER else "a.png"
    prompt = prompt_of(["What?", part], tmp_path)
    examples = [Example("good", {"photo": good}), Example("bad", {"photo": value})]
    assert check_prompt(prompt, examples[:1]) is examples[0]
    with pytest.raises(ConfigError) as error:
        check_prompt(prompt, examples)
    assert complaint in str(error.value)
    assert "(example `bad`)" in str(error.value)
    assert "prompt `look`" in str(error.value)
    if value is not None:
        assert "{{ photo }}" in str(error.value)
        with pytest.raises(ConfigError):
            prompt.render(examples[1].inputs)


@pytest.mark.parametrize(
    ("content", "role", "complaint"),
    [
        ([], "user", "at least 1 item"),
        ([{}], "user", "needs exactly one of"),
        ([{"text": "a", "image": "b"}], "user", "needs exactly one of"),
        ([{"audio": "{{ a }}"}], "user", "Extra inputs"),
        ([3], "user", "must be a text or a mapping"),
        (LOOK, "system", "only messages of the role `user` have"),
        (LOOK, "assistant", "only messages of the role `user` have"),
    ],
)
def test_malformed_parts_are_refused(content: object, role: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        prompt_of(content, role=role)


@pytest.mark.parametrize(
    ("content", "pages"),
    [(pdf(3), 3), (pdf(40, packed=True), 40), (b"%PDF-1.7" + bytes(5000), 3), (png("red"), 1)],
    ids=["plain", "packed", "not to be counted", "an image"],
)
def test_pages_are_counted(content: bytes, pages: int) -> None:
    kind = "file" if b"%PDF" in content else "image_url"
    found = Attachment(kind, data_url(content), Path())
    url = found.read()
    assert isinstance(url, DataUrl)
    assert found.check() == url.pages == pages


def test_the_example_with_most_pages_is_known(tmp_path: Path) -> None:
    for n in (2, 9, 4):
        (tmp_path / f"{n}.pdf").write_bytes(pdf(n))
    examples = [Example(f"e{n}", {"photo": f"{n}.pdf"}) for n in (2, 9, 4)]
    assert check_prompt(prompt_of([PAPER], tmp_path), examples) is examples[1]
    assert check_prompt(prompt_of("{{ photo }}"), examples) is None


def test_types_are_told_by_first_bytes() -> None:
    heads = (b"\xff\xd8\xff\xe0", b"GIF87a", b"RIFF\0\0\0\0WEBPVP8 ", b"RIFF\0\0\0\0WAVE", b"<svg")
    urls = [url_of(head) for head in heads]
    types = [None if url is None else url[5:].partition(";")[0] for url in urls]
    assert types == ["image/jpeg", "image/gif", "image/webp", None, None]


def test_bytes_of_a_column_are_read_and_shown_by_their_size(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    red = png("red")
    (tmp_path / "a.png").write_bytes(red)

    def examples(column: list[Any]) -> tuple[Example, ...]:
        parquet.write_table(arrow.table({"photo": column}), tmp_path / "rows.parquet")
        return read_examples(DatasetSpec(path="rows.parquet"), tmp_path)

    columns = ([{"bytes": red, "path": "x.png"}], [red], [{"bytes": None, "path": "a.png"}])
    prompt = prompt_of(LOOK, tmp_path)
    found = [message_of(prompt, **dict(examples(one)[0].inputs)) for one in columns]
    assert len({str(one.as_json()) for one in found}) == 1
    assert brief(examples(columns[0])[0].inputs["photo"]) == f"image/png, {len(red)} bytes"
    with pytest.raises(ConfigError, match="row 1: field `photo` holds bytes of no PNG"):
        examples([{"bytes": b"RIFF", "path": "x.wav"}])


def test_worked_examples_show_their_images(tmp_path: Path) -> None:
    for colour in ("red", "blue"):
        (tmp_path / f"{colour}.png").write_bytes(png(colour))
    spec = PromptBody.model_validate({"messages": [{"role": "user", "content": LOOK}]})
    shot = Example("s", {"photo": "red.png"}, "red")
    template = replace(spec.template("look"), n_shots=1, shots=(shot,))
    prompt = CompiledPrompt(template, folder=tmp_path)
    found = [one for one in prompt.render({"photo": "blue.png"}) if isinstance(one, Message)]
    assert [one.role for one in found] == ["user", "assistant", "user"]
    urls = [content_of(found[at].content[1]) for at in (0, 2)]  # type: ignore[arg-type]
    assert urls == [data_url(png("red")), data_url(png("blue"))]
    assert len(prompt.attachments({"photo": "blue.png"})) == 2, "both are checked and counted"


def test_a_symbolic_link_leaves_the_folder_only_where_the_study_allows_it(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png("red"))
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "real.png").write_bytes(png("green"))
    (folder / "out.png").symlink_to(tmp_path / "secret.png")
    (folder / "sub" / "up").symlink_to(tmp_path)
    (folder / "inside.png").symlink_to(folder / "real.png")
    template = prompt_of(LOOK)._template
    strict = CompiledPrompt(template, folder=folder)
    for name in ("real.png", "inside.png"):
        message_of(strict, photo=name).as_json()
    for name in ("out.png", "sub/up/secret.png"):
        with pytest.raises(ConfigError, match="by a symbolic link; copy it there, or trust"):
            message_of(strict, photo=name).as_json()
        message_of(CompiledPrompt(template, folder=folder, links=True), photo=name).as_json()


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="is a pipe or a device"):
        message_of(prompt_of(LOOK, tmp_path), photo="a.png").as_json()
