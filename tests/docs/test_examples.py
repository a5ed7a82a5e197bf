"""What the pages show works as it stands there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bestarm_agent import Budget
from bestarm_agent.cli.main import app
from bestarm_agent.config.load import load_study, study_from
from bestarm_agent.config.settings import Settings
from bestarm_agent.config.starter import write_starter
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.engine.results.effects import axis_effects
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Study
from tests.docs.pages import ROOT, blocks, execute, files, page
from tests.support.commands import invoke
from tests.support.distributions import install
from tests.support.fake_api import Call, FakeApi, in_thread
from tests.support.fake_api.calls import chance
from tests.support.pictures import picture_study
from tests.support.studies import run_all, write_lines, write_study

ARITHMETIC = ROOT / "examples" / "arithmetic"
PYTHON, PLUGINS, README, SKILL = (
    page(name) for name in ("python", "plugins", "../README", "../SKILL")
)
REPOSITORY = "https://github.com/bestarm-agent/bestarm-agent/"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, as ``init`` fills it."""
    write_starter(tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def _run(study: Any, budget: Budget | None = None) -> Standing:  # noqa: ANN401
    async with Study.open(study) as opened:
        return await opened.run(budget)


def run(study: Any, budget: Budget | None = None) -> Standing:  # noqa: ANN401
    return asyncio.run(_run(study, budget))


# results


def test_the_answers_of_a_run(starter: Path, capsys: Capture) -> None:
    text = page("results")
    execute(files(text)["answers.py"])
    assert "What is the capital of" in capsys.readouterr().out
    [lines] = [block for block in blocks(text, "bash") if "answers latest" in block]
    for line in lines.splitlines():
        done = invoke(capsys, *line.partition("#")[0].split()[1:], folder=starter)
        assert done.code == 0, done.err
        assert done.out


def test_results_lead_to_the_fields_of_an_answer() -> None:
    """They stand in the signature, which the page of Python shows."""
    assert "python.md#signatures" in page("results")
    signatures = page("python").partition("## Signatures")[2]
    assert f".{PairOutcome.__name__}\n" in signatures


# architecture, the study file


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", page("architecture")))
    assert len(named) > 20
    package = ROOT / "src" / "bestarm_agent"
    assert [
        name for name in named if not ((package / name).exists() or (ROOT / name).exists())
    ] == []


def section(heading: str) -> str:
    parts = re.split(r"^#{2,3} (.+)$", page("configuration"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def test_every_variable_is_documented() -> None:
    text = section("Who has the last word")
    names = {f"BESTARM_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_complete_example_is_valid_and_complete(tmp_path: Path) -> None:
    [example] = blocks(section("A complete example"), "yaml")
    (tmp_path / "study.yaml").write_text(example, encoding="utf-8")
    environ = {"OPENAI_BASE_URL": "http://localhost"}
    config = load_study(tmp_path / "study.yaml", environ=environ).config
    assert config.model_fields_set == set(StudyConfig.model_fields)


def test_worked_examples_are_an_axis(tmp_path: Path) -> None:
    for name, first in (("reviews", 0), ("train", 400)):
        rows = [{"review": f"no. {first + i}", "label": "good"} for i in range(400)]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    (tmp_path / "shots.yaml").write_text(files(page("configuration"))["shots.yaml"])
    right = {0: 0.5, 3: 0.9, 8: 0.7}  # by the number of worked examples: 3 are best
    seen: dict[int, set[str]] = {k: set() for k in right}

    def answer(call: Call) -> str:
        roles, texts = zip(*call.messages, strict=True)
        shown = roles.count("assistant")
        assert roles == ("system", *("user", "assistant") * shown, "user")
        seen[shown].add("".join(texts[1:-1]))
        return "good" if chance(shown, texts[-1]) < right[shown] else "bad"

    with in_thread(FakeApi(answer=answer, key=None)) as api:
        options = {"base_url": api.openai_url, "key": "none", "price": {"input": 1, "output": 1}}
        changes: dict[str, Any] = {"providers.openai": options}
        standing = run_all(tmp_path / "shots.yaml", overrides=changes)
        calls = len(api.received)
    assert standing.winner is not None
    assert standing.winner.candidate.label == "shots=3"
    assert standing.decision.proved
    assert [len(prompts) for prompts in seen.values()] == [1, 1, 1], "all examples see the same"
    assert standing.spent.calls == calls < 3 * 400
    [axis] = axis_effects(standing)
    assert (axis.axis, axis.levels[0].level) == ("shots", "3")


# certify, gate


def test_a_study_of_images_can_be_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    [block] = [one for one in blocks(page("configuration"), "yaml") if "image: " in one]
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    models = "models: [{model: openai/m, options: {price: {input: 1, output: 5}}}]\nscorer: exact\n"
    (tmp_path / "study.yaml").write_text(models + block)
    picture_study(tmp_path / "photos", 3)
    rows = [{"photo": f"photos/photos/{i}.png", "total": "1"} for i in range(3)]
    write_lines(tmp_path / "receipts.jsonl", rows)
    done = invoke(capsys, "plan", "study.yaml", folder=tmp_path)
    assert "1 candidate x 3 examples = 3 answers" in done.out, done.err


def test_certification_in_python(capsys: Capture) -> None:
    execute(*blocks(page("certification"), "python"))
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("22 [")
    assert last.startswith("1 ")


def test_every_flag_of_certify_exists() -> None:
    command = app.commands["certify"]
    named = set(re.findall(r"(--[a-z][a-z-]+)", page("certification")))
    assert named <= {option for parameter in command.params for option in parameter.opts}
    assert {"--candidates", "--judge", "--labels"} <= named


@pytest.mark.slow
def test_a_gate_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    labels = {"models": [{"model": "replay/c0", "label": "current"}, "replay/c5"]}
    write_study(tmp_path, n_examples=200, changes=labels).rename(tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    execute(*blocks(page("gate"), "python"))
    said = capsys.readouterr().out
    assert re.search(r"^c5 passed 0\.\d+ \[-0\.0\d+, 0\.\d+\]$", said, re.MULTILINE), said


# local models


@pytest.fixture
def local(tmp_path: Path) -> Path:
    for name, content in files(page("local-models")).items():
        # the models here are base models with a template that few of their formats know
        content = content.replace("hf: {max_gpu", "hf: {completion: true, max_gpu")
        (tmp_path / name).write_text(content)
    shutil.copy(ARITHMETIC / "dataset.jsonl", tmp_path)
    for name, model in (("small", "sum-llama-113k"), ("large", "sum-llama-167k")):
        shutil.copytree(ARITHMETIC / "models" / model, tmp_path / "models" / name)
    return tmp_path


@pytest.mark.slow
def test_chains_next_to_a_model(local: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra hf")
    standing = run(local / "study.yaml")
    means = {row.candidate.label.split("/")[0]: row.estimate for row in standing.rows}
    assert means["chains:exact"] == pytest.approx(1, abs=0.02), "a smoothed mean"
    assert standing.best is not None
    assert standing.best.candidate.model == "chains:exact"
    assert standing.spent.answers == 60
    assert 0 < (means["chains:checked"] or 0) < 1, "the two models agree now and then"
    assert standing.spent.calls > 60, "a checked answer takes two calls"


@pytest.mark.slow
def test_a_program_is_started_for_each_answer(local: Path) -> None:
    standing = run(local / "commands.yaml")
    assert [row.estimate for row in standing.rows] == pytest.approx([1], abs=0.05)


# Python


def printed(name: str, capsys: Capture) -> list[str]:
    execute(files(PYTHON)[name])
    return capsys.readouterr().out.splitlines()


def test_one_call_is_enough(starter: Path, capsys: Capture) -> None:
    said, *_, taken = printed("one.py", capsys)
    assert said.startswith("Take warm: ")
    assert taken == "careful"


def test_a_candidate_that_joins_late_wins(starter: Path, capsys: Capture) -> None:
    lines = printed("loop.py", capsys)
    assert lines[:2] == ["first: quick", "then: careful"]
    assert lines[2].startswith("run 2")


@pytest.mark.slow
def test_a_run_is_stopped_and_goes_on(starter: Path, capsys: Capture) -> None:
    lines = printed("again.py", capsys)
    assert re.fullmatch(r"asked so far: \d+", lines[0])
    assert lines[1] == "interrupted"
    assert lines[2] in ("budget", "separated")


def test_a_function_proposes_the_prompt_that_wins(starter: Path, capsys: Capture) -> None:
    for name in ("model.py", "proposer.py", "prompts.yaml"):
        (starter / name).write_text(files(PYTHON)[name], encoding="utf-8")
    [line] = re.findall(r"^bestarm-agent (optimize prompts.*)$", PYTHON, re.MULTILINE)
    done = invoke(capsys, *line.split(), "--quiet", "--json", folder=starter)
    assert done.code == 0, done.err
    assert json.loads(done.out)["decision"]["take"] in ("round1-1", "round1-2")
    assert "its name only" in (starter / "best.jinja").read_text(encoding="utf-8")


def test_every_example_in_python_is_run() -> None:
    tested = {"one.py", "loop.py", "again.py"}
    assert set(files(PYTHON)) == tested | {"model.py", "proposer.py", "prompts.yaml"}


# plug-ins


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in files(PLUGINS).items():
        (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_blocks_of_plug_ins_are_known() -> None:
    assert PLUGINS.count("```") == 2 * len([*files(PLUGINS), *blocks(PLUGINS, "toml")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(name for name in files(PLUGINS) if name.startswith("test_"))
)
def test_the_tests_of_a_plug_in_pass(plugged: Path, name: str) -> None:
    quick = ["-k", "pending or seed or allowed"] if name == "test_my_rules.py" else []
    paths = os.pathsep.join(map(str, (plugged, ROOT / "src")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name, *quick],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_study_uses_what_the_page_writes(plugged: Path) -> None:
    (plugged / "providers").mkdir()
    (plugged / "providers" / "echo.yaml").write_text("name: echo\nadapter: my_provider:Echo\n")
    (plugged / "rows.jsonl").write_text('{"q": "one"}\n{"q": "one two three"}\n')
    study: dict[str, Any] = {
        "models": [{"model": "echo/once"}],
        "prompts": [{"short": "{{ q }}"}, {"long": "{{ q }} and six more words to be read"}],
        "dataset": "rows.jsonl",
        "scorer": {"name": "my_judge:Brief", "words": 3},
        "selector": {"name": "my_rules:BestSoFar"},
    }
    best = run(study, Budget(answers=4)).best
    assert best is not None
    assert best.candidate.prompt.name == "short"


def test_the_entry_point_of_the_page_installs_the_rule(
    plugged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tomllib.loads(*blocks(PLUGINS, "toml"))["project"]["entry-points"]
    entry_points = {name.removeprefix("bestarm_agent."): names for name, names in groups.items()}
    install(plugged, monkeypatch, "my-rules", entry_points=entry_points, files={})
    assert make_selector("best-so-far", Problem(2, 3)).rule.name == "best-so-far"


# the README, llms.txt, SKILL.md


def test_one_call_runs(capsys: Capture) -> None:
    examples = [{"country": f"country {i}", "target": f"capital {i}"} for i in range(100)]

    def ask(model: str, prompt: str) -> str:
        return prompt.replace("country", "capital") if model == "large" else "I do not know."

    names = execute(blocks(README, "python")[0], ask=ask, examples=examples)
    assert capsys.readouterr().out.startswith("Take long: ")
    assert names["best"] is names["candidates"][1]
    assert {one.reply for one in names["wrong"]} == {"I do not know."}


def test_the_selectors_alone_run(capsys: Capture) -> None:
    execute(blocks(README, "python")[1], evaluate=lambda row, example: float(row > example % 3))
    assert "Verdict(best=2" in capsys.readouterr().out


def test_the_study_of_the_readme_is_a_valid_one() -> None:
    [text] = blocks(README, "yaml")
    assert study_from(yaml.safe_load(text)).config.name == "my-study"


def test_the_package_index_shows_every_link_of_the_readme() -> None:
    """A link or a picture that is relative to the repository leads nowhere there."""
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets
    assert [one for one in targets if not one.startswith("https://")] == []
    own = [one for one in targets if one.startswith(REPOSITORY)]
    paths = [re.sub(r"#.*|^(blob|raw)/main/", "", one.removeprefix(REPOSITORY)) for one in own]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["../llms.txt", "../SKILL", "../CONTRIBUTING"])
def test_files_that_are_linked_exist(name: str) -> None:
    text = (ROOT / "llms.txt").read_text() if name.endswith("txt") else page(name)
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def entries(part: object) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from entries(inner)


def test_the_index_lists_the_pages_of_the_site_in_their_order() -> None:
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = re.findall(r"^- \[.+\]\(docs/(.+?)\): \S", text, re.M)
    assert listed == list(entries(navigation))


def test_the_skill_is_found_by_its_head() -> None:
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert head["name"] == "bestarm-agent"
    assert 100 < len(head["description"]) < 1024
    assert SKILL.count("\n") < 100


@pytest.mark.slow
def test_the_five_commands_of_the_skill_run(tmp_path: Path, capsys: Capture) -> None:
    lines = blocks(SKILL, "bash")[0].splitlines()
    assert len(lines) == 5
    for line in lines:
        words = line.partition("#")[0].split()[1:]
        done = invoke(capsys, *words, folder=tmp_path)
        assert done.code == 0, (line, done.err)
        if words[0] in ("select", "resume"):
            result = json.loads(done.out)
            for key in ("decision", "spent", "share"):
                assert key in result
                assert f"`{key}" in SKILL


def test_the_study_of_the_skill_is_valid(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
    (tmp_path / "study.yaml").write_text(blocks(SKILL, "yaml")[0], encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    done = invoke(capsys, "plan", folder=tmp_path)
    assert done.code == 0, done.err


def test_people_set_a_biased_judge_right(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "people", tmp_path / "people")

    done = subprocess.run(
        [sys.executable, "decide.py"], cwd=folder, capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("Take polite")
    assert "By your labels: short is the best of these 3 (proved at 95 %" in done.stdout
