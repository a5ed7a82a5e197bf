"""A race in Harbor where Harbor is not installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bestarm_agent.errors import ConfigError, ProviderError
from bestarm_agent.interop.harbor import HarborRace, _Trials


def test_without_harbor_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "harbor", None)
    monkeypatch.setitem(sys.modules, "harbor.trial.trial", None)
    with pytest.raises(ConfigError, match=r"Python 3.12: pip install 'bestarm-agent\[harbor\]'"):
        HarborRace()


def test_a_reward_that_rounding_took_beyond_0_or_1_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier may sum .1 ten times; a reward of another scale is none."""
    policies = SimpleNamespace(ERROR_POLICIES={})
    monkeypatch.setitem(sys.modules, "harbor.models.trial.error_policy", policies)
    none: Any = None
    trials = _Trials({}, none, 1, none, None, None, "fails", is_priced=False)
    given = (sum([0.1] * 3 + [0.7]), 1 + 2e-16 * 2, 1.0, -1e-17, 0.5)
    assert [trials._score([], {"reward": reward}) for reward in given] == [1.0, 1.0, 1.0, 0.0, 0.5]
    for wrong in (1.01, -0.01, 7.0, float("nan")):
        with pytest.raises(ProviderError, match=r"name a reward in \[0, 1\]"):
            trials._score([], {"reward": wrong})
