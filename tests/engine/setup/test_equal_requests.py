"""Rows for which every candidate is asked the same: one example in all that is said of new ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from bestarm_agent import ConfigError, find_best
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.engine.results.new_examples import new_examples
from bestarm_agent.engine.results.standing import ProblemKind
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.stats.new_examples import resolution
from bestarm_agent.study import Archive, open_mode
from tests.support.selector_suite import World, WorldRun, opened
from tests.support.studies import run_all, store_of, study_file, write_study

Rows = Sequence[Mapping[str, Any]]
LABELS = {0: "one", 1: "two"}
FUNCTIONS = "def one(task):\n    return task.inputs['q']\ndef two(task):\n    return '1'\n"


def parts_of(folder: Path, rows: Rows, **study: Any) -> StudyParts:  # noqa: ANN401
    """Read a study of two functions, which see the prompt and the inputs, or of other models."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "programs.py").write_text(FUNCTIONS)
    models = ["python/programs:one", "python/programs:two"]
    usual = {"models": models, "scorer": "exact", "dataset": {"path": "rows.jsonl", "target": "t"}}
    path = study_file(folder, {"rows": rows}, **{**usual, **study})
    return assemble(load_study(path), Catalog(folder), open_mode)


def row(q: object, t: str = "yes", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"q": q, "t": t, **more}


API: dict[str, Any] = {
    "models": ["openai/gpt-5-mini"],
    "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "key": None}},
}


def test_rows_written_thirty_times_are_as_many_examples_as_differ(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, [row(i) for _ in range(30) for i in range(12)])
    plan = make_plan(parts)
    assert (plan.n_examples, plan.n_independent, plan.unit) == (360, 12, "example")
    assert plan.resolution == pytest.approx(resolution(0.15, 12, 0.025))
    copies = [said for said in plan.notices if "copies" in said]
    assert len(copies) == 1
    assert "348 of 360 rows are copies" in copies[0]
    assert "12 that differ" in copies[0]
    assert "differ from the original" not in copies[0]


def test_white_space_and_the_form_of_letters_make_no_further_example(tmp_path: Path) -> None:
    asked = [
        "Zürich?",
        "Zu\u0308rich?",
        " Zürich? ",
        "Zürich?\n",
        "Bern or\tGenf?",
        "Bern or Genf?",
    ]
    rows = [row(text) for text in [*asked, "zürich?", "x²", "x2"]]
    assert make_plan(parts_of(tmp_path / "programs", rows)).n_independent == 5
    assert make_plan(parts_of(tmp_path / "api", rows, **API)).n_independent == 5


def test_copies_do_not_show_a_lead() -> None:
    right = {"good": 9, "fair": 8}

    def evaluate(candidate: str, example: dict[str, Any]) -> bool:
        return int(example["q"]) < right[candidate]

    rows = [{"q": i, "expected": "yes"} for _ in range(30) for i in range(12)]
    standing = find_best(evaluate, ["good", "fair"], rows, show=False)
    found = standing.new_examples
    assert found is not None
    assert (found.n_examples, found.unit) == (12, "example")
    assert not found.shown
    decision = standing.decision
    assert decision.chance is not None
    assert decision.chance < 0.9
    assert decision.problem is not None
    assert decision.problem.kind is ProblemKind.TOO_FEW
    assert decision.as_good == ("fair",) or found.lower < 0.6


def test_copies_make_no_statement_about_new_examples_invalid() -> None:
    """Two candidates alike, right on half of all that could be asked; 12 examples of it, 20 times.

    A lead is shown so often by chance once in 10,000 times at the level of .05.
    """
    shown, limit = {True: 0, False: 0}, binom.isf(1e-4, 40, 0.05)
    for seed in range(40):
        scores = np.random.default_rng(seed).random((2, 12)) < 0.5
        for known in shown:
            independent = tuple(range(12)) if known else ()
            pairs = opened("uniform", 2, 240, seed=seed, independent=independent)
            WorldRun(pairs, World.of(np.tile(scores, 20))).finish()
            winner = pairs.answer.best().best
            said, _ = new_examples(pairs, winner, LABELS, 0.5, within=0.0, unit="example")
            shown[known] += said is not None and said.shown
    assert shown[True] <= limit < shown[False]


