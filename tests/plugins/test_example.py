"""The plug-in in examples/plugin passes its own tests, as if it were installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.distributions import install

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.mark.slow
def test_its_tests_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"].items()
    groups = {name.removeprefix("bestarm_agent."): found for name, found in declared}
    install(tmp_path, monkeypatch, project["name"], entry_points=groups, files={})
    path = os.pathsep.join(map(str, (tmp_path, PLUGIN / "src", ROOT / "src")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", str(PLUGIN), str(PLUGIN / "tests"), "-k", "not TestRule"],
        env={**os.environ, "PYTHONPATH": path},  # the suite of rules takes long
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
