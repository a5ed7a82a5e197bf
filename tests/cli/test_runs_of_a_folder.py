"""Commands that are given no run find that of the folder they stand in."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.cli.stores import runnable
from bestarm_agent.engine.scorer_signs import ScorerFault
from tests.support.commands import Done, invoke
from tests.support.standings import changed, standing_with
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


def begin(folder: Path, capsys: Capsys, name: str = "study", **changes: Any) -> str:  # noqa: ANN401
    """Begin a run of ``NAME.yaml`` in a folder; return its id."""
    written = write_study(folder, n_candidates=2, n_examples=5)
    study = {**json.loads(written.read_text()), **changes}
    del study["name"]
    written.unlink()
    (folder / f"{name}.yaml").write_text(json.dumps(study))  # JSON is YAML
    done = invoke(
        capsys, "select", f"{name}.yaml", "-q", "--json", "--budget-answers", "4", folder=folder
    )
    assert done.code == 0, done.err
    return str(json.loads(done.out)["run_id"])


def shown(done: Done) -> str:
    assert done.code == 0, done.err
    return str(json.loads(done.out)["run_id"])


@pytest.mark.slow
def test_a_shared_store_gives_each_folder_its_own_run(tmp_path: Path, capsys: Capsys) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = begin(one, capsys, "study", output_dir="../runs")
    (two / "empty").mkdir(parents=True)
    second = begin(two, capsys, "other", output_dir="../runs")
    assert shown(invoke(capsys, "show", "--json", folder=one)) == first
    assert shown(invoke(capsys, "show", "latest", "--json", folder=one)) == second
    resumed = invoke(capsys, "resume", "-q", "--json", "--budget-answers", "1", folder=one)
    assert shown(resumed) == first
    for command in ("report", "answers", "export"):
        done = invoke(capsys, command, folder=one)
        assert done.code == 0, done.err
    assert first in invoke(capsys, "report", folder=one).out


def test_the_newest_run_of_all_studies_of_the_folder_counts(tmp_path: Path, capsys: Capsys) -> None:
    begin(tmp_path, capsys)
    judged = begin(tmp_path, capsys, "judged")
    (tmp_path / "notes.yaml").write_text("name: [broken")
    assert shown(invoke(capsys, "show", "--json", folder=tmp_path)) == judged


def test_a_study_that_was_refused_is_not_the_newest_run(tmp_path: Path, capsys: Capsys) -> None:
    first = begin(tmp_path, capsys)
    study = json.loads((tmp_path / "study.yaml").read_text())
    alone = {**study, "models": study["models"][:1], "selector": "auto"}
    (tmp_path / "alone.yaml").write_text(json.dumps(alone))
    refused = invoke(capsys, "select", "alone.yaml", "-q", folder=tmp_path)
    assert (refused.code, "only one candidate" in refused.err) == (2, True)
    for run in ((), ("latest",)):  # by the names of this folder's studies, and by the store
        assert shown(invoke(capsys, "show", *run, "--json", folder=tmp_path)) == first


def test_the_study_names_one_of_several_stores(tmp_path: Path, capsys: Capsys) -> None:
    mine = begin(tmp_path, capsys, output_dir="mine")
    begin(tmp_path / "sub", capsys)
    assert shown(invoke(capsys, "show", "--json", folder=tmp_path)) == mine
    assert shown(invoke(capsys, "show", mine[:-1], "--json", folder=tmp_path)) == mine


def test_a_folder_without_a_run_is_told_the_way(tmp_path: Path, capsys: Capsys) -> None:
    begin(tmp_path / "theirs", capsys, "theirs", output_dir="../runs")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "study.yaml").write_text("{output_dir: ../runs, models: [nonsense]}")
    done = invoke(capsys, "show", folder=mine)
    assert done.code == 1
    assert "no run of study.yaml or another study of this folder" in done.err
    assert "`latest` means the newest of 1 there" in done.err
    (mine / "study.yaml").write_text("name: [broken")
    for command in ("show", "report", "answers"):
        done = invoke(capsys, command, "--store", "../runs/runs.sqlite", folder=mine)
        assert (done.code, "note: study.yaml, line 1" in done.err) == (0, True)
    by_name = invoke(capsys, "show", "latest", "--store", "../runs/runs.sqlite", folder=mine)
    assert by_name.code == 0


def commanded(done: Done) -> list[str]:
    """The words of the command that a result says to run next."""
    command = done.json["decision"]["next"]["command"]
    assert f"`{command}`" in done.json["decision"]["said"][-1]
    return shlex.split(command)[1:]


def test_the_command_to_run_next_runs_from_another_folder(tmp_path: Path, capsys: Capsys) -> None:
    study = write_study(tmp_path / "my studies", n_candidates=2, n_examples=40)
    begin(tmp_path / "two", capsys, "two")  # now there are two stores, and none is found by search
    done = invoke(capsys, "select", study, "-q", "--json", "--budget-answers", "2", folder=tmp_path)
    again = invoke(capsys, *commanded(done), "-q", "--json", folder=tmp_path)
    assert again.json["run_id"] == done.json["run_id"]
    assert again.json["asked"] > 2
    shown = invoke(capsys, "show", "--json", "--store", study.parent / "runs" / "runs.sqlite")
    assert "--store" in commanded(shown)
    assert "--store" not in commanded(invoke(capsys, "show", "--json", folder=study.parent))


def test_a_study_of_another_name_is_named_in_the_command() -> None:
    fault = ScorerFault("it rejects", "try it", "bestarm-agent try", rejects=True)
    standing = changed(standing_with(["a", "b"], [[1.0], [0.0]]), suspect=fault)
    assert standing.decision.next is not None
    assert standing.decision.next.command == "bestarm-agent try"  # of a run that has no file
    for path, command in (("a/study.yaml", "study.yaml"), ("my study.yaml", "'my study.yaml'")):
        named = changed(standing, study=path)
        assert named.decision.said[-1].endswith(f"`bestarm-agent try {command}`.")
        advice = runnable(named, "postgresql://me:secret@host/runs").decision.next
        assert advice is not None
        assert advice.command == f"bestarm-agent try {shlex.quote(path)}"


CHANGES = {
    "budget.usd": "budget.usd=1",
    "scorer": "scorer=exact",
    "stop": 'stop={"for": "seen", "within": 0.01}',
    "rule": "selector.name=ucb-e",
    "eta": "selector.params.eta=2",
    "seed": "selector.seed=3",
    "slices": 'slices={"by": "kind"}',
}


@pytest.mark.parametrize(
    ("proposed", "left_out", "instead"),
    [
        ("try", [], None),
        ("select --set scorer=contains", ["scorer"], None),
        ("select --for new", ["stop"], "stop.within=0.01"),
        ("select --selector auto", ["rule", "eta"], None),
        ("plan", ["budget.usd"], None),
    ],
)
def test_commands_keep_what_replaced_values_of_the_file(
    proposed: str, left_out: list[str], instead: str | None
) -> None:
    """But for what they replace themselves, and a budget that is to be raised."""
    fault = ScorerFault("it rejects", "try it", f"bestarm-agent {proposed}", rejects=True)
    standing = standing_with(["a", "b"], [[1.0], [0.0]])
    changes = tuple(CHANGES.values())
    advice = changed(standing, suspect=fault, study="s.yaml", changes=changes).decision.next
    assert advice is not None
    assert advice.command is not None
    verb, *own = shlex.split(proposed)
    kept = [text if key not in left_out else instead for key, text in CHANGES.items()]
    repeated = [word for change in kept if change for word in ("--set", change)]
    assert shlex.split(advice.command) == ["bestarm-agent", verb, "s.yaml", *own, *repeated]


def test_another_rule_takes_the_seed_and_not_the_parameters_of_the_first() -> None:
    fault = ScorerFault("it fails", "mend it", "bestarm-agent select --selector auto", rejects=True)
    whole = 'selector={"name": "ucb-e", "params": {"eta": 2}, "seed": 3}'
    standing = changed(standing_with(["a"], [[1.0]]), suspect=fault, study="s.yaml")
    for change, kept in ((whole, " --set selector.seed=3"), ("selector=ucb-e", "")):
        advice = changed(standing, changes=(change,)).decision.next
        assert advice is not None
        assert advice.command == f"bestarm-agent select s.yaml --selector auto{kept}"
    resumed = changed(standing, suspect=replace(fault, command="bestarm-agent resume latest"))
    again = changed(resumed, changes=(whole,)).decision.next
    assert again is not None
    assert again.command == "bestarm-agent resume latest"  # goes on as the run began


def test_commands_name_the_study_that_a_run_had(tmp_path: Path, capsys: Capsys) -> None:
    here, name = tmp_path / "here", "judged by us.yaml"
    written = write_study(here, n_candidates=2, n_examples=40)  # a call costs $0.001
    (here / "study.yaml").write_text("name: another")  # that a command without a name would take
    written.rename(here / name)
    poor = ("--budget-usd", "0.0001", "--set", "selector={name: uniform, seed: 3}", "-q", "--json")
    done = invoke(capsys, "select", name, *poor, folder=here)
    said = done.json["decision"]["said"][0]
    assert said == "No winner yet: the budget does not pay for one answer."
    run_id = done.json["run_id"]
    for folder, path in ((here, name), (tmp_path, f"here/{name}")):
        shown = invoke(capsys, "show", run_id, "--json", folder=folder)
        changed_to = 'selector={"name": "uniform", "seed": 3}'
        assert commanded(shown) == ["plan", path, "--set", changed_to]
        assert invoke(capsys, *commanded(shown), folder=folder).code == 0
    report = invoke(capsys, "report", run_id, "--format", "md", folder=here)
    assert f"`bestarm-agent plan '{name}' --set " in (here / report.out.strip()).read_text()


def test_going_on_says_that_the_study_was_edited(tmp_path: Path, capsys: Capsys) -> None:
    begin(tmp_path, capsys)
    path = tmp_path / "study.yaml"
    resume = ("resume", "-q", "--json", "--budget-answers", "1")
    assert "edited" not in invoke(capsys, *resume, folder=tmp_path).err
    path.write_text(f"{path.read_text()}\n# another model would be better\n")
    told = invoke(capsys, *resume, folder=tmp_path).err
    assert "study.yaml was edited since the run began, which goes on as it began" in told
    path.unlink()
    assert "edited" not in invoke(capsys, *resume, folder=tmp_path).err


def test_on_a_narrow_terminal_the_list_says_how_runs_ended(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begin(tmp_path, capsys)
    monkeypatch.setattr("bestarm_agent.cli.output._WIDTH_WITHOUT_TERMINAL", 60)
    head, line = invoke(capsys, "list", folder=tmp_path).out.splitlines()
    assert head.split() == ["run", "study", "state"]
    assert line.split(maxsplit=2) == [run_id, "study", "stopped: the budget is used up"]
