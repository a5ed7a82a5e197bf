"""Every command on a small study: what it prints, writes and returns."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml

from bestarm_agent.cli.main import app
from bestarm_agent.cli.options import OPTIONS
from bestarm_agent.cli.run import (
    EXIT_FAILURES,
    EXIT_NO_GUARANTEE,
    EXIT_OK,
    EXIT_WORSE,
    exit_code,
    mode_exit_code,
)
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.stats.non_inferiority import Conclusion
from tests.support.commands import Done, invoke
from tests.support.standings import selector_with, standing_of
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


def select(capsys: Capsys, folder: Path, *flags: str) -> Done:
    path = write_study(folder)
    return invoke(capsys, "select", "--candidates", path, "--quiet", *flags, folder=folder)


def break_every_answer(folder: Path) -> None:
    scores = folder / "scores.jsonl"
    broken = [json.loads(line) for line in scores.read_text().splitlines()]
    for record in broken:
        del record["score"]
        record["error"] = "overloaded"
    scores.write_text("\n".join(map(json.dumps, broken)))


def test_select_prints_the_winner_and_writes_the_report(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, "--budget-share", "50%")
    assert done.code == 0
    assert "Take c" in done.out
    assert "On new examples like these" in done.out
    assert len(done.out.splitlines()) <= 16
    assert "Effects:" in invoke(capsys, "show", "--all", folder=tmp_path).out
    assert "120 of 240 answers (50 %), at most 120" in done.out
    report = Path(done.out.partition("Report:")[2].split()[0])
    assert "<!doctype html>" in report.read_text()


def test_select_as_json_is_one_object_on_stdout(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, "--json", "--seed", "3", "--budget-answers", "60")
    result = json.loads(done.out)
    assert (result["asked"], result["told"], result["grid"]) == (60, 60, 240)
    assert result["decision"]["take"] == result["rows"][0]["candidate"]["label"]
    assert result["guarantee"] == "anytime-valid"
    assert done.err == ""


def test_progress_goes_to_stderr_in_plain_lines(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    done = invoke(capsys, "select", "-c", path, folder=tmp_path)
    assert " s | " in done.err
    assert "No score yet" in done.err
    assert "| leading" not in done.out


@pytest.mark.slow
def test_the_exit_code_tells_an_unreached_confidence(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, "--confidence", "0.95", "--budget-answers", "30")
    assert done.code == 3
    assert "not asked enough" in done.out
    reached = select(capsys, tmp_path, "--confidence", "0.95")
    assert reached.code == 0


def test_the_exit_code_tells_failures(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, changes={"limits": {"max_attempts": 1}})
    break_every_answer(tmp_path)
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 4
    assert "No winner yet: no answer has a score" in done.out
    assert "stopped: calls are refused, or too many answers could not be had" in done.out
    assert "Report: " in done.out
    assert re.search(r"Failed: \d+ x overloaded of 6 candidates; mostly: \w", done.out)
    shown = invoke(capsys, "show", folder=tmp_path)
    assert "x overloaded of" in shown.out


def test_a_single_candidate_that_was_never_measured_is_no_success(
    tmp_path: Path, capsys: Capsys
) -> None:
    changes = {
        "models": ["replay/c0"],
        "limits": {"max_attempts": 1},
        "selector": {"stop_when_separated": False},
    }
    path = write_study(tmp_path, n_examples=5, changes=changes)
    break_every_answer(tmp_path)
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 4, done.out
    assert "stopped: calls are refused, or too many answers could not be had" in done.out


def test_several_stores_are_counted_and_one_is_named(tmp_path: Path, capsys: Capsys) -> None:
    for i in range(7):
        folder = tmp_path / f"study{i}"
        folder.mkdir()
        (folder / "runs.sqlite").touch()
        os.utime(folder / "runs.sqlite", (i, i))
    done = invoke(capsys, "list", folder=tmp_path)
    assert done.code == 2
    assert "7 run stores lie here" in done.err
    assert "and 2 more" in done.err
    assert "choose one with --store study6/runs.sqlite" in done.err
    assert "study1" not in done.err


def test_where_no_store_lies_the_way_to_one_is_told(tmp_path: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "show", folder=tmp_path)
    assert done.code == 2
    assert "no run store (runs.sqlite) lies in this folder" in done.err
    assert "bestarm-agent select" in done.err


def test_a_choice_among_one_candidate_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    changes = {"models": ["replay/c0"], "selector": "ucb-e"}
    path = write_study(tmp_path, changes=changes)
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 2
    assert "there is only one candidate, so there is nothing to choose" in done.err
    assert "stop_when_separated: false" in done.err
    listed = invoke(capsys, "list", folder=tmp_path).out
    assert ("asked for nothing" in listed, "running" in listed) == (True, False)


def test_resume_goes_on_with_more_budget(tmp_path: Path, capsys: Capsys) -> None:
    select(capsys, tmp_path, "--budget-answers", "30")
    done = invoke(capsys, "resume", "--budget-answers", "25", "--quiet", "--json", folder=tmp_path)
    assert (done.code, json.loads(done.out)["asked"]) == (0, 55)


@pytest.mark.parametrize(
    ("flag", "amount", "rule"),
    [
        ("--budget-usd", "abc", '--budget-usd must be an amount of dollars such as 5 or "$5"'),
        ("--budget-answers", "-3", "--budget-answers must be at least 1, got -3"),
        ("--budget-minutes", "0", "--budget-minutes must be greater than 0, got 0"),
    ],
)
def test_resume_takes_no_wrong_budget(
    tmp_path: Path, capsys: Capsys, flag: str, amount: str, rule: str
) -> None:
    select(capsys, tmp_path, "--budget-answers", "30")
    done = invoke(capsys, "resume", flag, amount, folder=tmp_path)
    assert done.code == 2
    assert rule in done.err


def test_certify_wants_to_know_what_is_good_enough(tmp_path: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "certify", "-c", write_study(tmp_path), "--quiet", folder=tmp_path)
    assert done.code == 2
    assert "has no section `certify`" in done.err
    assert not (tmp_path / "runs").exists(), "nothing was begun"


def test_list_show_and_report(tmp_path: Path, capsys: Capsys) -> None:
    selected = json.loads(select(capsys, tmp_path, "--json", "--budget-answers", "50").out)
    listed = json.loads(invoke(capsys, "list", "--json", folder=tmp_path).out)
    assert [(run["id"], run["n_told"], run["stopped"]) for run in listed] == [
        (selected["run_id"], 50, "budget")
    ]
    shown_list = invoke(capsys, "list", folder=tmp_path).out
    assert selected["run_id"] in shown_list
    assert shown_list.rstrip().endswith("stopped: the budget is used up")
    shown = json.loads(invoke(capsys, "show", "recorded", "--json", folder=tmp_path).out)
    assert shown["rows"] == selected["rows"]
    page = tmp_path / "page.html"
    assert invoke(capsys, "report", "--out", page, folder=tmp_path).out.strip() == str(page)
    assert selected["decision"]["take"] in page.read_text()


def test_export_keeps_missing_cells_empty(tmp_path: Path, capsys: Capsys) -> None:
    select(capsys, tmp_path, "--budget-answers", "50")
    done = invoke(capsys, "export", folder=tmp_path)
    assert len(list(csv.reader(io.StringIO(done.out)))) == 51


def test_plan_makes_no_call(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, changes={"budget": {"share": 0.1}})
    planned = json.loads(invoke(capsys, "plan", "-c", path, "--json", folder=tmp_path).out)
    assert (planned["answers"], planned["expected"]["calls"]) == (24, 24)
    assert planned["worst"]["calls"] == 24 * 5
    assert planned["expected"]["usd_nanos"] == 24 * 1_000_000
    shown = invoke(capsys, "plan", "-c", path).out
    assert "6 candidates x 40 examples = 240 answers" in shown
    assert "scorer recorded" in shown
    assert not (tmp_path / "runs").exists()


def test_what_init_writes_runs_as_it_is(tmp_path: Path, capsys: Capsys) -> None:
    assert invoke(capsys, "init", folder=tmp_path).code == 0
    done = invoke(capsys, "select", "-c", "study.yaml", "--quiet", folder=tmp_path)
    assert done.code == 0, done.err
    again = invoke(capsys, "init", folder=tmp_path)
    assert again.code == 2
    assert "study.yaml" in again.err


@pytest.mark.slow
def test_simulate_reads_an_earlier_run(tmp_path: Path, capsys: Capsys) -> None:
    select(capsys, tmp_path)
    flags = ["--selectors", "ucb-e", "--seeds", "2", "--budget", "0.2:0.4:2", "--jobs", "1"]
    done = invoke(capsys, "simulate", "latest", *flags, folder=tmp_path)
    assert done.code == 0, done.err
    assert "ucb-e" in done.out
    store = ("--store", tmp_path / "runs" / "runs.sqlite")
    elsewhere = invoke(capsys, "simulate", "latest", *flags, *store, folder=tmp_path.parent)
    assert elsewhere.out.splitlines()[0] == done.out.splitlines()[0]


def test_help_and_version(capsys: Capsys) -> None:
    assert invoke(capsys, "--version").out.startswith("bestarm-agent 0.")
    for command in ("select", "resume", "list", "show", "report", "export", "plan", "simulate"):
        assert "Usage" in invoke(capsys, command, "--help").out


def each_command(command: click.Command, *path: str) -> Iterator[tuple[click.Command, list[str]]]:
    yield command, [*path]
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from each_command(inner, *path, name)


def test_help_explains_every_argument_and_option_and_cuts_no_sentence(capsys: Capsys) -> None:
    known = {" ".join(option.help.split()) for option in OPTIONS.values()}
    shown = set()
    for command, path in each_command(app):
        text = " ".join(invoke(capsys, *path, "--help").out.split())
        shown |= {about for about in known if about in text}
        assert not (isinstance(command, click.Group) and "..." in text.partition("Options")[2]), (
            path
        )
    assert known == shown


@pytest.mark.parametrize(
    ("spent", "code"), [(Spend(calls=10), EXIT_OK), (Spend(calls=11), EXIT_FAILURES)]
)
def test_a_cap_that_was_passed_is_no_success(spent: Spend, code: int) -> None:
    standing = standing_of(["a", "b"], selector_with([[1.0], [0.0]], 9), 9)
    passed = replace(standing, spent=spent, budget=Budget(calls=10), end="budget")
    assert exit_code(passed, confidence_asked=False) == code


@pytest.mark.parametrize(
    ("verdict", "end", "code"),
    [
        (Conclusion.PASSED, "verdict", EXIT_OK),
        (Conclusion.PASSED, "failures", EXIT_FAILURES),
        (Conclusion.UNDECIDED, "budget", EXIT_NO_GUARANTEE),
        (Conclusion.UNDECIDED, "failures", EXIT_FAILURES),
        (Conclusion.FAILED, "failures", EXIT_WORSE),
    ],
)
def test_a_verdict_of_a_run_that_failures_ended_is_no_success(
    verdict: Conclusion, end: str, code: int
) -> None:
    standing = replace(standing_of(["a", "b"], selector_with([[1.0], [0.0]], 9), 9), end=end)
    found = ModeResult("", "", "", (), (), (), verdict, {}, {})
    assert mode_exit_code(found, standing) == code


@pytest.mark.parametrize(
    ("models", "flags", "budget"),
    [
        ("openai/gpt-4.1-mini", (), {"usd": "$2"}),
        ("openai/gpt-4.1-mini,openai/unheard-of", (), {"share": "20%"}),
        ("openai/unheard-of", ("--price", "0.15/0.60"), {"usd": "$2"}),
        ("vllm/unheard-of", ("--base-url", "http://127.0.0.1:9/v1"), {"share": "20%"}),
    ],
)
def test_a_study_of_ones_own_can_be_planned_as_written(
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
    models: str,
    flags: tuple[str, ...],
    budget: dict[str, str],
) -> None:
    """Neither a key nor a price stands before the first plan."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rows = [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in range(20)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own = ("init", "s.yaml", "--data", "d.jsonl", "--models", models, *flags)
    assert invoke(capsys, *own, folder=tmp_path).code == 0
    assert yaml.safe_load((tmp_path / "s.yaml").read_text())["budget"] == budget
    planned = invoke(capsys, "plan", "s.yaml", folder=tmp_path)
    assert planned.code == 0, planned.err
    assert "Expected: " in planned.out
    assert ("OPENAI_API_KEY is not set" in planned.out) == models.startswith("openai/")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--price", "3"), "--price takes dollars per million tokens"),
        (("--price", "-1/2"), "--price takes dollars per million tokens"),
    ],
)
def test_a_price_is_two_amounts(
    tmp_path: Path, capsys: Capsys, flags: tuple[str, ...], message: str
) -> None:
    (tmp_path / "d.jsonl").write_text('{"q": "a", "answer": "b"}')
    own = ("init", "s.yaml", "--data", "d.jsonl", "--models", "openai/x", *flags)
    done = invoke(capsys, *own, folder=tmp_path)
    assert (done.code, message in done.err) == (2, True)
    assert not (tmp_path / "s.yaml").exists()
