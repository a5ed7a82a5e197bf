"""How many examples a run needs, simulated."""

from __future__ import annotations

import tracemalloc

from bestarm_agent.stats.detectable import examples_to_part


def test_a_million_examples_are_not_all_looked_at() -> None:
    tracemalloc.start()
    try:
        found = examples_to_part(0.1, 0.2, n_examples=1_000_000, alpha=0.025)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 200 < found < 400
    assert peak < 50e6
