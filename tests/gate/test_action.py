"""The steps of ``action.yml`` in a shell, with the variables that a runner sets."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.studies import write_study

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")

# Stands for GitHub's own program: keeps comments in a file, and refuses where it is told to.
GH = """
import json, os, re, sys
from pathlib import Path

place, arguments = Path(os.environ["COMMENTS"]), sys.argv[1:]
comments = json.loads(place.read_text()) if place.exists() else []
assert arguments.pop(0) == "api" and os.environ["GH_TOKEN"]
if "--jq" in arguments:
    marker = re.search(r'startswith\\("(.*)"\\)', arguments[-1])[1]
    assert arguments[1] == "repos/o/r/issues/7/comments"
    ids = [c["id"] for c in comments if c["bot"] and c["body"].startswith(marker)]
    print("\\n".join(map(str, ids)))
    raise SystemExit
if os.environ.get("READ_ONLY"):
    raise SystemExit("HTTP 403: Resource not accessible by integration")
body = Path(arguments[-1].removeprefix("body=@")).read_text()
if arguments[1] == "PATCH":
    number = int(arguments[2].removeprefix("repos/o/r/issues/comments/"))
    next(c for c in comments if c["id"] == number)["body"] = body
else:
    assert arguments[2] == "repos/o/r/issues/7/comments"
    comments.append({"id": len(comments) + 1, "bot": True, "body": body})
