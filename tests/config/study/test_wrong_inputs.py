"""What is wrong with a study is said with its line and the way out, or noticed before it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.study import open_mode
from tests.support.commands import invoke

STUDY = """\
models: [replay/a, replay/b]
prompts:
  - q: "{{ question }}"
dataset: {path: d.jsonl, target: answer}
scorer: exact
providers:
  replay: {path: r.jsonl}
budget: {answers: 4}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    examples = [{"id": f"e{i}", "question": f"q{i}", "answer": "x"} for i in range(4)]
    answers = [
        {"candidate": name, "example": f"e{i}", "text": "x"} for name in "ab" for i in range(4)
    ]
    for name, rows in (("d", examples), ("r", answers)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def checked(folder: Path, *changes: tuple[str, str]) -> tuple[str, ...]:
    """Check a study with some parts replaced; return the notices."""
    text = STUDY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "study.yaml").write_text(text)
    study = load_study(folder / "study.yaml")
    parts = assemble(study, Catalog(folder), open_mode)
    ReadyCandidates(parts, Clock())  # as a run does: plans ask for no key
    return make_plan(parts).notices


OPENAI = ("replay: {path: r.jsonl}", "openai: {key: none}")
ONE = ("replay/a, replay/b", "openai/a")
SERVE = ("replay: {path: r.jsonl}", "vllm: {serve: {models: {small: models/small}}}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [('- q: "{{ question }}"', "- {q: Why?, file: x}")],
            "line 3, column 12: malformed YAML: expected ',' or '}', but got `?` in the `{` that "
            "begins on line 3; a `?` begins a key within `{` and `[`: put quotes around the text",
        ),
        (
            [('- q: "{{ question }}"', "- {q: ?}")],
            "found `?` in the `{` or `[` that begins on line 3; a `?` begins a key within `{` and",
        ),
        (
            [("{{ question }}", "{{ question }} {{ answer }}")],
            "line 2: prompt `q` uses the field `answer`, which is the dataset's target: the "
            "expected answer is not shown to candidates; use another field, or list it in",
        ),
        (
            [("d.jsonl", "dd.jsonl")],
            "line 4: dataset dd.jsonl does not exist; did you mean `d.jsonl` or `r.jsonl`?",
        ),
        ([("path: d.jsonl", "huggingface: {name: gone/gone, split: none}")], "line 4: "),
        (
            [('- q: "{{ question }}"', "- file://gone.jinja")],
            "line 3: no prompt file matches `gone.jinja` in .",
        ),
        (
            [("budget:", "labels: gone.jsonl\nbudget:")],
            "line 8: labels file gone.jsonl does not exist; did you mean `r.jsonl` or `d.jsonl`?",
        ),
        (
            [("replay/a, replay/b", "openai/gpt-4o"), ("replay: {path: r.jsonl}", "hf: {}")],
            "line 1: provider `openai` needs a key, and the environment variable OPENAI_API_KEY",
        ),
        (
            [("exact", "{name: rubric, model: openai/gpt-4o}")],
            "line 5: provider `openai` needs a key, and the environment variable OPENAI_API_KEY",
        ),
        (
            [("replay/a, replay/b", "openai/unknown"), OPENAI, ("answers: 4", "usd: 3")],
            "line 8: budget.usd is set, but the price of openai/unknown is not known",
        ),
        (
            [("replay/a, replay/b", "replay/a, hf/./gone")],
            "line 1: there is no model folder ./gone; in the same folder, there are none",
        ),
        (
            [("replay/a, replay/b", "vllm/small"), SERVE],
            "line 1: vllm/small: vLLM is not installed in this Python; install it (pip install "
            "vllm), or name the interpreter that has it in `serve: {python: ...}`",
        ),
        (
            [("budget: {answers: 4}", "seed: 3")],
            "line 8: unknown key `seed`; did you mean `selector.seed`?",
        ),
        (
            [("budget: {answers: 4}", "in_flight: 3")],
            "line 8: unknown key `in_flight`; did you mean `limits.in_flight`?",
        ),
        (
            [("budget: {answers: 4}", "stop_when_seperated: false")],
            "line 8: unknown key `stop_when_seperated`; did you mean "
            "`selector.stop_when_separated`?",
        ),
        (
            [("budget: {answers: 4}", "target: answer")],
            "line 8: unknown key `target`; did you mean `dataset.target`?",
        ),
        (
            [("budget: {answers: 4}", "temperature: 0")],
            "line 8: unknown key `temperature`; did you mean `params.temperature`?",
        ),
        (
            [OPENAI, ONE, ("budget:", "params: {temperature: hot}\nbudget:")],
            'line 8: parameter `temperature` must be a number of at least 0, got "hot"',
        ),
        (
            [OPENAI, ONE, ("budget:", "params: {max_tokens: [0, 5]}\nbudget:")],
            "line 8: parameter `max_tokens` must be a number of at least 1, got 0",
        ),
        ([("budget:", "budgets:")], "line 8: unknown key `budgets`; did you mean `budget`?"),
    ],
)
def test_a_mistake_is_said_with_its_line_and_the_way_out(
    folder: Path, changes: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(folder, *changes)
    assert str(caught.value).startswith("study.yaml, line ")
    assert message in str(caught.value)
    assert str(caught.value).count("study.yaml") == 1


MODELS = ("replay/a, replay/b", "openai/first, openai/second")


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Say hi.", "prompt `q` uses no field of the dataset"),
        ("Say {question}.", "prompt `q` holds `{question}`, which is sent as it stands"),
        ("{{ question }} or {question}", "double braces: `{{ question }}`"),
    ],
)
def test_a_prompt_that_does_not_show_its_example_is_refused(
    folder: Path, prompt: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(folder, ("{{ question }}", prompt), MODELS, OPENAI)
    assert said in str(caught.value)
    assert "`{{ question }}`" in str(caught.value)
    assert str(caught.value).startswith("study.yaml, line ")


@pytest.mark.parametrize(
    "prompt", ["{{ '{' }}question} {{ question }}", '{\\"question\\": {{ question }}}']
)
def test_braces_may_be_meant(folder: Path, prompt: str) -> None:
    checked(folder, ("{{ question }}", prompt), MODELS, OPENAI)


def test_recorded_answers_need_no_prompt(folder: Path) -> None:
    checked(folder, ("{{ question }}", "Say hi."))


def test_a_single_candidate_is_noticed(folder: Path) -> None:
    notice = "there is only one candidate: nothing is compared until another one joins"
    assert notice in checked(folder, ("replay/a, replay/b", "replay/a"))
    assert not checked(folder)


@pytest.mark.parametrize("cap", ["answers", "calls"])
def test_a_budget_below_one_pair_per_candidate_is_noticed(folder: Path, cap: str) -> None:
    (notice,) = checked(folder, ("answers: 4", f"{cap}: 1"))
    assert notice == (
        "the budget allows 1 answer for 2 candidates: some will never be tried; allow at least 2"
    )
    assert not checked(folder, ("answers: 4", f"{cap}: 2"))


def test_a_budget_that_is_too_small_to_try_all_is_noticed(folder: Path) -> None:
    models = ", ".join(f"replay/m{i}" for i in range(9))
    answers = [
        json.dumps({"candidate": f"m{i}", "example": f"e{k}", "text": "x"})
        for i in range(9)
        for k in range(4)
    ]
    (folder / "r.jsonl").write_text("\n".join(answers))
    (notice,) = checked(folder, ("replay/a, replay/b", models), ("answers: 4", "answers: 8"))
    assert notice == (
        "the budget is too small for 9 candidates: auto tries 4 of them, drawn at random; with 18 "
        "answers it tries all"
    )
    assert not checked(folder, ("replay/a, replay/b", models), ("answers: 4", "answers: 18"))


def test_plan_checks_the_history(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selector = "selector: {name: auto, history: [gone]}\nbudget:"
    (folder / "study.yaml").write_text(STUDY.replace("budget:", selector))
    done = invoke(capsys, "plan", "--candidates", "study.yaml")
    assert done.code == 2
    assert "line 8: selector.history: there is no store at runs/runs.sqlite" in done.err
    assert not (folder / "runs").exists(), "nothing is written"


def test_numbers_agree_with_their_nouns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "study.yaml").write_text(
        STUDY.replace(", replay/b", "").replace("target: answer", "target: answer, limit: 1")
    )
    said = invoke(capsys, "plan", "--candidates", "study.yaml").out
    assert "1 candidate x 1 example = 1 answer; scorer exact\n" in said
    assert [counted(n, "pair") for n in (0, 1, 1000)] == ["0 pairs", "1 pair", "1,000 pairs"]


def test_a_missing_file_of_preselect_is_said_with_the_nearest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "winners.csv").write_text("prompt,winner\n")
    done = invoke(capsys, "preselect", "train", "winner.csv")
    assert done.code == 2
    assert "history winner.csv does not exist; did you mean `winners.csv`" in done.err
    assert "Errno" not in done.err
