"""Asks and outcomes in columns and packed pages come back as they were put."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bestarm_agent.domain.events import Rows
from bestarm_agent.selectors.types import State
from bestarm_agent.store import run_state
from bestarm_agent.store.run_state import fold
from tests.support.store_runs import asked, failed, grid, started, told

N = 700  # several pages, the last one not full


def test_asks_come_back() -> None:
    asks = [
        replace(
            asked(seq, candidate=seq % 7, example=seq // 7),
            reason=("floor", "duel")[seq % 2],
            excluded=Rows.of([1, 2]) if seq % 11 == 0 else Rows(),
        )
        for seq in range(N)
    ]
    pairs = fold([started(), *grid(7, N), *asks]).asks
    assert list(pairs) == asks
    assert pairs[-3:] == asks[-3:]
    assert pairs.pair(10) == (3, 1)
    assert pairs.candidate.tolist() == [ask.candidate for ask in asks]
    with pytest.raises(IndexError):
        pairs[N]


def test_outcomes_come_back_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_state, "_KEPT", 2)
    rng = np.random.default_rng(1)
    order = rng.permutation(N)[: N - 40].tolist()
    kinds = [told, failed, lambda seq: failed(seq, score=0.0)]
    outcomes = {seq: replace(kinds[seq % 3](seq), elapsed=float(seq)) for seq in order}
    log = [started(), *grid(1, N), *(asked(seq, 0, seq) for seq in range(N))]
    state = fold([*log, *outcomes.values()])
    pairs = state.told
    assert list(pairs) == order
    assert list(reversed(pairs)) == order[::-1]
    assert dict(pairs.items()) == outcomes
    assert all(pairs[seq] == outcomes[seq] for seq in rng.permutation(order).tolist())
    assert pairs.at.tolist() == [float(seq) for seq in order]
    assert pairs.failed() == [seq for seq in order if seq % 3]
    states = {0: State.DONE, 1: State.VOID, 2: State.FAILED}
    for seq in range(N):
        expected = states[seq % 3] if seq in outcomes else State.PENDING
        assert pairs.state_at(seq) is expected
        assert pairs.score_at(seq) == (outcomes[seq].score if seq in outcomes else None)
    assert pairs.state.tolist() == [pairs.state_at(seq) for seq in range(max(order) + 1)]
    scores = [np.nan if (score := pairs.score_at(seq)) is None else score for seq in range(N)]
    np.testing.assert_equal(pairs.score, scores[: max(order) + 1])
    missing = next(seq for seq in range(N) if seq not in outcomes)
    with pytest.raises(KeyError):
        pairs[missing]
