"""The JSON schema of study files, by which editors complete and check them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from bestarm_agent.config.schema import StudyConfig

SCHEMA_FILE = "study.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: CoreSchema) -> bool:
        """Leave titles out, which only repeat the keys."""
        return False


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of study files."""
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


def write_schema(*paths: Path) -> None:
    """Write the schema to files, to publish it anew after a change."""
    for path in paths:
        path.write_text(schema_text(), encoding="utf-8")
