"""Model folders: what is found out before anything is loaded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf.folder import ModelFolder, content_digests, locate
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.providers.hf.tokenizer import (
    TextCodec,
    load_tokenizer,
    max_text_tokens,
)

hub = pytest.importorskip("huggingface_hub", reason="needs the extra hf")
FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> ModelFolder:
    """A good folder that the test may spoil."""
    shutil.copytree(models / "llama", tmp_path / "llama")
    return ModelFolder(tmp_path / "llama", "models/llama")


def set_config(folder: ModelFolder, **changes: Json) -> ModelFolder:
    path = folder.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return ModelFolder(folder.path, folder.subject)


def problem(folder: ModelFolder) -> str:
    with pytest.raises(ConfigError) as caught:
        folder.check()
    message = str(caught.value)
    assert message.startswith("models/llama")
    assert str(folder.path) not in message
    return message


def test_a_good_folder_passes(folder: ModelFolder) -> None:
    folder.check()
    # 103 embeddings of 32; per layer 4 x 32 x 32 attention, 3 x 32 x 64 feed-forward, 2 x 32 norms;
    # a last norm
    assert folder.n_parameters == 103 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32
    assert folder.context_length == 64
    assert folder.has_chat_template


WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
NO_WHOLE = "models/llama/model.safetensors is no whole safetensors file"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (WEIGHTS, b"", NO_WHOLE),
        (WEIGHTS, b"\x01", NO_WHOLE),
        (WEIGHTS, b"garbage that is no header at all", NO_WHOLE),
        (WEIGHTS, b"\x02\0\0\0\0\0\0\0[]", NO_WHOLE),
        (WEIGHTS, b"\xff" * 64, NO_WHOLE),
        (WEIGHTS, b"\x02\0\0\0\0\0\0\0{}", "hold no tensor"),
        (CONFIG, b"{", "models/llama/config.json"),
        (CONFIG, b"[]", "models/llama/config.json"),
        (CONFIG, b'{"hidden_size": 3}', "models/llama/config.json"),
        (TOKENIZER, b'{"model": "none"}', "models/llama/tokenizer.json cannot be read"),
        (WEIGHTS, None, "holds no model.safetensors"),
        (TOKENIZER, None, "holds no tokenizer.json"),
        (CONFIG, None, "holds no config.json"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_named(
    folder: ModelFolder, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (folder.path / name).unlink()
    else:
        (folder.path / name).write_bytes(content)
    assert message in problem(folder)


def test_truncated_weights_are_refused(folder: ModelFolder) -> None:
    weights = folder.path / WEIGHTS
    os.truncate(weights, weights.stat().st_size - 100)
    message = problem(folder)
    assert NO_WHOLE in message
    assert "download the model again" in message


def test_shards_must_all_be_there(folder: ModelFolder) -> None:
    whole = folder.n_parameters
    (folder.path / "model.safetensors").rename(folder.path / "a.safetensors")
    index = folder.path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}))
    sharded = ModelFolder(folder.path, folder.subject)
    sharded.check()
    assert sharded.n_parameters == whole
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert "models/llama/b.safetensors is missing" in problem(
        ModelFolder(folder.path, folder.subject)
    )
    index.write_text("{}")
    assert "no `weight_map`" in problem(ModelFolder(folder.path, folder.subject))


def test_pickles_are_refused(folder: ModelFolder) -> None:
    (folder.path / "model.safetensors").rename(folder.path / "pytorch_model.bin")
    message = problem(folder)
    assert "pytorch_model.bin, a pickle" in message
    assert "save_pretrained" in message


def test_a_tokenizer_may_come_in_another_form(folder: ModelFolder) -> None:
    (folder.path / "tokenizer.json").rename(folder.path / "tokenizer.model")
    folder.check()


def test_the_context_length_goes_by_many_names(folder: ModelFolder) -> None:
    without = set_config(folder, max_position_embeddings=None)
    assert without.context_length is None
    assert set_config(without, n_positions=7).context_length == 7
    assert set_config(without, text_config={"max_position_embeddings": 9}).context_length == 9


def test_chat_templates_are_found_where_they_are(folder: ModelFolder) -> None:
    (folder.path / "chat_template.jinja").unlink()
    assert not ModelFolder(folder.path, "x").has_chat_template
    path = folder.path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "{{ 1 }}"}))
    assert ModelFolder(folder.path, "x").has_chat_template
    path.unlink()
    assert not ModelFolder(folder.path, "x").has_chat_template


def test_digests_are_computed_again_when_a_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    first = content_digests(tmp_path)
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert content_digests(tmp_path) == first  # same size, same time: not read again
    os.utime(path, ns=(2, 2))
    assert content_digests(tmp_path) != first


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, laid out as huggingface_hub does."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


def put_into(cache: Path, model: str) -> Path:
    repository = cache / f"models--{model.replace('/', '--')}"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123")
    return snapshot


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_a_folder_of_the_study_comes_first_the_cache_next_and_offline_nothing_else(
    tmp_path: Path, cache: Path
) -> None:
    with pytest.raises(ConfigError, match=r"org/model.*HF_HUB_OFFLINE is set"):
        locate("org/model", tmp_path, download=True)
    snapshot = put_into(cache, "org/model")
    assert locate("org/model", tmp_path, download=False) == snapshot
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert locate("org/model", tmp_path, download=False) == tmp_path / "org" / "model"


@pytest.mark.usefixtures("online")
def test_online_the_hub_is_asked_only_to_download(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def snapshot_download(model: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        asked.append(local_files_only)
        if local_files_only:
            raise hub.errors.LocalEntryNotFoundError("not there")
        assert "*.safetensors" in allow_patterns
        assert "*.bin" not in allow_patterns
        return str(put_into(cache, model))

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert locate("org/model", tmp_path, download=False) is None
    assert asked == [True]
    found = locate("org/model", tmp_path, download=True)
    assert found is not None
    assert found.is_dir()
    assert asked == [True, True, False]


@pytest.mark.usefixtures("online")
def test_a_download_that_fails_says_the_way_out(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def snapshot_download(*_: object, local_files_only: bool, **__: object) -> str:
        error = hub.errors.LocalEntryNotFoundError if local_files_only else OSError
        raise error("no route to host\nand much more")

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    with pytest.raises(
        ConfigError, match="cannot be downloaded: no route to host; correct the name"
    ):
        locate("org/model", tmp_path, download=True)


@pytest.mark.usefixtures("online", "cache")
@pytest.mark.parametrize(
    ("model", "way_out"),
    [
        ("models/smal", r"did you mean `small`\?"),
        ("models/a/b", "correct the path"),
        ("gpt2-like", "did you mean"),
        ("--/x", "can be no model's name"),
    ],
)
def test_what_looks_like_a_path_is_not_looked_for_on_the_hub(
    tmp_path: Path, model: str, way_out: str
) -> None:
    (tmp_path / "models" / "small").mkdir(parents=True)
    (tmp_path / "gpt2-lake").mkdir()
    with pytest.raises(ConfigError, match=way_out):
        locate(model, tmp_path, download=True)


@pytest.mark.usefixtures("online")
def test_a_model_that_is_still_to_be_downloaded_passes(tmp_path: Path, cache: Path) -> None:
    provider = HfProvider.create("hf", {}, tmp_path)
    provider.check("org/model")
    provider.check_machine("org/model")
    assert not provider.loads_one_at_a_time


@given(text=st.text(max_size=40))
@example("¹À")  # what one form makes longer another makes shorter
@example("¯🯰")  # Unicode 13, which the tokenizers' tables may not know
def test_no_byte_level_tokenizer_makes_more_tokens(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for form in FORMS:
        normalizer = getattr(tokenizers.normalizers, form)()
        n_bytes = len(normalizer.normalize_str(text).encode())
        assert n_bytes <= max_text_tokens(text)


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_bounds_cover_the_tokens_of_texts_and_chats(models: Path, model: str) -> None:
    folder = ModelFolder(models / model, model)
    codec = TextCodec(load_tokenizer(folder.path))
    for contents in (["1+2"], ["a", "bc", "é∑½"], [""]):
        chat = Request(model=model, messages=tuple(Message("user", text) for text in contents))
        plain = Request(model=model, text="".join(contents))
        for request in (chat, plain):
            (tokens,) = codec.encode([request])
            assert isinstance(tokens, list)
            assert len(tokens) <= folder.max_prompt_tokens(request) <= 64


def test_a_template_that_repeats_itself_is_bounded_too(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "echo"
    tokenizer = load_tokenizer(models / "gpt2")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] * 3 }}!{% endfor %}"
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    messages = (Message("user", "abcd"), Message("user", "efghij"))
    request = Request(model="echo", messages=messages)
    (tokens,) = TextCodec(load_tokenizer(folder)).encode([request])
    assert isinstance(tokens, list)
    assert len(tokens) == 3 * 10 + 2
    assert 32 <= ModelFolder(folder, "echo").max_prompt_tokens(request) <= 50
