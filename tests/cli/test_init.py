"""``init`` on a user's own data: a study that fits its fields."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bestarm_agent.config.load import load_study
from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.values import PromptTemplate
from tests.support.commands import invoke

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("name", "content", "target", "scorer"),
    [
        ("sums.csv", 'id,Question,Answer\n1,3+4?,7\n2,999+9?,"1,008"\n', "Answer", "numeric"),
        (
            "quiz.csv",
            "question,label\nWhich? A or B,A\nWhich? A or B,b\n",
            "label",
            "multiple-choice",
        ),
        ("mail.csv", "ticket,team\n" + "a,shipping\nb,billing\n" * 3, "team", "exact"),
        ("capitals.csv", "country,target\nPeru,Lima\nChile,Santiago\n", "target", "contains"),
        ("essays.csv", f"prompt,answer\na,{'x' * 60}\n", "answer", "reference-graded"),
        ("prompts.csv", "prompt\nwrite a poem\n", None, "rubric"),
        ("lists.jsonl", '{"q": "Peru?", "gold": ["Lima", "the city"]}\n', "gold", "contains"),
        (
            "mmlu.jsonl",
            '{"q": "Peru?", "choices": ["a", "b"], "answer": 0}\n',
            "answer",
            "multiple-choice",
        ),
        (
            "arc.jsonl",
            '{"q": "Peru?", "choices": ["a", "b"], "answer": "B"}\n',
            "answer",
            "multiple-choice",
        ),
    ],
)
def test_the_study_fits_the_data(
    tmp_path: Path, capsys: Capsys, name: str, content: str, target: str | None, scorer: str
) -> None:
    (tmp_path / name).write_text(content)
    models = "openai/gpt-6-luna, ollama/qwen3:4b"
    done = invoke(capsys, "init", "--data", name, "--models", models, folder=tmp_path)
    assert done.code == 0, done.err
    assert f"target: {target or 'none'} (a guess" in done.out
    config = load_study(tmp_path / "study.yaml").config
    assert (config.dataset.target, config.scorer.name) == (target, scorer)
    written = (tmp_path / "study.yaml").read_text()
    assert "#   openai: {base_url: https://api.openai.com/v1, key: OPENAI_API_KEY}" in written
    assert "#   ollama: {base_url: http://localhost:11434/v1}" in written


@pytest.mark.parametrize(("answer", "first"), [("0", 0), ("1", 0), ("2", 1), ('"A"', None)])
def test_options_are_lettered_and_numbers_of_them_understood(
    tmp_path: Path, capsys: Capsys, answer: str, first: int | None
) -> None:
    row = f'{{"q": "Peru?", "choices": ["Lima", "Rome"], "answer": {answer}}}\n'
    (tmp_path / "d.jsonl").write_text(row)
    done = invoke(capsys, "init", "--data", "d.jsonl", "--models", "ollama/a", folder=tmp_path)
    assert done.code == 0, done.err
    config = load_study(tmp_path / "study.yaml").config
    assert config.scorer.options["numbered_from"] == first
    prompt = CompiledPrompt(PromptTemplate("p", text=config.prompts[0].text))
    assert prompt.render({"q": "Peru?", "choices": ["Lima", "Rome"]}) == ("Peru?\nA. Lima\nB. Rome")


def test_plan_accepts_it_and_nothing_is_overwritten(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-is-asked")
    (tmp_path / "q.csv").write_text("question,answer\n3+4?,7\n")
    command = ("init", "my/study.yaml", "--data", "q.csv", "--models", "openai/gpt-6-luna")
    assert invoke(capsys, *command, folder=tmp_path).code == 0
    planned = invoke(capsys, "plan", "my/study.yaml", "--json", folder=tmp_path)
    assert json.loads(planned.out)["n_candidates"] == 2
    again = invoke(capsys, *command, folder=tmp_path)
    assert (again.code, "exists already" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--data", "q.csv"), "--data and --models go together"),
        (("--models", "openai/m"), "--data and --models go together"),
        (("--data", "q.csv", "--models", "opnai/m"), "did you mean `openai`"),
        (("--data", "absent.csv", "--models", "openai/m"), "dataset absent.csv does not exist"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: Capsys, flags: tuple[str, ...], said: str
) -> None:
    (tmp_path / "q.csv").write_text("question,answer\n3+4?,7\n")
    done = invoke(capsys, "init", *flags, folder=tmp_path)
    assert (done.code, said in done.err) == (2, True)
    assert not (tmp_path / "study.yaml").exists()


@pytest.mark.parametrize(
    ("answers", "models", "target"),
    [
        (["q.csv", "ollama/a,ollama/b", "reply"], ["ollama/a", "ollama/b"], "reply"),
        (["q.csv", "", ""], ["openai/gpt-6-luna"], "answer"),
        (["q.csv", "", "none"], ["openai/gpt-6-luna"], None),
        ([""], ["replay/careful", "replay/quick", "replay/largest-city"], "capital"),
    ],
)
def test_a_terminal_is_asked(
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str],
    models: list[str],
    target: str | None,
) -> None:
    (tmp_path / "q.csv").write_text("question,answer,reply\n3+4?,7,8\n")
    given = iter(answers)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(given))
    done = invoke(capsys, "init", folder=tmp_path)
    assert done.code == 0, done.err
    config = load_study(tmp_path / "study.yaml").config
    assert [spec.model for spec in config.models] == models
    assert config.dataset.target == target


def test_columns_of_any_name_stand_in_its_prompts(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-is-asked")
    (tmp_path / "q.csv").write_text('User Question,say "it",not,n°,answer\n3+4?,a,b,c,7\n')
    command = ("init", "--data", "q.csv", "--models", "openai/gpt-6-luna")
    assert invoke(capsys, *command, folder=tmp_path).code == 0
    planned = invoke(capsys, "plan", folder=tmp_path)
    assert planned.code == 0, planned.err
    prompt = load_study(tmp_path / "study.yaml").config.prompts[0].text
    assert prompt is not None
    assert '{{ row["User Question"] }}' in prompt
    assert '{{ row["say \\"it\\""] }}' in prompt


def test_plan_tells_of_a_column_that_hides_the_row(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none-is-asked")
    (tmp_path / "q.csv").write_text("row,answer\n3+4?,7\n")
    command = ("init", "--data", "q.csv", "--models", "openai/gpt-6-luna")
    assert invoke(capsys, *command, folder=tmp_path).code == 0
    planned = invoke(capsys, "plan", "--json", folder=tmp_path)
    told = [said for said in planned.json["notices"] if "column of that name" in said]
    assert len(told) == 2
    assert "prompt `plain`: `row`" in told[0]


def test_models_that_run_here_get_no_address(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "q.csv").write_text("question,answer\n3+4?,7\n")
    done = invoke(capsys, "init", "--data", "q.csv", "--models", "hf/x", folder=tmp_path)
    assert done.code == 0, done.err
    assert load_study(tmp_path / "study.yaml").config.models[0].model == "hf/x"
    written = (tmp_path / "study.yaml").read_text()
    assert "base_url" not in written
    assert "providers" not in written
