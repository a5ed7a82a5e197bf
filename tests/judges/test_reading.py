"""Generated replies of many forms, with known answers, are read right or named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from benchmarks.judges.reading import CHOICES, NUMBERS, Case, N, choices, measured, numbers
from numpy.random import Generator

from bestarm_agent.stats.keyed_random import KeyedRandom


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cases"), [("numeric", numbers), ("multiple-choice", choices)])
def test_replies_as_people_write_them_are_scored_right(
    name: str, cases: Callable[[Generator], Iterator[Case]]
) -> None:
    """Of 2,000 in 30 forms and more at most .5 % are not, and each of these is unparsable."""
    assert min(len(NUMBERS), len(CHOICES)) >= 30
    found = measured(name, cases(KeyedRandom(7, "replies").at(0)))
    assert found["right"] >= 0.995 * N, found
    assert set(found) <= {"right", "unparsable"}
