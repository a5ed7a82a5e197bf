"""The same seed asks the same pairs: every rule against asks that were recorded once.

A change that alters these on purpose records them anew, and says so in the changelog:
``python -m tests.selectors.test_asked_pairs``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors import Ask, State, Tell
from bestarm_agent.selectors.registry import SELECTORS
from tests.support.selector_suite import opened

RECORDED = Path(__file__).with_name("asked_pairs.json")
K, N, PULLS, IN_FLIGHT = 7, 60, 160, 5
# Of seven outcomes in a row, one is the candidate's failure and one could not be measured.
STATES = (*[State.DONE] * 5, State.FAILED, State.VOID)


def asked_by(rule: str) -> dict[str, Any]:
    """Run a rule with five pairs in flight, told in random order; return its asks and ranking."""
    chances = np.linspace(0.2, 0.8, K)[:, None]
    scores = (np.random.default_rng(7).random((K, N)) < chances).astype(float)
    selector = opened(rule, K, N, seed=3, budget=PULLS)
    order = np.random.default_rng(11)
    in_flight: list[Ask] = []
    pairs: list[list[int]] = []
    while len(pairs) < PULLS:
        asks = selector.ask(min(IN_FLIGHT - len(in_flight), PULLS - len(pairs)))
        pairs += [list(ask.pair) for ask in asks]
        in_flight += asks
        if not in_flight:
            break
        ask = in_flight.pop(int(order.integers(len(in_flight))))
        state = STATES[int(order.integers(len(STATES)))]
        score = float(scores[ask.pair]) if state is State.DONE else 0.0
        selector.tell([Tell(ask.seq, state, score)])
    return {"pairs": pairs, "ranking": selector.answer.ranking()}


@pytest.mark.parametrize("rule", sorted(SELECTORS.built_in))
def test_a_rule_asks_what_it_asked_before(rule: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    assert asked_by(rule) == recorded[rule]


def record() -> None:
    """Write what every rule asks now."""
    found = {rule: asked_by(rule) for rule in sorted(SELECTORS.built_in)}
    RECORDED.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    record()
