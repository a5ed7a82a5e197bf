"""Baselines that follow the scores, by hand and by their papers' figures."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.lucb import Lucb
from benchmarks.baselines.naive_pooling import NaivePooling
from benchmarks.baselines.sar import Sar
from benchmarks.baselines.score_only import ScoreOnly
from benchmarks.baselines.top_two import TopTwo
from scipy.stats import beta

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.ucb_e_lrf import SWEEPS, SWEEPS_AGAIN, LowRankEnsemble
from bestarm_agent.selectors.types import Guarantee, Problem, State, Stop, Tell
from bestarm_agent.stats.history import Factors
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.selectors.rules.test_ucb_e_lrf import cells_of, correlated_world
from tests.support.histories import lesson
from tests.support.selector_suite import NO_CELLS, World, WorldRun, opened, play

# lucb


def test_a_trace_of_lucb_by_hand() -> None:
    """Scores 1, 0, .9, delta = .1. Upper bounds of 1 and 2 in rounds 1 to 4:

    t = 1: equal widths, so 2. t = 2: ln(600) = 6.397: 1.788 against .9 + 1.265, so 2.
    t = 3: ln(3037.5) = 8.019: 2.002 against .9 + 1.156, so 2.
    t = 4: ln(9600) = 9.170: 2.141 against .9 + 1.071, so 1.
    """
    found = play(opened(Lucb, 3, 100, delta=0.1), [1.0, 0.0, 0.9], 11)
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[3:] == [0, 2, 0, 2, 0, 2, 0, 1]


def after_one_each() -> Pairs:
    """After .9, .5, .4 the round is (0, 1)."""
    selector = opened(Lucb, 3, 100)
    play(selector, [0.9, 0.5, 0.4], 3)
    return selector


def test_both_of_a_round_are_chosen_before_either_is_told() -> None:
    """A zero for 0 in between does not change the second, unless that cannot be called."""
    assert play(after_one_each(), [0.0, 0.5, 0.4], 2) == [0, 1]
    selector = after_one_each()
    assert selector.ask(1)[0].pair.candidate == 0
    [ask] = selector.ask(1, allowed=np.array([True, False, True]))
    assert ask.pair.candidate in (0, 2)


def test_a_set_stands_apart_once_all_its_members_do() -> None:
    selector = opened(Lucb, 4, 400, stop_when_separated=True, top_k=2)
    play(selector, [1.0, 0.95, 0.05, 0.0])
    assert selector.stopped() is Stop.SEPARATED
    assert selector.answer.leading(2) == [0, 1]
    estimates = selector.answer.estimates()
    assert estimates.lower[:2].min() > estimates.upper[2:].max()
    assert estimates.lower[0] < estimates.upper[1]


def test_the_counts_are_the_most_even_ones() -> None:
    """Zhou, Chen & Li 2014, section 6.2: LUCB gives a worker 6 to 17 tasks at Q = 10n, K = 20."""
    selector = opened(Lucb, 164, 800, track_intervals=False, top_k=20)
    WorldRun(selector, World.bernoulli(np.linspace(0.4, 1.0, 164), 800, seed=5)).go(1640)
    counts = selector.table.n_trials
    assert counts.min() >= 4
    assert counts.max() <= 40


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"top_k": 0}, "top_k must be >= 1, got 0"),
    ],
)
def test_senseless_parameters_are_refused(params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        opened(Lucb, 8, 10, **params)


# sar


def test_a_trace_of_sar_by_hand() -> None:
    """Targets 6, 8, 12 as in Successive Rejects at K = 4, T = 40; two are wanted.

    Gaps of .9, .7, .5, .1: .4, .2, .2, .6, so the last is rejected after 6 pulls; then .4, .2, .2,
    so the first is accepted after 8; the last two part after 12.
    """
    selector = opened(Sar, 4, 100, budget=40, top_k=2)
    play(selector, [0.9, 0.1, 0.5, 0.7])
    assert selector.table.n_trials.tolist() == [8, 6, 12, 12]
    assert selector.answer.leading(2) == [0, 3]
    assert selector.answer.ranking() == [0, 3, 2, 1]


def test_the_most_pulls_of_one_worker_are_those_of_the_paper() -> None:
    """Zhou, Chen & Li 2014, section 6.2: 164 workers, Q = 10n, K = 20: up to 143 (n_{K-1})."""
    rule = Sar(Problem(164, 800, budget=1640), top_k=20)
    assert rule._schedule(164, 1640).targets[-1] == 143


def test_it_ends_when_the_rest_is_decided() -> None:
    """Two of .5, .5, .1 are wanted: all gaps are .4; if the last is rejected first, that is all."""
    counts = set()
    for seed in range(20):
        selector = opened(Sar, 3, 100, seed=seed, budget=30, top_k=2)
        play(selector, [0.5, 0.5, 0.1])
        counts.add(tuple(selector.table.n_trials.tolist()))
        assert set(selector.answer.leading(selector.rule.top_k)) == {0, 1}
        assert selector.stopped() is Stop.BUDGET
    assert (7, 7, 7) in counts
    assert len(counts) == 3


def test_equals_at_the_border_are_rejected_not_accepted() -> None:
    """Accepting them would fill the set with whoever is tied at the top after two pulls."""
    selector = opened(Sar, 30, 400, budget=300, top_k=3)
    play(selector, [1.0] * 30)
    assert selector.table.n_trials.max() >= 20


def test_when_all_are_wanted_nothing_is_asked_twice_over() -> None:
    selector = opened(Sar, 3, 100, budget=30, top_k=5)
    play(selector, [0.5, 0.6, 0.7])
    assert sorted(selector.answer.leading(selector.rule.top_k)) == [0, 1, 2]


def test_a_senseless_number_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k must be >= 1, got 0"):
        opened(Sar, 3, 100, budget=30, top_k=0)


# top-two


def told(scores: list[list[float]], n_examples: int = 100) -> tuple[Pairs, TopTwo]:
    """A selector that has been told the given scores of each candidate."""
    selector = opened(TopTwo, len(scores), n_examples)
    assert isinstance(selector.rule, TopTwo)
    for i, row in enumerate(scores):
        only = np.arange(len(scores)) == i
        asks = selector.ask(len(row), allowed=only)
        selector.tell([Tell(a.seq, State.DONE, s) for a, s in zip(asks, row, strict=True)])
    return selector, selector.rule


def test_the_posterior_by_hand() -> None:
    """Three right of four: Beta(4, 2). Mean over 8 examples: 3/8 seen, half of it at 4/6."""
    selector, rule = told([[1.0, 1.0, 0.0, 1.0], []], n_examples=8)
    wins, losses = rule._posterior()
    assert (wins[0], losses[0]) == (4, 2)
    np.testing.assert_allclose(selector.answer.estimates().mean, [3 / 8 + 4 / 8 * 4 / 6, np.nan])


def test_a_draw_has_the_posterior_of_the_mean_over_all_examples() -> None:
    _, rule = told([[1.0, 1.0, 0.0, 1.0]], n_examples=8)
    rng = np.random.default_rng(1)
    draws = np.array([rule._draw(rng)[0] for _ in range(4000)])
    assert draws.mean() == pytest.approx(3 / 8 + 4 / 8 * 4 / 6, abs=0.01)
    assert draws.std() == pytest.approx(4 / 8 * beta(4, 2).std(), rel=0.08)


def test_pulls_in_flight_narrow_the_posterior_and_leave_its_mean_alone() -> None:
    selector, rule = told([[1.0, 1.0, 0.0, 1.0], [0.0]])
    selector.ask(6, allowed=np.array([True, False]))
    wins, losses = (each[0] for each in rule._posterior())
    assert wins / (wins + losses) == pytest.approx(4 / 6)
    assert wins + losses == pytest.approx(6 + 6)


@pytest.mark.coverage
def test_the_leader_gets_half() -> None:
    """Two far-apart candidates: binomial, 5.2 standard errors of 1,000 pulls."""
    selector, _ = told([[1.0] * 60, [0.0] * 60], n_examples=5000)
    found = np.mean([ask.pair.candidate == 0 for ask in selector.ask(1000)])
    assert abs(found - 0.5) < 5.2 * np.sqrt(0.25 / 1000)


# ucb-e-lrf by scores alone, and pooling as it is usually done


def test_one_by_one_the_ablation_is_algorithm_6() -> None:
    k, n, batch, world = 12, 80, 7, correlated_world(12, 80, seed=3)
    selector = opened(ScoreOnly, k, n, batch=batch, warm_up=0.1, members=16, eta=1.0)
    run = WorldRun(selector, world).go(96)
    draws = KeyedRandom(0, "low-rank")
    model = LowRankEnsemble(k, n, draws.at(0), n_members=16)
    for number in range(6):
        run.tell()
        cells = cells_of(selector)
        model.fit(cells, SWEEPS_AGAIN if number else SWEEPS, draws.at(2 * number + 1))
        bounds = model.means(selector.table.total, *NO_CELLS) + np.sqrt(
            1.0 / selector.table.n_scored
        )
        before = len(run.pairs)
        run.go(batch)
        assert {pair.candidate for pair in run.pairs[before:]} == {int(bounds.argmax())}


def test_the_ablations_intervals_hold_at_any_time() -> None:
    selector = opened(ScoreOnly, 3, 60, batch=4, members=8)
    WorldRun(selector, World.bernoulli([0.1, 0.9, 0.4], 60, seed=1)).go(100)
    assert selector.answer.estimates().guarantee is Guarantee.ANYTIME_VALID


def test_the_mean_fills_up_with_predictions_by_hand() -> None:
    """Predictions are 1/2 (offset 0, no directions); scores 1, 1, then 0.25 of four examples.

    The refit comes with the first pull after the warm-up batch of two, so from then on the mean is
    (2 + 2 / 2) / 4, then (2.25 + 1 / 2) / 4.
    """
    blank = lesson(Factors(np.zeros(4), np.zeros((4, 0))))
    selector = opened(NaivePooling, 1, 4, history=blank, batch=2)
    for ask in selector.ask(2):
        selector.tell([Tell(ask.seq, State.DONE, 1.0)])
    assert selector.answer.estimates().mean[0] == 1.0
    [ask] = selector.ask()
    assert selector.answer.estimates().mean[0] == pytest.approx(3 / 4)
    selector.tell([Tell(ask.seq, State.DONE, 0.25)])
    assert selector.answer.estimates().mean[0] == pytest.approx(2.75 / 4)


def test_useless_history_is_left_alone() -> None:
    world = World.bernoulli([0.2, 0.5, 0.8], 30, seed=5)
    naive = opened(NaivePooling, 3, 30, history=lesson(30, gain=0.0), batch=4)
    plain = opened("ucb-e", 3, 30, batch=4)
    assert WorldRun(naive, world).go(60).pairs == WorldRun(plain, world).go(60).pairs
