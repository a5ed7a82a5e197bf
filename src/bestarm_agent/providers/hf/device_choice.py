"""Chooses the devices that models of this machine are loaded onto."""

from __future__ import annotations

import os
from typing import Literal

from bestarm_agent.config.yaml.documents import OptionsError, Problem
from bestarm_agent.providers.devices import Device, find_devices
from bestarm_agent.providers.hf.loading import find_device
from bestarm_agent.providers.hf.options import HfOptions
from bestarm_agent.providers.model_memory import available_bytes


def find_kind(options: HfOptions, provider: str) -> str:
    """Return "cpu" or "cuda", for all models; raises ConfigError."""
    if options.devices == "auto":
        return find_device(options.device)
    kind: Literal["cpu", "cuda"] = "cpu" if "cpu" in options.devices else "cuda"
    if options.device not in ("auto", kind):
        text = f"`devices` does not agree with `device: {options.device}`; leave one of them out"
        raise _error(provider, text)
    return find_device(kind)


def find_worker_devices(options: HfOptions, kind: str, provider: str) -> tuple[Device, ...]:
    """Return the devices that have a worker process each; empty: this process has the models.

    Processes without an accelerator share the free memory. Raises ConfigError.
    """
    given = options.devices
    if kind == "cpu":
        n_workers = 0 if given == "auto" else len(given)
        return tuple(Device(i, available_bytes() // n_workers) for i in range(n_workers))
    found = find_devices(os.environ)
    if given == "auto":
        return found if len(found) > 1 else ()
    numbers = [device.number for device in found]
    for number in given:
        if number not in numbers:
            raise _error(
                provider,
                f"`devices`: device {number} does not exist or is not visible; visible devices: "
                f"{', '.join(map(str, numbers)) or 'none'}. Name one of these, or change "
                "CUDA_VISIBLE_DEVICES",
            )
    return tuple(device for device in found if device.number in given)


def _error(provider: str, text: str) -> OptionsError:
    return OptionsError(f"provider `{provider}`", [Problem(("devices",), text)])
