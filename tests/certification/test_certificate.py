from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm_agent.certification.betting import Goal
from bestarm_agent.certification.certificate import (
    Certificate,
    Screened,
    certify,
    plan_rounds,
    single_goal,
)
from bestarm_agent.stats.non_inferiority import Decision
from tests.support.rates import RateCheck

GOAL = Goal(0.1, 0.1)


class Bench:
    """Screens made-up candidates by their e-values, and keeps which it was asked for."""

    def __init__(self, e_values: list[float], goal: Goal = GOAL) -> None:
        self.e_values = e_values
        self.goal = goal
        self.asked: list[int] = []

    def certify(self, order: list[int], correction: str = "sequence") -> Certificate:
        single = single_goal(self.goal, len(order), correction)

        def screening(candidate: int) -> Screened:
            self.asked.append(candidate)
            log_e = math.log(self.e_values[candidate])
            verdict = Decision.PASSED if log_e >= single.enough else Decision.UNDECIDED
            examples = tuple(range(candidate + 1))
            return Screened(candidate, verdict, examples, log_e, (log_e,), (), 0.05)

        return certify(order, screening, correction)


def test_a_sequence_chooses_the_last_before_the_first_failure() -> None:
    bench = Bench([11.0, 2.0, 50.0, 12.0])
    found = bench.certify([3, 0, 1, 2])
    assert (found.chosen, found.certified) == (0, (3, 0))
    assert bench.asked == [3, 0, 1]
    assert found.n_labels == 4
    assert [found.labels_to_certify(i) for i in (3, 0, 1, 2)] == [4, 4, None, None]


def test_bonferroni_looks_from_the_end_and_stops_at_the_first_good_one() -> None:
    bench = Bench([100.0, 31.0, 29.0])  # K / delta = 30
    found = bench.certify([0, 1, 2], "bonferroni")
    assert (found.chosen, found.certified) == (1, (1,))
    assert bench.asked == [2, 1]
    assert Bench([19.0, 19.0]).certify([0, 1], "bonferroni").chosen is None


def test_nobody_is_good_enough() -> None:
    found = Bench([3.0]).certify([0])
    assert (found.chosen, found.certified, found.n_labels) == (None, (), 1)
    assert Bench([]).certify([], "bonferroni").chosen is None


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean `bonferroni`"):
        Bench([1.0]).certify([0], "bonferoni")


def e_values(seed: int, n_null: int, n_good: int) -> list[float]:
    """E-values that are 1/p for p uniform times 1/2 (null), and large ones (good)."""
    rng = np.random.default_rng(seed)
    null = 0.5 / np.sqrt(rng.random(n_null))  # mean 1
    return [*null.tolist(), *np.exp(rng.uniform(3.0, 8.0, n_good)).tolist()]


@pytest.mark.coverage
@pytest.mark.parametrize("correction", ["sequence", "bonferroni"])
def test_error_rates(correction: str, check_rate: RateCheck) -> None:
    # Level 1e-6 each. E-values of mean 1 with a heavy tail for the bad, in the worst order.
    wrong, runs = 0, 2000
    for seed in range(runs):
        found = Bench(e_values(seed, n_null=5, n_good=5), Goal(0.1, 0.2)).certify(
            list(range(10)), correction
        )
        wrong += any(i < 5 for i in found.certified)
    check_rate(wrong, runs, 0.2)


def test_plans() -> None:
    rng = np.random.default_rng(0)
    rounds = plan_rounds(np.arange(10), np.arange(10, 35), rng)
    assert rounds.others.shape == (10, 2)
    assert sorted(rounds.labelled) == list(range(10))
    both = plan_rounds(np.arange(40), np.arange(0), rng)  # labelled ones serve as others
    assert both.others.shape == (10, 3)
    assert not set(both.labelled) & set(both.others.ravel())
    few = plan_rounds(np.arange(10), np.arange(10, 35), rng, max_labels=5)
    assert few.others.shape == (5, 5)
    with pytest.raises(ValueError, match="no example has a label"):
        plan_rounds(np.arange(0), np.arange(5), rng)
    with pytest.raises(ValueError, match="5 examples are too few for 9"):
        plan_rounds(np.arange(5), np.arange(0), rng, ratio=9)
