"""Writes a study to start from: a commented file that runs as it is, on recorded answers."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bestarm_agent.config.documents import shown_path
from bestarm_agent.config.schema_json import SCHEMA_FILE, schema_path
from bestarm_agent.errors import ConfigError

_STUDY = "study.yaml"
_COMPANIONS = ("questions.jsonl", "answers.csv")
_SUFFIXES = (".yaml", ".yml")


def write_starter(path: Path) -> tuple[Path, ...]:
    """Write a study file, and next to it the dataset, the recorded answers and the schema it names.

    The schema is a copy: a path to the installed one would hold on this machine alone.

    Args:
        path: the study file to write; folders on the way to it are made.

    Returns:
        The files written, the study first.

    Raises:
        ConfigError: one of them exists or cannot be written; nothing is left behind then.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"a study to start from is YAML; name it {path.stem or 'study'}.yaml")
    study = _resource(_STUDY).replace("@SCHEMA@", SCHEMA_FILE)
    contents = {path: study.replace("@FILE@", path.name)}
    contents |= {path.with_name(name): _resource(name) for name in _COMPANIONS}
    contents[path.with_name(SCHEMA_FILE)] = schema_path().read_text(encoding="utf-8")
    _make_folder(path.parent)
    written: list[Path] = []
    try:
        for target, content in contents.items():
            with target.open("x", encoding="utf-8", newline="\n") as file:
                written.append(target)
                file.write(content)
    except OSError as error:
        for target in written:
            target.unlink()
        raise _refusal(error, path) from error
    return tuple(contents)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the folder {shown_path(folder)}: {error.strerror or error}"
        ) from error


def _refusal(error: OSError, path: Path) -> ConfigError:
    name = shown_path(Path(error.filename or path))
    if isinstance(error, FileExistsError):
        return ConfigError(
            f"{name} exists already and is not overwritten; choose another folder or name, or move "
            "it away"
        )
    return ConfigError(f"cannot write {name}: {error.strerror or error}")


def _resource(name: str) -> str:
    return (files("bestarm_agent.config") / "starter_files" / name).read_text(encoding="utf-8")
