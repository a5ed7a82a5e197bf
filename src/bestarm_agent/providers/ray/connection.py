"""Connects this process to a Ray cluster."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from bestarm_agent.errors import ConfigError, counted

_LOCAL = "local"
_PROBE_SECONDS = 5.0


def check_installed() -> None:
    """Check that Ray is installed; raises ConfigError."""
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed; run: pip install 'bestarm-agent[ray]'")


def connect(address: str) -> bool:
    """Connect this process to a cluster; blocks for seconds.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names, or that runs on this machine. "local":
            one that is started on this machine, and ends with ``ray.shutdown``. Or host and port.

    Returns:
        True if the caller has to leave it by ``ray.shutdown``; False if the process was in one
        already, whichever that is: it can be in one at a time.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    check_installed()
    import ray
    from ray._private import worker

    if ray.is_initialized():
        return False
    try:
        _probe(address)
        ray.init(
            address,
            include_dashboard=False if address == _LOCAL else None,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"there is no Ray cluster at the address `{address}`: {said}. Start one (ray start "
            "--head), name its address (HOST:6379, or RAY_ADDRESS), or take `local`"
        ) from None
    # else news of the cluster, such as the death of a worker, is printed to our standard output
    worker._worker_logs_enabled = False
    return True


def describe_resources() -> str:
    """Return the resources of the cluster, and those that are free, in words."""
    import ray

    every: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    free: Mapping[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    nodes: Sequence[Mapping[str, object]] = ray.nodes()  # type: ignore[no-untyped-call]
    parts = [f"{every.get(k, 0):g} {k} ({free.get(k, 0):g} free)" for k in ("GPU", "CPU")]
    n_alive = sum(bool(node["Alive"]) for node in nodes)
    return f"{' and '.join(parts)} on {counted(n_alive, 'node')}"


def _probe(address: str) -> None:
    """Raise OSError or ValueError if nothing listens at an address; Ray would try for minutes."""
    from ray._private.services import canonicalize_bootstrap_address_or_die

    if address == _LOCAL or "://" in address:
        return
    host, _, port = canonicalize_bootstrap_address_or_die(address).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
