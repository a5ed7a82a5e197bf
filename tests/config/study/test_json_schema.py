from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent.config.starter import schema_path, schema_text, study_schema

DOCS = Path(__file__).parents[3] / "docs"
ANEW = "publish the schema anew: nox -s generate"


@pytest.mark.parametrize("path", [schema_path(), DOCS / "study.schema.json"])
def test_published_schemas_are_those_of_the_code(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == schema_text(), ANEW


def test_the_schema_knows_short_forms_and_refuses_unknown_keys() -> None:
    schema = study_schema()
    definitions = schema["$defs"]
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"dataset", "scorer"}
    for name in ("ModelSpec", "DatasetSpec", "ScorerSpec", "SelectorSpec", "PromptSpec"):
        kinds = [form.get("type") for form in definitions[name]["anyOf"]]
        assert kinds[0] == "string"
        assert "object" in kinds[1:]
    model = definitions["ModelSpec"]["anyOf"][1]
    assert model["additionalProperties"] is False
    assert model["required"] == ["model"]
    assert (
        "additionalProperties" not in definitions["ScorerSpec"]["anyOf"][1]
        or definitions["ScorerSpec"]["anyOf"][1]["additionalProperties"]
    )


def test_every_key_of_the_schema_is_described() -> None:
    def undescribed(node: object, at: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        here = [
            f"{at}.{key}"
            for key, value in node.get("properties", {}).items()
            if "description" not in value and "$ref" not in value
        ]
        inner = [*node.get("anyOf", []), *node.get("$defs", {}).values()]
        return here + [item for part in inner for item in undescribed(part, at)]

    assert undescribed(json.loads(schema_text()), "study") == []
