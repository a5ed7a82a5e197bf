"""The reference pages are those of the code, and name every key of ``--json``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.docs.generate import PAGES, ROOT

from bestarm_agent.config.starter import write_starter
from tests.support.commands import invoke

PAGE = ROOT / "docs" / "reference" / "json.md"
CANDIDATE = {"id", "model", "prompt", "params", "value"}  # said in the first paragraph


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), (
        "python -m benchmarks.docs.generate writes it anew"
    )


def keys_of(node: object) -> set[str]:
    """Return the keys of all objects in a JSON value, but for the user's own below ``params``."""
    if isinstance(node, dict):
        found = (keys_of(value) for key, value in node.items() if key not in ("params", "spec"))
        return set(node).union(*found)
    return set().union(*map(keys_of, node)) if isinstance(node, list) else set()


@pytest.mark.slow
def test_every_key_of_json_is_documented(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
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
        shown = invoke(capsys, "show", "--json", "--store", tmp_path / "runs" / "runs.sqlite")
        for found in map(json.loads, (ran.out, shown.out)):
            assert {"rows", "spent", "usd", "lower", "label"} <= keys_of(found)
            assert not {key for key in keys_of(found) - CANDIDATE if f"- `{key}`" not in page}
