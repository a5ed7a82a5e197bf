from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.proofs import OnNewExamples
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Guarantee, Problem, State, Tell
from bestarm_agent.stats.betting import MeanIntervals
from bestarm_agent.stats.new_examples import Leads
from tests.support.selector_suite import flown, opened

RUNS, N_TOLD = 60, 200


def misses(
    lower: NDArray[np.float64], upper: NDArray[np.float64], truth: NDArray[np.float64]
) -> bool:
    return bool(((lower > truth + 1e-9) | (upper < truth - 1e-9)).any())


def ever_misses(selector: Pairs, seed: int, means: list[float]) -> tuple[bool, bool]:
    """Whether a stated interval, and one in order of completion, ever misses a true mean.

    32 calls are in flight; wrong answers take three times as long.
    """
    rng = np.random.default_rng([seed, 5])
    n_rows, n_examples = len(means), selector.rule.problem.n_examples
    scores = (rng.random((n_rows, n_examples)) < np.array(means)[:, None]).astype(float)
    truth = scores.mean(axis=1)

    def outcome(ask: Ask) -> tuple[Tell, float]:
        score = float(scores[ask.pair])
        return Tell(ask.seq, State.DONE, score), rng.exponential(1.0 if score else 3.0)

    naive = MeanIntervals(n_rows, n_examples, 1 - selector.rule.problem.confidence)
    missed = naive_missed = False
    for ask in islice(flown(selector, outcome, 32), N_TOLD):
        value = np.array([scores[ask.pair]])
        naive.extend(ask.pair.candidate, value, value)
        found = selector.answer.estimates()
        missed |= misses(found.lower, found.upper, truth)
        naive_missed |= misses(naive.lower, naive.upper, truth)
    return missed, naive_missed


@pytest.mark.slow
@pytest.mark.coverage
def test_slow_wrong_answers_do_not_bias_the_stated_intervals() -> None:
    """Level .95 at all times and for all candidates at once: a binomial test at 1e-6.

    The same sequences fed in order of completion fail the same test, so it has power.
    """
    means = [0.7, 0.6, 0.5]
    results = [
        ever_misses(
            opened(("ucb-e", "uniform")[seed % 2], len(means), 1000, seed=seed), seed, means
        )
        for seed in range(RUNS)
    ]
    n_missed, n_naive = np.sum(results, axis=0)
    assert binom.sf(n_missed - 1, RUNS, 0.05) > 1e-6
    assert binom.sf(n_naive - 1, RUNS, 0.05) < 1e-6


def test_a_void_pair_enters_as_anything() -> None:
    selector = opened("uniform", 1, 4)
    asks = selector.ask(4)
    for ask, state in zip(asks, (State.DONE, State.VOID, State.DONE, State.FAILED), strict=True):
        selector.tell([Tell(ask.seq, state, 1.0 if state is State.DONE else 0.0)])
    estimates = selector.answer.estimates()
    assert (estimates.lower[0], estimates.upper[0]) == (2 / 4, 3 / 4)
    assert estimates.guarantee is Guarantee.ANYTIME_VALID


def test_scores_behind_a_pending_one_wait() -> None:
    selector = opened("uniform", 1, 4)
    asks = selector.ask(3)
    selector.tell([Tell(ask.seq, State.DONE, 1.0) for ask in asks[1:]])
    assert selector.answer.estimates().lower[0] == 0.0
    selector.tell([Tell(asks[0].seq, State.DONE, 1.0)])
    assert selector.answer.estimates().lower[0] >= 3 / 4


def test_without_tracking_every_interval_is_open() -> None:
    selector = Pairs(UcbE(Problem(2, 6, track_intervals=False)))
    for ask in selector.ask(12):
        selector.tell([Tell(ask.seq, State.DONE, 1.0)])
    assert selector.answer.estimates().lower.tolist() == [0.0, 0.0]
    assert not selector.rule.problem.seeks_proof  # nothing can be shown
    with pytest.raises(ValueError, match="needs intervals"):
        Problem(2, 6, track_intervals=False, within=0.1)


@pytest.mark.parametrize("rule", ["auto", "opt-mai", "racing", "ucb-e"])
def test_the_leading_are_the_first_of_the_ranking(rule: str) -> None:
    rng = np.random.default_rng(3)
    selector = opened(rule, 6, 40, budget=120, axes=np.arange(6)[:, None] // 2)
    assert (
        selector.answer.leading(1) == selector.answer.ranking()[:1]
    )  # nothing is known: ties alone
    for _ in range(60):
        for ask in selector.ask(2):
            selector.tell([Tell(ask.seq, State.DONE, float(rng.random() < 0.5))])
        if selector.table.n_asked == 60:
            selector.bar(selector.answer.ranking()[:2])
        assert selector.answer.leading(1) == selector.answer.ranking()[:1]
        assert selector.answer.leading(3) == selector.answer.ranking()[:3]


@pytest.mark.parametrize("rule", ["auto", "racing"])
def test_few_scores_do_not_make_all_rivals_be_compared(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_compared, leads_over = 0, OnNewExamples.leads_over

    def counted(on_new: OnNewExamples, one: int, others: Sequence[int]) -> Leads:
        nonlocal n_compared
        n_compared += len(others)
        return leads_over(on_new, one, others)

    monkeypatch.setattr(OnNewExamples, "leads_over", counted)
    selector = opened(rule, 400, 200, stop_when_separated=True)
    means = np.random.default_rng(1).random(400)
    luck = np.random.default_rng(2)
    for _ in range(60):
        asks = selector.ask(16)
        scores = [float(luck.random() < means[ask.pair.candidate]) for ask in asks]
        selector.tell(
            [Tell(ask.seq, State.DONE, score) for ask, score in zip(asks, scores, strict=True)]
        )
    assert n_compared == 0
