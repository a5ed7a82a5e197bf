"""Where a model's name leads: a folder, the cache, the hub, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf.folder import ModelFolders, locate

hub = pytest.importorskip("huggingface_hub", reason="needs the extra hf")


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


def test_a_folder_of_the_study_comes_first(tmp_path: Path, cache: Path) -> None:
    put_into(cache, "org/model")
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert locate("org/model", tmp_path, download=False) == tmp_path / "org" / "model"


def test_the_cache_comes_next(tmp_path: Path, cache: Path) -> None:
    snapshot = put_into(cache, "org/model")
    assert locate("org/model", tmp_path, download=False) == snapshot


def test_offline_nothing_else_is_tried(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set") as caught:
        locate("org/model", tmp_path, download=True)
    assert "org/model" in str(caught.value)


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


@pytest.mark.usefixtures("online")
def test_what_looks_like_a_path_is_not_looked_for_on_the_hub(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "models" / "small").mkdir(parents=True)
    for model, way_out in [
        ("models/smal", "did you mean `small`?"),
        ("models/a/b", "correct the path"),
        ("gpt2-like", "did you mean"),
        ("--/x", "can be no model's name"),
    ]:
        if model == "gpt2-like":
            (tmp_path / "gpt2-lake").mkdir()
        with pytest.raises(ConfigError) as caught:
            locate(model, tmp_path, download=True)
        assert way_out in str(caught.value)


@pytest.mark.usefixtures("online")
def test_a_shelf_lets_a_model_pass_that_is_still_to_be_downloaded(
    tmp_path: Path, cache: Path
) -> None:
    shelf = ModelFolders(tmp_path, "float32", None)
    assert shelf.find("org/model") is None
    assert len(shelf) == 0
