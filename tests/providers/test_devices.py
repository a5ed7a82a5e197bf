"""Which devices are found, by a fake nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bestarm_agent.providers.local import device_variables, find_devices
from tests.support import fake_nvidia_smi


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-001", [1]),
        ("GPU-002-aaaa, 1", [2, 1]),
        ("", []),
        ("-1", []),
        ("1,7,2", [1]),
        ("1,1", [1]),
        ("GPU-00", []),
        ("MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", []),
    ],
)
def test_devices_are_those_that_are_visible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, numbers: list[int]
) -> None:
    """CUDA ends the list at the first unknown or repeated entry."""
    fake_nvidia_smi.install(monkeypatch, tmp_path, 3, visible=visible)
    assert find_devices(os.environ) == tuple(numbers)


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_nvidia_smi.install_broken(monkeypatch, tmp_path)
    assert find_devices(os.environ) == ()
    assert find_devices({"PATH": str(tmp_path)}) == ()


def test_variables_show_a_process_its_devices_alone() -> None:
    assert device_variables([3, 1]) == {
        "CUDA_VISIBLE_DEVICES": "3,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
