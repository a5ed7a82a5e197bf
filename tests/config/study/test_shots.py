"""Worked examples in prompts: how they are shown, who is never shown, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.config.candidates import explicit_candidate
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.events import CandidatesAdded
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, Example, Message, PromptTemplate, part_of
from bestarm_agent.engine.record import axes_of
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.errors import ConfigError
from bestarm_agent.store.codec import event_of, line_of
from bestarm_agent.study import open_mode
from tests.support.studies import resume_all, run_all, study_file, write_lines

ANSWERS: tuple[str | tuple[str, ...], ...] = ("1", ("2", "two"), "3", "4")
SHOTS = tuple(Example(f"t{i}", {"a": i, "b": 1}, answer) for i, answer in enumerate(ANSWERS))
SYSTEM, ASK = Message("system", "Add."), Message("user", "{{ a }}+{{ b }}?")


def user(text: str) -> Message:
    return Message("user", text)


def said(text: str) -> Message:
    return Message("assistant", text)


def shown(template: PromptTemplate, n_shots: int | None, a: int = 7) -> Any:  # noqa: ANN401
    prompt = CompiledPrompt(replace(template, n_shots=n_shots, shots=SHOTS))
    return prompt.render({"a": a, "b": 1, "id": "other"})


@pytest.mark.parametrize(
    ("template", "n_shots", "expected"),
    [
        (PromptTemplate("p", "{{ a }}+{{ b }} ="), None, "7+1 ="),
        (PromptTemplate("p", "{{ a }}+{{ b }} ="), 0, "7+1 ="),
        (PromptTemplate("p", "{{ a }}+{{ b }} ="), 2, "0+1 = 1\n\n1+1 = 2\n\n7+1 ="),
        (PromptTemplate("p", "{{ a }}+{{ b }}?\n"), 1, "0+1?\n1\n\n7+1?\n"),
        (
            PromptTemplate("p", "{% for s in shots %}{{ s.a }}>{{ s.target }};{% endfor %}{{ a }}"),
            3,
            "0>1;1>2;2>3;7",
        ),
        (PromptTemplate("p", "{% for s in shots %}{{ s.a }}{% endfor %}{{ a }}"), 0, "7"),
        (PromptTemplate("p", messages=(SYSTEM, ASK)), 0, (SYSTEM, user("7+1?"))),
        (
            PromptTemplate("p", messages=(SYSTEM, ASK)),
            2,
            (SYSTEM, user("0+1?"), said("1"), user("1+1?"), said("2"), user("7+1?")),
        ),
        (
            PromptTemplate("p", messages=(user("Ready?"), said("Yes."), ASK, said("It is"))),
            1,
            (user("Ready?"), said("Yes."), user("0+1?"), said("1"), user("7+1?"), said("It is")),
        ),
        (
            PromptTemplate("p", messages=(Message("system", "{{ a }}+{{ b }}?"),)),
            1,
            (Message("system", "0+1?"), said("1"), Message("system", "7+1?")),
        ),
        (
            PromptTemplate("p", messages=(Message("system", "{{ shots | length }}"), ASK)),
            3,
            (Message("system", "3"), user("7+1?")),
        ),
    ],
)
def test_worked_examples_stand_before_what_is_asked(
    template: PromptTemplate, n_shots: int | None, expected: object
) -> None:
    assert shown(template, n_shots) == expected


@pytest.mark.parametrize("a", [0, 1, 2])
def test_what_is_asked_is_never_shown_with_its_answer(a: int) -> None:
    others = [i for i in range(4) if i != a][:3]
    text = shown(PromptTemplate("p", "{{ a }}+1="), 3, a)
    assert text == "".join(f"{i}+1= {i + 1}\n\n" for i in others) + f"{a}+1="
    turns = shown(PromptTemplate("p", messages=(ASK,)), 3, a)
    assert [one.content for one in turns[::2]] == [f"{i}+1?" for i in (*others, a)]
    loop = PromptTemplate("p", "{% for s in shots %}{{ s.a }}{% endfor %}|{{ a }}")
    assert shown(loop, 3, a) == f"{''.join(map(str, others))}|{a}"


def test_images_are_shown_with_their_answers() -> None:
    photo = part_of("image_url", "{{ photo }}")
    template = PromptTemplate("p", messages=(Message("user", (part_of("text", "What?"), photo)),))
    cat, dog = ({"photo": f"https://example.org/{name}.png"} for name in ("cat", "dog"))
    shots = (Example("t", cat, "a cat"), Example("u", dog, "a dog"))
    prompt = CompiledPrompt(replace(template, n_shots=1, shots=shots))
    for one, other, answer in ((dog, cat, "a cat"), (cat, dog, "a dog")):
        urls = [part_of("image_url", each["photo"]) for each in (other, one)]
        first, last = (Message("user", (part_of("text", "What?"), url)) for url in urls)
        assert prompt.render(one) == (first, said(answer), last)
        assert len(prompt.attachments(one)) == 2


def test_a_template_that_uses_shots_needs_a_study_that_has_them() -> None:
    with pytest.raises(ConfigError, match="there is no field `shots`"):
        shown(PromptTemplate("p", "{{ shots }}{{ a }}"), None)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"r{i}", "a": i, "b": i % 3, "answer": str(i + i % 3)}
        for i in range(first, first + count)
    ]


USUAL: Mapping[str, Any] = {
    "models": ["replay/x", "replay/y"],
    "prompts": [{"p": "{{ a }}+{{ b }}="}, {"chat": [{"role": "user", "content": "{{ a }}+1"}]}],
    "dataset": {"path": "test.jsonl", "target": "answer"},
    "scorer": "exact",
    "providers": {"replay": {"path": "calls.jsonl"}},
    "shots": {"from": "train.jsonl", "k": [0, 3]},
}


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    calls = [
        {"candidate": one, "example": f"r{i}", "text": "1"} for one in "xy" for i in range(100, 110)
    ]
    files = {"train": rows(0, 10), "test": rows(100, 10), "calls": calls}
    for bad, number in (("lacks_b", "b"), ("lacks_answer", "answer")):
        files[bad] = [{k: v for k, v in row.items() if k != number} for row in rows(0, 10)]
    files["leaks"] = [*rows(0, 4), {**rows(103, 1)[0], "id": "copy"}]
    return study_file(folder, files, **{**USUAL, **changes})


def parts(folder: Path, **changes: Any) -> StudyParts:  # noqa: ANN401
    return assemble(load_study(study(folder, **changes)), Catalog(folder), open_mode)


def prompts_of(found: StudyParts, label: str, examples: tuple[Example, ...]) -> list[Any]:
    [one] = [candidate for candidate in found.candidates if candidate.label == label]
    return [CompiledPrompt(one.prompt).render(example.inputs) for example in examples]


def test_their_number_is_an_axis_of_the_grid(tmp_path: Path) -> None:
    found = parts(tmp_path, exclude=[{"model": "y", "shots": 3}, {"shots": 0, "prompt": "chat"}])
    labels = ["x/p/shots=0", "x/p/shots=3", "x/chat/shots=3", "y/p/shots=0"]
    assert [one.label for one in found.candidates] == labels
    assert len({one.id for one in found.candidates}) == 4
    axes = axes_of(found.candidates)
    assert [len(np.unique(column)) for column in axes.T] == [2, 2, 1, 2]
    without = parts(tmp_path, shots=None, exclude=[])
    assert {one.id for one in without.candidates if one.prompt.name == "p"} == {
        found.candidates[0].id,
        found.candidates[3].id,
    }, "no worked example, no change"


def test_explicit_candidates_have_their_own_number(tmp_path: Path) -> None:
    entry = {"model": "x", "prompt": "p"}
    found = parts(tmp_path, models=["replay/y"], candidates=[{**entry, "model": "replay/x"}])
    assert [one.prompt.n_shots for one in found.candidates[-1:]] == [0]
    one = {"from": "train.jsonl", "k": 2}
    found = parts(tmp_path, shots=one, candidates=[{**entry, "shots": 4, "label": "more"}])
    assert [one.prompt.n_shots for one in found.candidates] == [2, 2, 2, 2, 4]
    joined = explicit_candidate(found.config, {**entry, "shots": 5}, found.prompts, found.shots)
    assert (joined.label, len(joined.prompt.shots)) == ("x/p/shots=5", 5)
    assert explicit_candidate(found.config, entry, found.prompts, found.shots).prompt.n_shots == 2


def test_candidates_are_known_by_the_content_of_their_examples(tmp_path: Path) -> None:
    def ids(**shots: Any) -> set[str]:  # noqa: ANN401
        found = parts(tmp_path, shots={"from": "train.jsonl", "k": 3, **shots})
        return {one.id for one in found.candidates}

    first, again, random = ids(), ids(), ids(pick="random")
    assert first == again
    assert not first & random
    assert not ids(k=2) & first
    assert random == ids(pick="random")
    other = parts(tmp_path, shots={"from": "train.jsonl", "k": 3, "pick": "random"})
    seeded = parts(tmp_path, shots=other.config.shots.model_dump(), selector={"seed": 1})  # type: ignore[union-attr]
    assert seeded.shots != other.shots
    assert set(map(repr, seeded.shots)) == set(map(repr, other.shots))


def test_a_log_keeps_the_examples(tmp_path: Path) -> None:
    [*_, candidate] = parts(tmp_path).candidates
    added = CandidatesAdded((candidate,))
    read = event_of(line_of(added))
    assert read == added
    assert isinstance(read, CandidatesAdded)
    again: Candidate = read.candidates[0]
    assert (again.id, again.levels) == (candidate.id, candidate.levels)
    texts = [CompiledPrompt(one.prompt).render({"a": 7, "b": 1}) for one in (again, candidate)]
    assert texts[0] == texts[1]


def test_a_resumed_run_shows_what_it_began_with(tmp_path: Path) -> None:
    path = study(tmp_path)
    began = run_all(path, Budget(answers=5))
    write_lines(tmp_path / "train.jsonl", rows(20, 5))
    after = resume_all(path)
    assert {row.candidate.id for row in after.rows} == {row.candidate.id for row in began.rows}
    assert after.spent.answers == 8 * 10


def test_own_examples_are_shown_to_others_alone(tmp_path: Path) -> None:
    shots = {"from": "test.jsonl", "k": 3, "own": True}
    found = parts(tmp_path, shots=shots, confirm={"share": 0.3})
    assert (len(found.examples), len(found.kept_back), len(found.shots)) == (7, 3, 7)
    texts = prompts_of(found, "x/p", (*found.examples, *found.kept_back))
    for text, example in zip(texts, (*found.examples, *found.kept_back), strict=True):
        asked = f"{example.inputs['a']}+{example.inputs['b']}="
        *turns, last = text.split("\n\n")
        assert last == asked
        assert len({turn.split("=")[0] for turn in turns}) == 3
        assert not any(turn.startswith(asked) for turn in turns)
        hidden = {str(one.inputs["a"]) for one in found.kept_back}
        assert not {turn.split("+")[0] for turn in turns} & hidden, "nor are those kept back"
    assert sum(text.startswith(texts[-1].rpartition("\n\n")[0]) for text in texts) >= 7, (
        "all others share one beginning"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": {"from": "gone.jsonl", "k": 3}}, "gone.jsonl does not exist"),
        ({"shots": {"k": 3}}, "`shots.from` is missing"),
        ({"shots": {"from": "train.jsonl"}}, "`shots.k` is missing"),
        ({"shots": {"from": "train.jsonl", "k": -1}}, "`shots.k[0]` must be at least 0, got -1"),
        ({"shots": {"from": "train.jsonl", "k": [1.5]}}, "`shots.k[0]` must be a whole number"),
        ({"shots": {"from": "train.jsonl", "k": [3, 3]}}, "`shots.k` holds 3 more than once"),
        ({"shots": {"from": "train.jsonl", "k": []}}, "`shots.k` is an axis without values"),
        ({"shots": {"from": "train.jsonl", "k": 3, "pick": "last"}}, "`shots.pick` must be"),
        (
            {"shots": {"from": "train.jsonl", "k": [0, 11]}},
            "11 worked examples are needed, and `shots.from` has 10; add rows",
        ),
        (
            {"shots": {"from": "test.jsonl", "k": 10, "own": True}},
            "11 worked examples are needed, and `shots.from` has 10",
        ),
        (
            {"shots": {"from": "test.jsonl", "k": 3}},
            "worked example `r100` asks the same as example `r100` of the dataset, by which "
            "candidates are chosen; name a file of other examples, or write `own: true`",
        ),
        (
            {"shots": {"from": "leaks.jsonl", "k": 3}},
            "worked example `copy` asks the same as example `r103` of the dataset",
        ),
        (
            {"shots": {"from": "lacks_b.jsonl", "k": 3}},
            "prompt `p`, line 1 of the template: there is no field `b`; there are `a`, `id` "
            "(worked example `r0`)",
        ),
        (
            {"shots": {"from": "lacks_answer.jsonl", "k": 3}},
            "lacks_answer.jsonl, line 1: there is no field `answer`",
        ),
        (
            {"dataset": "test.jsonl", "scorer": "recorded"},
            "worked examples need answers; name their field as `dataset.target`",
        ),
        (
            {"candidates": [{"model": "x", "prompt": "p", "shots": 99, "label": "c"}]},
            "99 worked examples are needed, and `shots.from` has 10",
        ),
        (
            {"shots": None, "candidates": [{"model": "x", "prompt": "p", "shots": 2}]},
            "2 worked examples are needed, and `shots.from` has 0",
        ),
        ({"exclude": [{"shots": 4}]}, "`exclude[0].shots` is 4, which the grid does not hold"),
    ],
)
def test_bad_input_is_refused_before_a_call(
    tmp_path: Path, changes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(parts(tmp_path, **changes))
    assert message in str(caught.value)


def test_a_plan_counts_the_tokens_of_worked_examples(tmp_path: Path) -> None:
    def tokens(k: int) -> int:
        changes = {
            "models": ["openai/gpt-5"],
            "params": {"max_tokens": 1},
            "providers": {"openai": {"key": "none"}},
            "shots": {"from": "train.jsonl", "k": k},
        }
        return make_plan(parts(tmp_path, **changes)).expected.tokens

    assert tokens(9) > tokens(3) > tokens(0)
