"""A race in Harbor where Harbor is not installed."""

from __future__ import annotations

import sys

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.harbor import HarborRace


def test_without_harbor_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "harbor", None)
    monkeypatch.setitem(sys.modules, "harbor.trial.trial", None)
    with pytest.raises(ConfigError, match=r"Python 3.12: pip install 'bestarm-agent\[harbor\]'"):
        HarborRace()
