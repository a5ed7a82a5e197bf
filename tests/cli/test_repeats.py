"""Studies with repeats: what is told before and after, and which commands take part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.load import study_from
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import invoke
from tests.support.studies import write_study

N = 30
CONTENT: dict[str, Any] = {
    "models": ["replay/a"],
    "prompts": [{"q": "?"}],
    "dataset": "d",
    "scorer": "exact",
}
Capsys = pytest.CaptureFixture[str]


def drawn_study(folder: Path, n_draws: int = 3, **changes: Any) -> Path:  # noqa: ANN401
    """A study over recorded draws: candidate i is right on a draw with chance .3 + .1 i."""
    path = write_study(folder, n_candidates=4, n_examples=N, changes={"repeats": 3, **changes})
    rng = KeyedRandom(1, "draws").at(0)
    rows = [
        {
            "candidate": f"c{i}",
            "example": f"e{j}",
            "attempt": draw + 1,
            "score": float(rng.random() < 0.3 + 0.1 * i),
        }
        for i in range(4)
        for j in range(N)
        for draw in range(n_draws)
    ]
    (folder / "scores.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_plan_counts_all_draws(tmp_path: Path, capsys: Capsys) -> None:
    drawn_study(tmp_path)
    plan = json.loads(invoke(capsys, "plan", "study.json", "--json", folder=tmp_path).out)
    assert plan["pulls"] == plan["expected"]["calls"] == 4 * N * 3
    assert (plan["n_examples"], plan["repeats"]) == (N, 3)
    said = invoke(capsys, "plan", "study.json", "--detect", "0.05", folder=tmp_path).out
    assert "4 candidates x 30 examples x 3 draws = 360 pairs" in said
    assert "30 examples tell apart candidates that differ by about .25" in said
    assert "there are 30 examples:" in said
    once = json.loads(
        invoke(capsys, "plan", drawn_study(tmp_path, repeats=1), "--json", folder=tmp_path).out
    )
    assert once["expected"]["calls"] == 4 * N


def test_draws_at_temperature_0_are_warned_of(tmp_path: Path, capsys: Capsys) -> None:
    changes: dict[str, Any] = {
        "models": ["openai/alpha"],
        "params": {"temperature": [0, 1.0]},
        "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "key": "none"}},
        "scorer": "exact",
        "dataset": {"path": "questions.jsonl", "target": "id"},
    }
    done = invoke(capsys, "plan", drawn_study(tmp_path, **changes), folder=tmp_path)
    assert done.code == 0, done.err
    said = " ".join((done.out + done.err).split())
    assert "repeats: 1 candidate at temperature 0, where 3 draws are (nearly) alike" in said


@pytest.mark.parametrize(
    ("repeats", "problem"),
    [
        (0, "must be at least 1, got 0"),
        (True, "repeats"),
        ("3", "must be a whole number"),
        ({"draws": 3}, "must be a whole number"),
    ],
)
def test_wrong_repeats_are_refused(repeats: Any, problem: str) -> None:  # noqa: ANN401
    assert study_from({**CONTENT, "repeats": 3}).config.repeats == 3
    with pytest.raises(ConfigError, match=problem):
        study_from({**CONTENT, "repeats": repeats})


def test_certificates_are_about_single_replies() -> None:
    with pytest.raises(ConfigError, match="certifies single replies"):
        study_from({**CONTENT, "repeats": 3, "certify": {"risk": 0.1, "judge": "exact"}})
