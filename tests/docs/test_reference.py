"""The reference pages are those of the code, and ``--json`` is what its schema says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from benchmarks.docs.generate import PAGES, ROOT

from bestarm_agent.config.starter import write_starter
from tests.support.commands import invoke

RESULT = ROOT / "docs" / "reference" / "result.schema.json"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), (
        "python -m benchmarks.docs.generate writes it anew"
    )


def closed(node: object) -> None:
    """Let the objects of a schema have no other keys than those that it lists."""
    if isinstance(node, dict):
        if "properties" in node:
            node["additionalProperties"] = False
        for value in node.values():
            closed(value)


@pytest.mark.slow
def test_the_output_of_json_has_exactly_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema: dict[str, Any] = json.loads(RESULT.read_text(encoding="utf-8"))
    closed(schema)
    study = tmp_path / "study.yaml"
    write_starter(study)
    answers = tmp_path / "answers.csv"
    head, *rows = answers.read_text(encoding="utf-8").splitlines()
    answers.write_text("\n".join([f"{head},usd", *(f"{row},0.001" for row in rows)]))
    for objective in ("best", "cheapest-within-epsilon"):
        ran = invoke(
            capsys, "select", study, "--json", "--quiet", "--set", f"objective={objective}"
        )
        assert ran.code in (0, 3), ran.err
        jsonschema.validate(json.loads(ran.out), schema)
        shown = invoke(capsys, "show", "--json", "--store", tmp_path / "runs" / "runs.sqlite")
        jsonschema.validate(json.loads(shown.out), schema)
