"""A Ray cluster of two nodes with a core each, and a head without, all on this machine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import pytest

_STORE_BYTES = 80_000_000


@contextmanager
def small_cluster() -> Iterator[Any]:
    """Run a cluster, which RAY_ADDRESS names; yield Ray's ``Cluster``."""
    pytest.importorskip("ray", reason="needs the extra ray")
    from ray.cluster_utils import Cluster

    before = signal.getsignal(signal.SIGTERM)
    # A short path: those of Ray's sockets in it may have 107 characters.
    with TemporaryDirectory(prefix="ray") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token into our home
        patch.setenv("RAY_TMPDIR", home)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
        finally:
            cluster.shutdown()
            signal.signal(signal.SIGTERM, before)