@pytest.mark.parametrize(
    ("prompts", "rows", "n"),
    [
        ({"a": "{{ q | trim | lower }}"}, [row("Yes "), row("yes"), row("no")], 2),
        ({"a": "{{ q }}"}, [row("x", note=1), row("x", note=2), row("y", note=3)], 2),
        (
            {"a": "{{ q }}", "b": "{{ q }} {{ note }}"},
            [row("x", note=1), row("x", note=2), row("x", note=1)],
            2,
        ),
        ({"a": "{{ q }}"}, [row("x", id="1"), row("x", id="2")], 1),
        ({"a": "{{ q }}"}, [row("x", "yes"), row("x", "no"), row("z")], 2),
    ],
)
def test_it_is_the_request_that_counts(
    tmp_path: Path, prompts: dict[str, str], rows: Rows, n: int
) -> None:
    listed = [{name: text} for name, text in prompts.items()]
    parts = parts_of(tmp_path, rows, prompts=listed, **API)
    assert len(parts.independent or parts.examples) == n
    assert len(parts.examples) == len(rows)  # the rows stay
    said = " ".join(parts.notices)
    assert ("1 target of theirs differ" in said) == (len({one["t"] for one in rows}) > 1)


def test_what_a_program_sees_counts_but_for_its_name(tmp_path: Path) -> None:
    same = [row("x", id=f"r{i}", note=i // 2) for i in range(6)]
    assert len(parts_of(tmp_path, same).independent) == 3
    named = [{"id": f"r{i}", "t": "yes"} for i in range(4)]  # nothing but names
    assert parts_of(tmp_path / "b", named, prompts=[{"a": "{{ id }}"}]).independent == ()


def test_the_same_picture_under_two_names_is_one_request(tmp_path: Path) -> None:
    head = b"\x89PNG\r\n\x1a\n"
    for name, body in {"a": b"1", "b": b"1", "c": b"2"}.items():
        (tmp_path / f"{name}.png").write_bytes(head + body)
    content = [{"text": "What is it?"}, {"image": "{{ file }}"}]
    messages = [{"role": "user", "content": content}]
    rows = [{"file": f"{name}.png", "t": "cat"} for name in "abc"]
    prompts = [{"name": "look", "messages": messages}]
    assert len(parts_of(tmp_path, rows, prompts=prompts, **API).independent) == 2


def test_clusters_and_copies_are_joined(tmp_path: Path) -> None:
    rows = [row("x", doc=1), row("y", doc=1), row("y", doc=2), row("z", doc=3), row("w", doc=2)]
    dataset = {"path": "rows.jsonl", "target": "t", "cluster": "doc"}
    parts = parts_of(tmp_path, rows, dataset=dataset, **API)
    assert len(parts.independent) == 2  # the second and third row link documents 1 and 2
    assert 3 in parts.independent
    assert parts.unit == "cluster"


def test_draws_of_a_row_are_as_before(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, [row("x"), row("x"), row("y")], repeats=2, **API)
    assert len(parts.examples) == 6
    assert len(parts.independent) == 2
    assert max(parts.independent) < 3  # first draws
    assert parts_of(tmp_path, [row("x"), row("y")], repeats=3, **API).independent == ()


def test_copies_are_kept_back_together_and_count_once(tmp_path: Path) -> None:
    path = write_study(
        tmp_path,
        n_candidates=2,
        n_examples=100,
        changes={"confirm": {"share": 0.2}, "prompts": [{"q": "{{ question }}"}]},
    )
    lines = [{"id": f"e{j}", "question": f"question {j // 2}"} for j in range(100)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    parts = assemble(load_study(path), Catalog(tmp_path), open_mode)
    kept = {example.inputs["question"] for example in parts.kept_back}
    assert len(kept) == 10
    assert not kept & {example.inputs["question"] for example in parts.examples}
    assert (len(parts.kept_back), len(parts.kept_independent)) == (20, 10)
    assert make_plan(parts).kept_back == 10
    standing = run_all(path)
    assert standing.confirmation is not None
    assert (standing.confirmation.n, standing.confirmation.held_back) == (10, 10)
    assert standing.n_examples == 80
    state = asyncio.run(Archive(store_of(path)).state(standing.run_id))
    assert len(state.independent) == 40


def test_certificates_rest_on_one_copy_of_each(tmp_path: Path) -> None:
    rows = [row(i // 4) for i in range(160)]
    parts = parts_of(tmp_path, rows, certify={"risk": 0.3, "judge": "contains", "per_label": 1})
    plan = parts.mode.plan  # type: ignore[attr-defined]
    used = [parts.examples[number].inputs["q"] for number in plan.sequence.ravel()]
    assert 20 <= len(used) == len(set(used))


def test_a_template_that_fails_on_a_row_hides_no_error(tmp_path: Path) -> None:
    parts = parts_of(tmp_path, [row("x"), row("y")], prompts=[{"a": "{{ question }} {{ q }}"}])
    with pytest.raises(ConfigError, match="no example has the field `question`"):
        make_plan(parts)
