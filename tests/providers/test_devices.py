"""Which devices are found, by a fake nvidia-smi."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bestarm_agent.providers.devices import Device, device_variables, find_devices
from tests.support import fake_nvidia_smi

MIB = 1 << 20


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
    fake_nvidia_smi.install(monkeypatch, tmp_path, 24_564, 24_564, 81_559, visible=visible)
    found = find_devices(os.environ)
    assert [device.number for device in found] == numbers
    sizes = {0: 24_564 * MIB, 1: 24_564 * MIB, 2: 81_559 * MIB}
    assert all(device.n_bytes == sizes[device.number] for device in found)


def test_without_a_driver_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_nvidia_smi.install_broken(monkeypatch, tmp_path)
    assert find_devices(os.environ) == ()
    assert find_devices({"PATH": str(tmp_path)}) == ()


def test_a_device_whose_memory_is_not_told_is_not_assigned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_nvidia_smi.install(monkeypatch, tmp_path, "[N/A]")
    assert find_devices(os.environ) == ()


def test_variables_show_a_process_its_devices_alone() -> None:
    assert device_variables([Device(3, 1), Device(1, 1)]) == {
        "CUDA_VISIBLE_DEVICES": "3,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
