"""``import``, and other tools' logs in ``simulate``, ``replay`` and, once run, ``--history``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent.interop.logs import read_logs
from tests.interop.test_golden_files import INSPECT, LM_EVAL, PROMPTFOO
from tests.support.commands import invoke

N_EXAMPLES = 60


def inspect_log(path: Path, model: str, share: float, epochs: int = 1) -> Path:
    """Write an Inspect log of one model that is right on the first ``share`` of the examples.

    From the second epoch on it is right on one less each.
    """
    right = round(share * N_EXAMPLES)
    samples = [
        {
            "id": f"e{i}",
            "epoch": epoch + 1,
            "scores": {"match": {"value": "C" if i < right - epoch else "I"}},
        }
        for epoch in range(epochs)
        for i in range(N_EXAMPLES)
    ]
    spec = {"task": "t", "model": model, "task_id": model}
    path.write_text(json.dumps({"version": 2, "eval": spec, "samples": samples}))
    return path


def test_import_shows_what_the_logs_hold(capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke(capsys, "import", *INSPECT, "--metric", "match")

    assert done.code == 0
    assert "2 candidates x 4 examples" in done.out
    assert "without a score, not wrong (an error, or no verdict): 1 of 8 answers" in done.out
    assert [line.split() for line in done.out.splitlines()[-2:]] == [
        ["mockllm/good", "3", "100", "%"],
        ["mockllm/weak", "4", "50", "%"],
    ]


def test_import_refuses_to_guess(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "choose one with --metric" in invoke(capsys, "import", *LM_EVAL).err
    refused = invoke(capsys, "import", *PROMPTFOO, "--out", tmp_path / "a.csv")
    assert refused.code == 2
    assert "FILE.jsonl" in refused.err


def test_names_from_logs_are_harmless_on_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done = invoke(capsys, "import", inspect_log(tmp_path / "a.json", "evil\x1b[2J[red]", 0.5))

    assert "\x1b" not in done.out
    assert "evil_2J_red" in done.out


@pytest.mark.slow
def test_simulate_says_what_logs_would_have_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shares = {"best": 0.9, "second": 0.4, "third": 0.3, "fourth": 0.2}
    logs = [inspect_log(tmp_path / f"{n}.json", n, share) for n, share in shares.items()]
    options = ("--selectors", "sysrs", "--seeds", "20", "--budget", "0.1:0.5:5", "--jobs", "1")
    done = invoke(capsys, "simulate", *logs, *options)

    assert done.code == 0
    assert "4 candidates x 60 examples" in done.out
    text = " ".join(done.out.split())
    assert "sysrs names the best candidate in 95 % of the runs" in text
    assert text.endswith("of 240 calls.")


@pytest.mark.slow
def test_imported_logs_become_a_stored_run_and_history(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs = [inspect_log(tmp_path / f"{n[-1]}.json", n, s) for n, s in (("lab/a", 0.9), ("b", 0.2))]
    imported = invoke(capsys, "import", *logs, "--study", tmp_path / "old")
    path = tmp_path / "old" / "study.json"
    all_pairs = {"selector": {"stop_when_separated": False}}
    path.write_text(json.dumps(json.loads(path.read_text()) | all_pairs))
    invoke(capsys, "select", "study.json", "--quiet", folder=tmp_path / "old")
    options = ("--json", "--history", "latest", "--seed", "1")
    done = invoke(capsys, "select", "study.json", *options, folder=tmp_path / "old")
    compared = invoke(capsys, "compare", "--between", "a", "b", folder=tmp_path / "old")

    assert imported.code == 0, imported.err
    assert done.code == 0, done.err
    assert json.loads(done.out)["decision"]["take"] == "a"
    assert "history: 2 candidates on 60 of the 60 examples" in " ".join(done.err.split())
    assert compared.code == 0, compared.err


def test_epochs_become_repeats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logs = [
        inspect_log(tmp_path / f"{n}.json", n, s, epochs=3) for n, s in (("a", 0.9), ("b", 0.2))
    ]
    assert invoke(capsys, "import", *logs, "--study", tmp_path / "old").code == 0
    assert json.loads((tmp_path / "old" / "study.json").read_text())["repeats"] == 3
    done = invoke(capsys, "select", "study.json", "--json", folder=tmp_path / "old")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["decision"]["take"] == "a"
    assert found["spent"]["calls"] == found["asked"]
    assert found["grid"] == 2 * 3 * N_EXAMPLES


def test_logs_whose_pairs_have_different_numbers_of_results_are_drawn_once(tmp_path: Path) -> None:
    logs = [
        inspect_log(tmp_path / "a.json", "a", 0.9, 3),
        inspect_log(tmp_path / "b.json", "b", 0.2),
    ]
    assert read_logs([str(log) for log in logs]).n_repeats == 1
    assert read_logs([str(logs[0])]).n_repeats == 3
    assert read_logs(INSPECT, metric="match").n_repeats == 2, "a void pair counts for nothing"


def test_the_recording_is_a_matrix_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    assert invoke(capsys, "import", *PROMPTFOO, "--out", out).code == 0
    assert read_logs([str(out)]).matrix().names == read_logs(PROMPTFOO).matrix().names
