"""Write a study to start from, which runs on recorded answers, and the JSON schema of studies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from bestarm_agent.config.files import shown_path
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.errors import ConfigError

SCHEMA_FILE = "study.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_STUDY = "study.yaml"
_COMPANIONS = ("questions.jsonl", "answers.csv")
_SUFFIXES = (".yaml", ".yml")


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: CoreSchema) -> bool:
        """Leave titles out: they only repeat the keys."""
        return False


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files, with which editors complete and check them."""
    schema = StudyConfig.model_json_schema(schema_generator=_Generator)
    schema["properties"]["$schema"] = {
        "type": "string",
        "description": "Where this schema is, for editors of JSON files.",
    }
    return {"$schema": _DIALECT, **schema, "title": "bestarm-agent study"}


def schema_text() -> str:
    """Return the schema as it is published."""
    return json.dumps(study_schema(), indent=2, ensure_ascii=False) + "\n"


def schema_path() -> Path:
    """Return the path of the schema that ships with the package."""
    return Path(str(files("bestarm_agent.config") / SCHEMA_FILE))


def write_starter(path: Path) -> tuple[Path, ...]:
    """Write a study file with dataset, recorded answers and schema, as ``write_new``; return them.

    The schema is a copy: the path of the installed one is valid on this machine only.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"a study to start from is YAML; name it {path.stem or 'study'}.yaml")
    study = _resource(_STUDY).replace("@SCHEMA@", SCHEMA_FILE)
    contents = {path: study.replace("@FILE@", path.name)}
    contents |= {path.with_name(name): _resource(name) for name in _COMPANIONS}
    contents[path.with_name(SCHEMA_FILE)] = schema_path().read_text(encoding="utf-8")
    return write_new(contents)


def write_new(contents: Mapping[Path, str]) -> tuple[Path, ...]:
    """Write files into one folder, which is made if need be; return their paths.

    Raises ConfigError if a file exists or cannot be written; nothing is left behind then.
    """
    written: list[Path] = []
    path = next(iter(contents))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, content in contents.items():
            # Mode "x" makes and checks in one step: nothing that appeared in the meantime is
            # overwritten.
            with target.open("x", encoding="utf-8", newline="\n") as file:
                written.append(target)
                file.write(content)
    except OSError as error:
        # All or nothing: half a set of files would be refused at the next try, since some exist
        # already.
        for target in written:
            target.unlink()
        raise _refusal(error, path) from error
    return tuple(contents)


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
