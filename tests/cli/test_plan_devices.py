"""The plan says which devices each served model gets, and who takes turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import fake_nvidia_smi
from tests.support.commands import invoke

STUDY = """\
models: [vllm/small, vllm/large, vllm/polite]
prompts:
  - plain: "{{ q }}"
dataset: {path: d.jsonl, target: answer}
scorer: numeric
budget: {pulls: 4}
providers:
  vllm:
    serve:
      command: [/bin/true]
      models:
        small: {path: models/small, memory_gb: 20, replicas: 2}
        large: {path: models/large, gpus: 2}
        third: {path: models/third, memory_gb: 10}
      adapters:
        polite: {base: small, path: adapters/polite}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "d.jsonl").write_text('{"q": "1", "answer": "1"}\n{"q": "2", "answer": "2"}\n')
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def test_a_table_shows_the_placement(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvidia_smi.install(monkeypatch, study.parent, 81_920, 81_920, 81_920, visible="0,1,2")
    shown = invoke(capsys, "plan", study).out
    assert [line.split() for line in shown.splitlines() if " GB" in line] == [
        ["vllm/small", "0;", "2", "in", "turns", "20", "of", "85.9", "GB"],
        ["vllm/large", "0,1", "in", "turns", "85.9", "of", "85.9", "GB"],
        ["vllm/third", "2", "always", "10", "of", "85.9", "GB"],
    ]
    assert "vllm/small, vllm/large take turns: they do not fit onto their devices together" in shown
    placed = json.loads(invoke(capsys, "plan", study, "--json").out)["placed"]
    assert [(one["model"], one["devices"], one["turns_with"]) for one in placed] == [
        ("vllm/small", [[0], [2]], ["vllm/large"]),
        ("vllm/large", [[0, 1]], ["vllm/small"]),
        ("vllm/third", [[2]], []),
    ]


def test_where_nothing_is_assigned_there_is_no_table(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_nvidia_smi.install_broken(monkeypatch, study.parent)
    plain = STUDY.replace(", memory_gb: 20, replicas: 2", "")
    study.write_text(plain.replace(", memory_gb: 10", ""))
    shown = invoke(capsys, "plan", study).out
    assert "3 candidates x 2 examples" in shown
    assert "devices" not in shown
