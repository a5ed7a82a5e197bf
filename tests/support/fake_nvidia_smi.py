"""A program called ``nvidia-smi`` that lists devices of one's choice, as the real one does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

_PROGRAM = """\
#!{python}
import sys
assert sys.argv[1:] == [
    "--query-gpu=index,uuid", "--format=csv,noheader"
], sys.argv
{body}
"""


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, n_devices: int, visible: str | None = None
) -> None:
    """Put it first into PATH, with some devices, and set CUDA_VISIBLE_DEVICES.

    Device 0 has the UUID GPU-000-aaaa, and so on.
    """
    rows = [f"{number}, GPU-{number:03}-aaaa" for number in range(n_devices)]
    _write(monkeypatch, folder, f"print({os.linesep.join(rows)!r})")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


def install_broken(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put one first into PATH that finds no driver."""
    _write(monkeypatch, folder, "sys.exit('NVIDIA-SMI has failed because it cannot ...')")


def _write(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    program = bin_folder / "nvidia-smi"
    program.write_text(_PROGRAM.format(python=sys.executable, body=body))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder), prepend=os.pathsep)
