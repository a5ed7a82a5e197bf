"""Wrong addresses and a missing installation, without a cluster."""

from __future__ import annotations

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.ray import connection
from bestarm_agent.providers.ray.connection import check_installed, connect


def test_an_error_names_the_extra_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    for act in (check_installed, lambda: connect("auto")):
        with pytest.raises(ConfigError, match=r"run: pip install 'bestarm-agent\[ray\]'"):
            act()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:9", "at the address `127.0.0.1:9`: .*refused. Start one .ray start --head."),
        ("nonsense", "at the address `nonsense`: Invalid address format: nonsense. Start one"),
        ("auto", "at the address `auto`: .*refused"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9" if address == "auto" else "")
    with pytest.raises(ConfigError, match=message):
        connect(address)
