"""The error probability is split once: what statements are tested at adds up to what they promise.

Simulations cannot see a level that is handed out twice, since errors are far rarer than their
bounds. So the levels are taken down where bets use them, and added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from benchmarks.baselines.filled_subset import FilledSubset
from numpy.typing import NDArray

from bestarm_agent.selectors import proofs
from bestarm_agent.selectors.answer import Answer
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.stats import betting, paired_sequences
from tests.support.selector_suite import World, WorldRun, opened

K, N, CONFIDENCE = 4, 60, 0.9
ALPHA = 1.0 - CONFIDENCE


class Levels:
    """The levels at which bets reject, as bets use them: of means and leads, and of tests.

    A mean or a lead is bounded from both sides, each by a ``LowerBound`` of its own or by
    ``lower_bounds`` of many rows at once. A test of candidates
    against the leaders errs with its level in all; one against a given candidate errs with its
    level for every other one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bounds: list[float] = []
        self._tests: dict[int, set[float]] = {}
        make, enough = betting.LowerBound.__init__, paired_sequences._Against.enough
        bound_all = betting.lower_bounds

        def made(bound: betting.LowerBound, *args: Any) -> None:  # noqa: ANN401
            make(bound, *args)
            self._bounds.append(bound._alpha)

        def made_at_once(rows: Sequence[NDArray[np.float64]], alpha: float, *args: Any) -> Any:  # noqa: ANN401
            self._bounds += [alpha] * len(rows)
            return bound_all(rows, alpha, *args)

        def asked(test: paired_sequences._Against) -> float:
            needed: float = enough.fget(test)  # type: ignore[attr-defined]
            self._tests.setdefault(test.opponent, set()).add(1.0 / needed)
            return needed

        monkeypatch.setattr(betting.LowerBound, "__init__", made)
        for module in (betting, proofs):
            monkeypatch.setattr(module, "lower_bounds", made_at_once)
        monkeypatch.setattr(paired_sequences._Against, "enough", property(asked))

    def of_bounds(self, look: Callable[[], object]) -> float:
        """Add the levels of all bounds that are worked out for a statement."""
        self._bounds.clear()
        look()
        assert self._bounds
        return sum(self._bounds)

    def of_tests(self, look: Callable[[], object], *, fixed: bool) -> float:
        """Return the probability with which the best one is ever wronged by any test."""
        self._tests.clear()
        look()
        assert self._tests
        assert all((opponent >= 0) == fixed for opponent in self._tests)
        [level] = {level for levels in self._tests.values() for level in levels}
        return level * (K - 1 if fixed else 1)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Levels:
    return Levels(monkeypatch)


def answered(rule: str | type[Rule], levels: Levels, **asked: Any) -> Answer:  # noqa: ANN401
    """Return the answer of a run in which nobody is told apart, with nothing worked out."""
    world = World.bernoulli([0.8, 0.75, 0.7, 0.65], N, 3)
    selector = opened(rule, K, N, seed=1, confidence=CONFIDENCE, **asked)
    answer = WorldRun(selector, world).go(K * N // 2).selector.answer
    answer.restart()
    return answer


def of_all_pairs(answer: Answer) -> None:
    for one, other in combinations(range(K), 2):
        answer.on_new.lead(one, other)


def of_all_means(answer: Answer) -> None:
    for one in range(K):
        answer.on_new.mean(one)


def of_any(answer: Answer) -> None:
    for one in range(K):
        answer.margin(one)


def of_new(answer: Answer) -> None:
    for one in range(K):
        if not answer.barred[one]:
            answer.on_new.rivals(one)
            answer.on_new.behind(one)


def test_the_leading_one_is_tested_at_all_of_it(levels: Levels) -> None:
    answer = answered(FilledSubset, levels)

    def look() -> None:
        answer.best()
        answer.margin()

    assert levels.of_tests(look, fixed=False) == pytest.approx(ALPHA)


def test_means_and_fixed_pairs_share_it(levels: Levels) -> None:
    answer = answered(FilledSubset, levels)
    means = levels.of_bounds(answer.estimates)
    pairs = levels.of_tests(lambda: of_any(answer), fixed=True)
    assert means + pairs == pytest.approx(ALPHA)


def test_without_common_examples_means_have_it_all(levels: Levels) -> None:
    answer = answered("ucb-e", levels)
    assert levels.of_bounds(answer.estimates) == pytest.approx(ALPHA)


@pytest.mark.parametrize("in_clusters", [False, True])
def test_proved_and_all_leads_on_new_examples_share_it(levels: Levels, in_clusters: bool) -> None:
    own = tuple(range(0, N, 2)) if in_clusters else ()
    answer = answered(FilledSubset, levels, independent=own)
    proved = levels.of_tests(lambda: of_new(answer), fixed=in_clusters)
    assert proved == pytest.approx(answer.on_new.alpha)
    assert proved + levels.of_bounds(lambda: of_all_pairs(answer)) == pytest.approx(ALPHA)


def test_once_some_have_left_leads_alone_speak_of_new_examples(levels: Levels) -> None:
    answer = answered(FilledSubset, levels)
    answer.bar([0])
    assert levels.of_bounds(lambda: of_all_pairs(answer)) <= ALPHA * (1 + 1e-9)
    with pytest.raises(AssertionError):  # nothing is tested
        levels.of_tests(lambda: of_new(answer), fixed=False)


@pytest.mark.parametrize("rule", [FilledSubset, "ucb-e"])
def test_means_on_new_examples_have_it_to_themselves(
    levels: Levels, rule: str | type[Rule]
) -> None:
    answer = answered(rule, levels)
    assert levels.of_bounds(lambda: of_all_means(answer)) == pytest.approx(ALPHA)
