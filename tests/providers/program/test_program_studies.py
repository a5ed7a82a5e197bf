"""Studies whose candidates are programs, with the models that they call and a budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import ConfigError
from tests.support.studies import run_all, run_study, study_file
from tests.support.virtual_time import LoopClock, run_virtual

CHAINS = """
from bestarm_agent import CandidateError

async def one_step(task):
    return (await task.models.ask("replay/weak", task.prompt)).text

async def two_steps(task):
    draft = await task.models.ask("replay/weak", task.prompt)
    if draft.text == "?":
        return (await task.models.ask("replay/strong", task.prompt)).text
    return draft

def lookup(task):
    if task.inputs["n"] % 2:
        raise CandidateError("an odd one")
    return str(task.inputs["n"])
"""


BOUNDS = {"max_calls": 2, "max_tokens": 40, "usd_per_call": "0.011", "max_gpu_seconds": 0}
TAPE: Json = {"path": "tape.jsonl"}
MODELS: Json = ["replay/weak", "replay/strong"]


def write_study(folder: Path, **changes: Json) -> Path:
    """Twelve numbers to be said, of which the weak model knows two thirds."""
    tape = [
        {
            "candidate": model,
            "example": str(n),
            "text": str(n) if n % 3 or model == "strong" else "?",
            "input_tokens": 10,
            "output_tokens": 1,
            "usd": price,
        }
        for n in range(12)
        for model, price in (("weak", 0.001), ("strong", 0.01))
    ]
    rows = [{"id": str(n), "n": n, "answer": str(n)} for n in range(12)]
    study = {
        "models": [f"python/chains:{name}" for name in ("one_step", "two_steps", "lookup")],
        "prompts": [{"q": "say {{ n }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer", "id": "id"},
        "scorer": "exact",
        "providers": {"replay": TAPE, "python": {"models": MODELS, **BOUNDS}},
        **changes,
    }
    (folder / "chains.py").write_text(CHAINS)
    return study_file(folder, {"tape": tape, "rows": rows}, **study)


def scores(standing: Standing) -> Mapping[str, float | None]:
    return {row.candidate.label.split(":")[-1].split(" ")[0]: row.estimate for row in standing.rows}


def test_chains_are_compared_and_every_call_inside_is_paid_for(tmp_path: Path) -> None:
    standing, study = run_study(write_study(tmp_path))
    assert scores(standing) == {"one_step": 8 / 12, "two_steps": 1.0, "lookup": 0.5}
    assert standing.spent == Spend(
        answers=36,
        calls=12 + 16 + 6,  # the weak model fails on 4 of 12; six look-ups call nothing and fail
        tokens=28 * 11,
        usd_nanos=24 * 1_000_000 + 4 * 10_000_000,
    )
    assert study._run.ledger.outstanding == Spend()


@pytest.mark.parametrize("cents", [3, 5])
def test_a_cap_on_dollars_holds_for_the_calls_inside(tmp_path: Path, cents: int) -> None:
    spent = run_all(write_study(tmp_path, budget={"usd": cents / 100})).spent.usd_nanos
    assert cents * 10_000_000 - 11_000_000 <= spent <= cents * 10_000_000


@pytest.mark.parametrize(
    ("cap", "message"),
    [
        ("usd", r"prices of python/chains:one_step, .*usd_per_call"),
        ("tokens", r"nothing bounds .*`max_tokens`"),
    ],
)
def test_what_is_not_bounded_is_refused_under_a_cap(tmp_path: Path, cap: str, message: str) -> None:
    python: Json = {"models": MODELS, "max_calls": 2}
    budget: Json = {cap: 1000}
    path = write_study(tmp_path, budget=budget, providers={"replay": TAPE, "python": python})
    with pytest.raises(ConfigError, match=message):
        run_all(path)


def test_two_examples_with_one_prompt_are_two_answers(tmp_path: Path) -> None:
    standing = run_all(write_study(tmp_path, prompts=[{"q": "always the same"}]))
    assert scores(standing)["lookup"] == 0.5, "inputs are part of the key of the reply cache"


@pytest.mark.parametrize(
    ("limits", "at_least"),
    [
        ({}, 1.0),
        ({"providers": {"replay": {"in_flight": 1}}}, 12.0),
        ({"providers": {"replay": {"rpm": 60}}}, 10.0),
    ],
    ids=["free", "one-at-a-time", "rate-limited"],
)
def test_calls_inside_wait_in_line_with_all_others(
    tmp_path: Path, limits: dict[str, Json], at_least: float
) -> None:
    python: Json = {"models": ["replay/weak"], "max_calls": 1}
    tape: Json = {"path": "tape.jsonl", "latency_seconds": 1.0}
    path = write_study(
        tmp_path,
        models=["python/chains:one_step"],
        providers={"replay": tape, "python": python},
        limits=limits,
    )
    standing, _ = run_study(path, run=run_virtual, options=Options(clock=LoopClock()))
    assert standing.spent.calls == 12
    assert at_least <= standing.seconds < at_least + 5
