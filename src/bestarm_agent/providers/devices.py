"""Finds the accelerators that servers and workers may be given."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_QUERY = ("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
_QUERY_SECONDS = 60.0  # a driver without persistence mode wakes every device first
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator, by its number as ``nvidia-smi`` counts: in the order of the buses."""

    number: int
    n_bytes: int  # all of its memory


def find_devices(variables: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the NVIDIA devices that ``CUDA_VISIBLE_DEVICES`` of some variables leaves visible.

    Numbers and UUIDs in it are understood; as CUDA does, the first unknown one ends the list. Empty
    where there is no ``nvidia-smi``, where it fails or tells no memory, and for parts of devices.
    """
    listed = _listed(variables)
    visible = variables.get(_VISIBLE)
    if visible is None:
        return tuple(device for _, device in listed)
    found: list[Device] = []
    for entry in visible.split(","):
        device = _named(entry.strip(), listed)
        if device is None or device in found:
            break
        found.append(device)
    return tuple(found)


def device_variables(devices: Sequence[Device]) -> dict[str, str]:
    """Return the variables that show a process these devices alone."""
    numbers = ",".join(str(device.number) for device in devices)
    return {_VISIBLE: numbers, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the numbers of nvidia-smi


def _listed(variables: Mapping[str, str]) -> list[tuple[str, Device]]:
    """Return all devices with their UUIDs."""
    program = shutil.which("nvidia-smi", path=variables.get("PATH"))
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, *_QUERY], capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        )
        rows = [line.split(", ") for line in done.stdout.splitlines() if line]
        return [(uuid, Device(int(number), int(mib) * _MIB)) for number, uuid, mib in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []  # no driver, or memory that is shared with the processor ("[N/A]")


def _named(entry: str, listed: Sequence[tuple[str, Device]]) -> Device | None:
    if entry.startswith("GPU-"):
        matching = [device for uuid, device in listed if uuid.startswith(entry)]
    else:
        matching = [device for _, device in listed if str(device.number) == entry]
    return matching[0] if len(matching) == 1 else None
