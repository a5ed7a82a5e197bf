"""llms.txt lists the pages of the site, and SKILL.md holds what works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.commands import invoke

ROOT = Path(__file__).parents[2]
SKILL = (ROOT / "SKILL.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages(entry: object) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict | list):
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(inner)


def test_the_index_lists_the_pages_of_the_site_in_their_order() -> None:
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert re.findall(r"^- \[.+\]\(docs/(.+?)\): \S", text, re.M) == list(pages(navigation))


def test_the_skill_is_found_by_its_head() -> None:
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert head["name"] == "bestarm-agent"
    assert 100 < len(head["description"]) < 1024
    assert SKILL.count("\n") < 100


@pytest.mark.slow
def test_the_five_commands_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = next(text for kind, text in BLOCK.findall(SKILL) if kind == "bash").splitlines()
    assert len(lines) == 5
    for line in lines:
        words = line.partition("#")[0].split()[1:]
        done = invoke(capsys, *words, folder=tmp_path)
        assert done.code == 0, (line, done.err)
        if "--json" in words:
            result = json.loads(done.out)
            for key in ("established", "winner", "margin", "candidates", "spent", "share"):
                assert key in result
                assert f"`{key}" in SKILL


def test_the_study_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
    study = next(text for kind, text in BLOCK.findall(SKILL) if kind == "yaml")
    (tmp_path / "study.yaml").write_text(study, encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    done = invoke(capsys, "plan", folder=tmp_path)
    assert done.code == 0, done.err
