"""A run as Inspect logs; inspect-ai, a large package, is not among the test requirements."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.interop.logs import read_logs
from tests.support.commands import invoke


@pytest.mark.slow
def test_inspect_reads_what_is_exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="needs the extra `inspect`")
    done = invoke(capsys, "export", "--format", "inspect", "--out", "logs", folder=folder)
    paths = sorted((folder / "logs").glob("*.eval"))
    logs = {one.eval.task_args["candidate"]: one for one in map(log.read_eval_log, map(str, paths))}
    failed = [sample for sample in logs["c0"].samples if sample.error is not None]

    assert done.code == 0, done.err
    assert logs["c0"].results.completed_samples == 39
    assert [sample.id for sample in failed] == ["e1"]
    assert logs["c1"].samples[0].output.completion == "so be it"
    assert logs["c1"].samples[0].model_usage["replay/c1"].output_tokens == 2
    again = read_logs([str(path) for path in paths]).matrix()
    assert set(again.names) == {"c0", "c1"}
    assert int(np.isnan(again.scores).sum()) == 1


@pytest.mark.slow
def test_the_extra_and_the_folder_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "name a folder: --out" in invoke(capsys, "export", "--format", "inspect", folder=folder).err
    )
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)  # as if it were not installed
    done = invoke(capsys, "export", "--format", "inspect", "--out", "logs", folder=folder)
    assert done.code == 2
    assert "pip install 'bestarm-agent[inspect]'" in " ".join(done.err.split())