place.write_text(json.dumps(comments))
"""
BESTARM = "from bestarm_agent.cli.main import main; main()"


@dataclass
class Runner:
    """Runs the steps of the action as a GitHub runner does; one job after the other.

    Attributes:
        folder: the working directory of the job.
        outputs: of the step ``gate``.
        names: outputs of the step ``name``.
        told: what the steps printed.
    """

    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    told: str = ""

    def __post_init__(self) -> None:
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "gh.py").write_text(GH)
        python = shlex.quote(sys.executable)
        for name, words in {
            "bestarm-agent": f"{python} -c {shlex.quote(BESTARM)}",
            "gh": f"{python} {shlex.quote(str(tools / 'gh.py'))}",
            "python": python,
        }.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (tools / name).chmod(0o755)

    def job(self, inputs: Mapping[str, str], **variables: str) -> int:
        """Run the steps that are scripts, but for the installation; return the exit code."""
        given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()}
        self.outputs, self.told = {}, ""
        for name in ("Name", "Gate", "Comment", "Verdict"):
            if name == "Comment" and not self.outputs["verdict"]:
                continue
            code = self._step(STEPS[name], {**given, "token": "t", **inputs}, variables)
            if code:
                return code
        return 0

    def _step(
        self, step: Mapping[str, Any], inputs: Mapping[str, str], variables: Mapping[str, str]
    ) -> int:
        values = {f"inputs.{key}": value for key, value in inputs.items()}
        values |= {f"steps.gate.outputs.{key}": value for key, value in self.outputs.items()}
        values |= {f"steps.name.outputs.{key}": value for key, value in self.names.items()}
        values["github.event.pull_request.number"] = "7"
        output = self.folder / "output"
        output.write_text("")
        env = {key: EXPRESSION.sub(lambda e: values[e[1]], v) for key, v in step["env"].items()}
        code = self.shell(step["run"], GITHUB_OUTPUT=str(output), **env, **variables)
        told = dict(line.split("=", 1) for line in output.read_text().splitlines())
        if step.get("id") == "gate":
            self.outputs = told
        elif step.get("id") == "name":
            self.names = told
        return code

    def shell(self, script: str, **variables: str) -> int:
        """Run a script as a runner does; return its exit code."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("BESTARM_")}
        env = {
            **own,
            "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_REPOSITORY": "o/r",
            "COMMENTS": str(self.folder / "comments.json"),
            **variables,
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.folder,
            env=env,
            text=True,
            capture_output=True,
            check=False,
        )
        self.told += done.stdout + done.stderr
        return done.returncode

    @property
    def summary(self) -> str:
        """What the job's summary shows."""
        return (self.folder / "summary.md").read_text(encoding="utf-8")

    @property
    def comments(self) -> list[dict[str, Any]]:
        """The comments of the pull request."""
        place = self.folder / "comments.json"
        return list(json.loads(place.read_text(encoding="utf-8"))) if place.exists() else []

    def result(self) -> dict[str, Any]:
        """The answer as JSON."""
        return dict(json.loads((Path(self.outputs["folder"]) / "gate.json").read_text()))


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A runner on a study of six candidates: c5 is right in 72 %, c0 in 30 %."""
    write_study(tmp_path, n_examples=200)
    return Runner(tmp_path)


ASK = {"study": "study.json", "baseline": "c0", "margin": "0.1", "arguments": "--challenger c5 -q"}


@pytest.mark.slow
def test_a_job_passes_the_next_one_pays_nothing_and_a_worse_one_fails(runner: Runner) -> None:
    assert runner.job(ASK) == 0, runner.told
    assert runner.outputs["verdict"] == "passed"
    assert "c5 | ✅ not worse by more than 10 points" in runner.summary
    folder = Path(runner.outputs["folder"])
    files = {"gate.md", "gate.json", "gate.xml", "report.html", "comment.md"}
    assert {path.name for path in folder.iterdir()} == files
    assert runner.result()["spent"]["calls"] > 0
    assert runner.job(ASK) == 0
    assert runner.result()["spent"]["calls"] == 0
    (comment,) = runner.comments
    assert comment["body"].startswith("<!-- bestarm-agent gate study.json -->\n### ✅ Gate")

    # two gates of a job keep their reports and comments apart
    names = runner.names
    write_study(runner.folder / "éval", n_examples=200)
    runner.job({**ASK, "study": "éval/study.json"})
    assert re.fullmatch("_+val_study.json", runner.names["study"])
    assert runner.names["stamp"] != names["stamp"]
    assert Path(runner.outputs["folder"]) != folder
    assert (folder / "gate.md").exists()
    assert len(runner.comments) == 2

    worse = {**ASK, "baseline": "c5", "arguments": "--challenger c0 -q"}
    assert runner.job(worse) == 5
    assert "::error::A challenger is worse" in runner.told
    assert len(runner.comments) == 2
    assert "### ❌ Gate" in runner.comments[0]["body"]


@pytest.mark.slow
def test_an_undecided_challenger_may_be_allowed_and_a_token_may_be_read_only(
    runner: Runner,
) -> None:
    short = {**ASK, "budget-answers": "10", "fail-on-undecided": "false"}
    assert runner.job(short, READ_ONLY="1") == 0
    assert runner.outputs == {**runner.outputs, "verdict": "undecided", "exit-code": "3"}
    assert "::warning::The pull request cannot be commented on" in runner.told
    assert "::warning::The budget left a challenger undecided" in runner.told


@pytest.mark.slow
def test_inputs_are_data_and_wrong_usage_fails_the_job(runner: Runner) -> None:
    evil = {**ASK, "baseline": "$(touch pwned)`touch pwned`; touch pwned"}
    assert runner.job(evil) == 2
    assert runner.outputs["verdict"] == ""
    assert "neither a candidate" in " ".join(runner.told.split())
    assert not (runner.folder / "pwned").exists()


@pytest.mark.parametrize(
    ("code", "allowed", "ends"),
    [("0", "true", 0), ("3", "true", 3), ("3", "false", 0), ("4", "false", 4), ("5", "false", 5),
     ("130", "false", 130), ("", "false", 1)],
)  # fmt: skip
def test_the_verdict_ends_the_job(runner: Runner, code: str, allowed: str, ends: int) -> None:
    script = STEPS["Verdict"]["run"]
    assert runner.shell(script, EXIT_CODE=code, FAIL_ON_UNDECIDED=allowed) == ends


def test_no_script_holds_an_expression() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_replies_are_kept_where_they_are_restored_also_after_a_failure() -> None:
    kept, restored = STEPS["Keep the replies"], STEPS["Restore the replies"]
    assert kept["with"]["path"] == restored["with"]["path"] == "${{ runner.temp }}/bestarm"
    assert kept["with"]["key"] == restored["with"]["key"]
    study, anything = restored["with"]["restore-keys"].splitlines()
    assert kept["with"]["key"].startswith(study)
    assert study.startswith(anything)
    assert '"$RUNNER_TEMP/bestarm/runs.sqlite"' in STEPS["Gate"]["run"]
    assert kept["if"] == "always() && steps.gate.outcome != 'skipped'"
    # it sees no file outside of the workspace, such as those in runner.temp
    assert not any("hashFiles" in str(step) for step in STEPS.values())


@pytest.mark.slow
def test_a_prompt_made_worse_fails_with_the_shipped_models_and_without_keys_by_replay(
    tmp_path: Path,
) -> None:
    arithmetic = ROOT / "examples" / "arithmetic"
    study = {
        "name": "sums",
        "models": [f"hf/{arithmetic / 'models' / 'sum-llama-167k'}"],
        "prompts": [{"current": "{{ a }}+{{ b }}="}, {"changed": "{{ a }}-{{ b }}="}],
        "params": {"temperature": 0, "max_tokens": 6},
        "dataset": {"path": str(arithmetic / "dataset.jsonl"), "target": "answer"},
        "providers": {"hf": {"completion": True}},
        "scorer": "numeric",
    }
    (tmp_path / "study.json").write_text(json.dumps(study))
    runner = Runner(tmp_path)
    labels = ["current", "changed"]
    ask = {"study": "study.json", "baseline": labels[0], "margin": "0.1", "arguments": "-q"}
    assert runner.job(ask) == 5, runner.told
    found = runner.result()
    assert found["challengers"][0]["difference"] < -0.5
    assert found["challengers"][0]["examples"] < 100

    (recipe,) = re.findall(r"^bestarm-agent answers .*$", PAGE, re.MULTILINE)
    assert runner.shell(recipe.replace("mine.sqlite", "temp/bestarm/runs.sqlite")) == 0, runner.told
    forked = {
        **study,
        "models": [{"model": f"replay/{label}", "label": label} for label in labels],
        "prompts": [{"any": "{{ a }} {{ b }}"}],
        "providers": {"replay": {"path": "answers.jsonl"}},
    }
    del forked["params"]
    (tmp_path / "forks.json").write_text(json.dumps(forked))
    assert runner.job({**ask, "study": "forks.json"}) == 5, runner.told
    assert runner.result()["challengers"] == found["challengers"]
