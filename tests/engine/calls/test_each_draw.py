"""Draws of an example: `repeats: 3`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Candidate, Example, PromptTemplate, each_drawn
from bestarm_agent.engine.call import Model, ProviderClient
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.providers.base import Capabilities
from tests.support.commands import invoke
from tests.support.studies import write_study

K, N, DRAWS = 3, 12, 3


def study(folder: Path, **changes: Any) -> tuple[Path, np.ndarray]:  # noqa: ANN401
    """Write a study of recorded draws; return it and the scores (K, N, DRAWS)."""
    given = {"repeats": DRAWS, **changes}
    path = write_study(folder, n_candidates=K, n_examples=N, changes=given)
    chances = np.random.default_rng(1).random((K, N, 1))
    scores = (np.random.default_rng(2).random((K, N, DRAWS)) < chances).astype(float)
    rows = [
        {"candidate": f"c{i}", "example": f"e{j}", "attempt": r + 1, "score": scores[i, j, r]}
        for i, j, r in np.ndindex(scores.shape)
    ]
    (folder / "scores.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path, scores


def test_it_is_resumed_and_its_draws_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, scores = study(tmp_path, selector={"name": "uniform", "stop_when_separated": False})
    done = invoke(capsys, "select", path, "-q", "--budget-answers", "40", folder=tmp_path)
    assert done.code == 0, done.err
    more = invoke(capsys, "resume", "-q", "--json", "--budget-answers", "68", folder=tmp_path)
    found = json.loads(more.out)
    assert found["grid"] == found["asked"] == K * N * DRAWS
    means = {row["candidate"]["label"]: row["estimate"] for row in found["rows"]}
    assert means == pytest.approx({f"c{i}": scores[i].mean() for i in range(K)})
    shown = invoke(capsys, "answers", "latest", "--json", folder=tmp_path)
    ids = {json.loads(line)["example"] for line in shown.out.splitlines()}
    assert {"e0", "e0#2", "e0#3"} <= ids


def test_a_draw_knows_its_row() -> None:
    rows = [Example("a#2", {"q": 1}), Example("b", {"q": 2})]
    drawn = each_drawn(rows, 2)
    assert [one.id for one in drawn] == ["a#2", "b", "a#2#2", "b#2"]
    assert [one.row_id for one in drawn] == ["a#2", "b"] * 2


@pytest.mark.parametrize(
    ("own", "seeded", "takes", "sent"),
    [
        ({"seed": 5}, True, True, [5, 1_000_005, 2_000_005]),
        ({"seed": 5}, False, False, [5, 1_000_005, 2_000_005]),
        ({}, True, True, [None, 1_000_000, 2_000_000]),
        ({}, True, False, [None, None, None]),
        ({}, False, True, [None, None, None]),
    ],
)
def test_each_draw_has_a_seed_of_its_own_where_the_model_takes_one(
    own: dict[str, int], seeded: bool, takes: bool, sent: list[int | None]
) -> None:
    able = Capabilities(frozenset({"seed"} if takes else ()), seed=seeded)
    client = SimpleNamespace(provider=SimpleNamespace(capabilities=lambda _: able))
    prompt = PromptTemplate("plain", text="{{ q }}")
    ready = ReadyCandidate(
        Candidate("p", "m", prompt, own),
        CompiledPrompt(prompt),
        Model(cast(ProviderClient, client), "m"),
        Spend(),
    )
    drawn = each_drawn([Example("a", {"q": "1 + 1"})], DRAWS)
    assert [ready.request(one).params.get("seed") for one in drawn] == sent


def test_rows_are_kept_back_with_all_their_draws_and_the_winner_answers_one_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"name": "uniform", "stop_when_separated": False}
    path, scores = study(tmp_path, selector=chosen, confirm={"share": 0.25})
    done = invoke(capsys, "select", path, "-q", "--json", folder=tmp_path)
    found = json.loads(done.out)["confirmation"]
    shown = invoke(capsys, "answers", "latest", "--json", folder=tmp_path).out
    pairs = [json.loads(line) for line in shown.splitlines()]
    other = min({"c0", "c1", "c2"} - {found["label"]})
    by_choice = {one["example"] for one in pairs if one["candidate"] == other}
    kept = {f"e{j}" for j in range(N)} - by_choice
    assert len(kept) == 3
    rows = {one.split("#")[0] for one in by_choice}
    assert not rows & kept
    assert len(by_choice) == DRAWS * len(rows) == 27
    row = int(found["label"][1])
    firsts = [scores[row, int(one[1:]), 0] for one in kept]
    assert found["n"] == 3
    assert found["mean"]["value"] == pytest.approx(np.mean(firsts))


def test_it_goes_on_with_the_rows_that_it_began_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, scores = study(tmp_path, selector={"name": "uniform", "stop_when_separated": False})
    invoke(capsys, "select", path, "-q", "--budget-answers", "40", folder=tmp_path)
    dataset = tmp_path / "questions.jsonl"
    rows = dataset.read_text()
    dataset.write_text(rows + json.dumps({"id": "new", "question": "new"}) + "\n")
    more = invoke(capsys, "resume", "-q", "--json", "--budget-answers", "68", folder=tmp_path)
    assert "has grown by 1 example; the run goes on with the 12" in more.err
    means = {row["candidate"]["label"]: row["estimate"] for row in json.loads(more.out)["rows"]}
    assert means == pytest.approx({f"c{i}": scores[i].mean() for i in range(K)})
    dataset.write_text("".join(rows.splitlines(keepends=True)[1:]))
    refused = invoke(capsys, "resume", "-q", "--budget-answers", "1", folder=tmp_path)
    assert "11 examples where there were 12" in " ".join(refused.err.split())
