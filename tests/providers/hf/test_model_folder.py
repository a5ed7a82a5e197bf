"""Model folders: what is found out before anything is loaded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf.folder import ModelFolder, content_digest


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> ModelFolder:
    """A good folder that the test may spoil."""
    shutil.copytree(models / "llama", tmp_path / "llama")
    return ModelFolder(tmp_path / "llama", "models/llama")


def set_config(folder: ModelFolder, **changes: Json) -> ModelFolder:
    path = folder.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return ModelFolder(folder.path, folder.shown)


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


def test_truncated_weights_are_refused(folder: ModelFolder) -> None:
    weights = folder.path / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 100)
    message = problem(folder)
    assert "models/llama/model.safetensors is no whole safetensors file" in message
    assert "download the model again" in message


@pytest.mark.parametrize(
    "content",
    [b"", b"\x01", b"garbage that is no header at all", b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 64],
)
def test_garbage_is_no_safetensors_file(folder: ModelFolder, content: bytes) -> None:
    (folder.path / "model.safetensors").write_bytes(content)
    assert "model.safetensors is no whole safetensors file" in problem(folder)


def test_weights_without_a_tensor_are_refused(folder: ModelFolder) -> None:
    (folder.path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    assert "hold no tensor" in problem(folder)


def test_shards_must_all_be_there(folder: ModelFolder) -> None:
    whole = folder.n_parameters
    (folder.path / "model.safetensors").rename(folder.path / "a.safetensors")
    index = folder.path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "a.safetensors"}}))
    sharded = ModelFolder(folder.path, folder.shown)
    sharded.check()
    assert sharded.n_parameters == whole
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert "models/llama/b.safetensors is missing" in problem(
        ModelFolder(folder.path, folder.shown)
    )
    index.write_text("{}")
    assert "no `weight_map`" in problem(ModelFolder(folder.path, folder.shown))


def test_pickles_are_refused(folder: ModelFolder) -> None:
    (folder.path / "model.safetensors").rename(folder.path / "pytorch_model.bin")
    message = problem(folder)
    assert "pytorch_model.bin, a pickle" in message
    assert "save_pretrained" in message


def test_missing_files_are_named(folder: ModelFolder) -> None:
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        (folder.path / name).unlink()
        assert f"holds no {name}" in problem(ModelFolder(folder.path, folder.shown))


@pytest.mark.parametrize("content", ["{", "[]", '{"hidden_size": 3}'])
def test_malformed_configurations_are_refused(folder: ModelFolder, content: str) -> None:
    (folder.path / "config.json").write_text(content)
    assert "models/llama/config.json" in problem(folder)


def test_malformed_tokenizers_are_refused(folder: ModelFolder) -> None:
    (folder.path / "tokenizer.json").write_text('{"model": "none"}')
    assert "models/llama/tokenizer.json cannot be read" in problem(folder)


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
    path = tmp_path / "f"
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    first = content_digest(path)
    path.write_text("two")
    os.utime(path, ns=(1, 1))
    assert content_digest(path) == first  # same size, same time: not read again
    os.utime(path, ns=(2, 2))
    assert content_digest(path) != first
