from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bestarm_agent.config.candidates import expand
from bestarm_agent.config.load import load_study
from bestarm_agent.config.starter import schema_path, write_starter
from bestarm_agent.domain.values import PromptTemplate
from bestarm_agent.errors import ConfigError


def test_the_starter_is_a_valid_study(tmp_path: Path) -> None:
    written = write_starter(tmp_path / "new" / "my-study.yaml")
    assert [path.name for path in written] == [
        "my-study.yaml",
        "questions.jsonl",
        "answers.csv",
        "study.schema.json",
    ]
    config = load_study(written[0], environ={}).config
    prompts = {p.name: PromptTemplate(p.name, p.text) for p in config.prompts if p.name and p.text}
    found, notices = expand(config, prompts, lambda provider, model: frozenset())
    assert [candidate.label for candidate in found] == ["careful", "quick", "largest-city"]
    assert not notices


def test_every_question_of_the_starter_has_an_answer_of_every_candidate(tmp_path: Path) -> None:
    study, questions, answers, _ = write_starter(tmp_path / "study.yaml")
    config = load_study(study, environ={}).config
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    assert all({"id", "country", config.dataset.target} <= row.keys() for row in rows)
    with answers.open(encoding="utf-8", newline="") as file:
        recorded = {(row["candidate"], row["example"]) for row in csv.DictReader(file)}
    assert recorded == {(spec.name, row["id"]) for spec in config.models for row in rows}
    assert config.providers["replay"] == {"path": answers.name}


def test_the_starter_tells_editors_the_schema_and_users_the_command(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_starter(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# yaml-language-server: $schema=study.schema.json"
    assert (tmp_path / "study.schema.json").read_bytes() == schema_path().read_bytes()
    assert str(tmp_path) not in "".join(lines)
    assert "#     bestarm-agent select mine.yaml" in lines
    assert "@" not in "".join(lines)


def test_commented_lines_of_the_starter_are_valid_too(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    write_starter(path)
    text = path.read_text(encoding="utf-8")
    for commented in (
        "# params:\n#   effort: [none, low]\n#   max_tokens: 1000\n",
        "  # usd: $5\n  # minutes: 10\n",
        "  # hf:\n  #   threads: 2\n",
    ):
        assert commented in text
        text = text.replace(commented, commented.replace("# ", "").replace("#", ""))
    path.write_text(text, encoding="utf-8")
    config = load_study(path).config
    assert config.params == {"effort": ["none", "low"], "max_tokens": 1000}
    assert (config.budget.usd, config.budget.minutes) == (5, 10)
    assert config.providers["hf"] == {"threads": 2}


@pytest.mark.parametrize("name", ["study.yaml", "answers.csv", "study.schema.json"])
def test_nothing_is_overwritten_and_nothing_left_behind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{name} exists already and is not overwritten"):
        write_starter(tmp_path / "study.yaml")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_unwritable_places_and_other_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"file exists already and is not overwritten"):
        write_starter(tmp_path / "file" / "study.yaml")
    with pytest.raises(ConfigError, match=r"a study to start from is YAML; name it study\.yaml"):
        write_starter(tmp_path / "study.json")
