from __future__ import annotations

import math

import pytest

from bestarm_agent.certification.certificate import Screened, certify
from bestarm_agent.certification.evidence import Goal
from bestarm_agent.certification.screening import Verdict

GOAL = Goal(0.1, 0.1)


class Bench:
    """Screens made-up candidates, and keeps what it was asked for."""

    def __init__(self, e_values: list[float]) -> None:
        self.e_values = e_values
        self.asked: list[tuple[int, float]] = []

    def screen(self, candidate: int, goal: Goal) -> Screened:
        self.asked.append((candidate, goal.delta))
        log_e = math.log(self.e_values[candidate])
        verdict = Verdict.CERTIFIED if log_e >= goal.enough else Verdict.UNDECIDED
        examples = tuple(range(candidate + 1))
        return Screened(candidate, verdict, examples, log_e, (log_e,), (), 0.05)


def test_a_sequence_chooses_the_last_before_the_first_failure() -> None:
    bench = Bench([11.0, 2.0, 50.0, 12.0])
    found = certify([3, 0, 1, 2], bench.screen, GOAL)
    assert (found.chosen, found.certified) == (0, (3, 0))
    assert bench.asked == [(3, 0.1), (0, 0.1), (1, 0.1)]
    assert found.n_labels == 4
    assert [found.labels_to_certify(i) for i in (3, 0, 1, 2)] == [4, 4, None, None]


def test_bonferroni_looks_from_the_end_and_stops_at_the_first_good_one() -> None:
    bench = Bench([100.0, 100.0, 39.0])  # K / delta = 30
    found = certify([0, 1, 2], bench.screen, GOAL, "bonferroni")
    assert (found.chosen, found.certified) == (2, (2,))
    assert bench.asked == [(2, 0.1 / 3)]
    assert certify([0, 1], Bench([19.0, 19.0]).screen, GOAL, "bonferroni").chosen is None


def test_e_bh_certifies_what_bonferroni_does_not() -> None:
    bench = Bench([16.0, 16.0, 1.0])  # two of three pass at K / (2 delta) = 15
    found = certify([0, 1, 2], bench.screen, GOAL, "e-bh")
    assert (found.chosen, found.certified, len(found.screened)) == (1, (0, 1), 3)
    assert certify([0, 1, 2], bench.screen, GOAL, "bonferroni").chosen is None


def test_nobody_is_good_enough() -> None:
    found = certify([0], Bench([3.0]).screen, GOAL)
    assert (found.chosen, found.certified, found.n_labels) == (None, (), 1)
    assert certify([], Bench([]).screen, GOAL, "e-bh").chosen is None


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean `bonferroni`"):
        certify([0], Bench([1.0]).screen, GOAL, "bonferoni")
