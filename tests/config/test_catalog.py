from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from bestarm_agent.config import catalog as catalog_module
from bestarm_agent.config.catalog import Catalog, Kind, read_entry
from bestarm_agent.errors import ConfigError

ROOT = Path(__file__).parents[2]
KINDS: tuple[Kind, ...] = ("providers", "judges", "prompts")


def declared(folder: Path, kind: Kind, name: str, text: str) -> Path:
    path = folder / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    declared(folder, "prompts", "plain.yaml", "text: shipped\n")
    declared(folder, "prompts", "only-shipped.yaml", "text: shipped\n")
    monkeypatch.setattr(catalog_module, "_shipped_folder", lambda: folder)
    return folder


def test_the_users_folder_comes_first_then_extra_then_shipped(
    tmp_path: Path, shipped: Path
) -> None:
    user, one, two = tmp_path / "user", tmp_path / "one", tmp_path / "two"
    declared(user, "prompts", "mine.yaml", "text: user\n")
    for folder in (one, two):
        declared(folder, "prompts", "mine.yaml", f"text: {folder.name}\n")
        declared(folder, "prompts", "plain.yaml", f"text: {folder.name}\n")
    found = Catalog(user, [one, two])
    assert found.get("prompts", "mine").data == {"text": "user"}
    assert found.get("prompts", "plain").data == {"text": "one"}
    assert found.get("prompts", "only-shipped").path.parent.parent == shipped
    assert found.shipped("prompts", "plain").data == {"text": "shipped"}
    assert found.names("prompts") == ["mine", "only-shipped", "plain"]
    assert found.names("judges") == []


def test_a_study_without_catalogue_folders_is_fine(tmp_path: Path, shipped: Path) -> None:
    assert shipped.is_dir()
    assert Catalog(tmp_path / "nowhere").names("prompts") == ["only-shipped", "plain"]


def test_unknown_names_are_answered_with_the_nearest(shipped: Path) -> None:
    assert shipped.is_dir()
    with pytest.raises(ConfigError, match=r"no prompt is called `plan`; did you mean `plain`\?"):
        Catalog().get("prompts", "plan")
    with pytest.raises(ConfigError, match=r"no judge is called `exact`; there are none"):
        Catalog().get("judges", "exact")
    with pytest.raises(ConfigError, match=r"lacks its own judge `exact`; reinstall"):
        Catalog().shipped("judges", "exact")


@pytest.mark.parametrize("name", ["../prompts/plain", "", ".", "..", "plain.yaml", "a\nb", "*"])
def test_names_are_not_paths(shipped: Path, name: str) -> None:
    assert shipped.is_dir()
    with pytest.raises(ConfigError, match="no prompt is called"):
        Catalog().get("prompts", name)


def test_prompts_may_be_plain_text(tmp_path: Path, shipped: Path) -> None:
    assert shipped.is_dir()
    declared(tmp_path, "prompts", "a.jinja", "{{ question }}\n\n")
    declared(tmp_path, "prompts", "b.txt", "{{ question }}")
    declared(tmp_path, "prompts", "README.md", "not an entry")
    declared(tmp_path, "prompts", ".hidden.yaml", "text: no")
    declared(tmp_path, "judges", "c.jinja", "not an entry")
    found = Catalog(tmp_path)
    assert found.get("prompts", "a").data == {"text": "{{ question }}\n"}
    assert found.get("prompts", "b").data == {"text": "{{ question }}"}
    assert found.names("prompts") == ["a", "b", "only-shipped", "plain"]
    assert found.names("judges") == []


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    declared(tmp_path, "prompts", "a.jinja", "x")
    declared(tmp_path, "prompts", "a.yaml", "text: x")
    with pytest.raises(ConfigError, match=r"a\.jinja and .*a\.yaml both declare `a`; keep one"):
        Catalog(tmp_path).get("prompts", "a")


def test_the_name_inside_must_be_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    declared(tmp_path, "judges", "mine.yaml", "adapter: exact\nname: other\n")
    with pytest.raises(
        ConfigError, match=r"^judges/mine\.yaml, line 2: `name` is 'other'.* `name: mine` or"
    ):
        Catalog(tmp_path).get("judges", "mine")


def test_malformed_files_are_named_relative_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declared(tmp_path, "judges", "mine.yaml", "adapter: exact\noptions: {a: [}\n")
    with pytest.raises(ConfigError, match=r"^judges/mine\.yaml, line 2, column 15: malformed"):
        Catalog(tmp_path).get("judges", "mine")


def test_entries_are_validated_with_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry(BaseModel):
        model_config = ConfigDict(extra="forbid")
        adapter: str

    monkeypatch.chdir(tmp_path)
    path = declared(tmp_path, "judges", "mine.yaml", "adapter: exact\nadaptor: exact\n")
    with pytest.raises(
        ConfigError,
        match=r"^judges/mine\.yaml, line 2: unknown option `adaptor`; did you mean `adapter`\?$",
    ):
        read_entry(path).parse(Entry)


def test_extra_folders_must_be_catalogues(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"catalogue folder .*none does not exist"):
        Catalog(extra_dirs=[tmp_path / "none"])
    with pytest.raises(ConfigError, match=r"holds none of providers, judges, prompts; name the"):
        Catalog(extra_dirs=[tmp_path])


def test_an_editable_install_reads_the_root_folders() -> None:
    found = Catalog()
    assert {"exact", "contains", "numeric", "regex", "multiple-choice"} <= set(
        found.names("judges")
    )
    assert {"completion", "question-answer", "chat", "chain-of-thought"} <= set(
        found.names("prompts")
    )
    assert found.get("judges", "exact").path.is_relative_to(ROOT / "judges")


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in Catalog().names(kind)]
)
def test_every_shipped_entry_says_what_it_is(kind: Kind, name: str) -> None:
    entry = Catalog().shipped(kind, name)
    assert entry.data["name"] == name
    assert len(str(entry.data["description"])) > 10


READ_ALL = """
import json, bestarm_agent
from bestarm_agent.config.catalog import Catalog
found = Catalog()
print(json.dumps({
    "package": bestarm_agent.__file__,
    **{kind: {name: str(found.get(kind, name).path) for name in found.names(kind)}
       for kind in ("providers", "judges", "prompts")},
}))
"""


@pytest.mark.slow
def test_a_wheel_carries_the_catalogue(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel needs hatchling")
    build = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    built = subprocess.run(
        [sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True, text=True
    )
    site = tmp_path / "site"
    with zipfile.ZipFile(tmp_path / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site)
    program = f"import sys; sys.path.insert(0, {str(site)!r}){READ_ALL}"
    read = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    found = json.loads(read.stdout)
    assert Path(found["package"]).is_relative_to(site)
    for kind in KINDS:
        assert sorted(found[kind]) == Catalog().names(kind)
        for path in found[kind].values():
            assert Path(path).is_relative_to(site / "bestarm_agent" / "_catalog" / kind)
