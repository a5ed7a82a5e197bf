from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bestarm_agent.stats.betting import Wealth
from bestarm_agent.stats.non_inferiority import (
    AimedWealth,
    Comparison,
    Conclusion,
    Question,
    kelly_bet,
    when_proved,
)
from tests.support.gate_worlds import World, question_of, simulate, wrong
from tests.support.rates import RateCheck

WORLDS = 1_000
MARGIN = 0.05
# ties at the margin, at no difference; within the margin; worse; better; missing scores; many
SETTINGS = [
    (World(200, -0.05, 0.15), False),
    (World(200, -0.05, 0.05), False),
    (World(100, -0.05, 0.15, 10), False),
    (World(200, -0.06, 0.15, 3), False),
    (World(100, 0.0, 0.15, 10), False),
    (World(200, 0.0, 0.3), False),
    (World(200, -0.05, 0.15, void=0.02), False),
    (World(200, -0.05, 0.15, draws=3), False),
    (World(200, 0.05, 0.15), True),
    (World(200, 0.06, 0.15, 3), True),
    (World(200, 0.05, 0.15, void=0.02), True),
]


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("world", "improve"), SETTINGS)
def test_any_statement_is_ever_wrong_at_most_as_often_as_allowed(
    world: World, improve: bool, check_rate: RateCheck
) -> None:
    # Binomial test at 1e-6 of the joint error rate .05, looking after every example.
    question = question_of(world, MARGIN, improve=improve)
    found = simulate(world, question, WORLDS, np.random.default_rng(11))
    check_rate(int(wrong(found, world, question).sum()), WORLDS, 0.05)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("statement", ["passed", "failed"])
def test_at_a_tie_each_error_alone_keeps_its_rate_before_the_last_example(
    statement: str, check_rate: RateCheck
) -> None:
    # Binomial test at 1e-6 of the rate .05 of either answer, where neither is shown by the data.
    world = World(200, -MARGIN, 0.15)
    found = simulate(world, question_of(world, MARGIN), WORLDS, np.random.default_rng(12))
    early = getattr(found, statement) < world.n_examples
    check_rate(int(early.sum()), WORLDS, 0.05)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    ("true", "improve", "void"),
    [(-0.05, False, 0.0), (0.0, False, 0.05), (0.05, True, 0.0), (-0.06, False, 0.0)],
)
def test_of_new_examples_any_statement_is_ever_wrong_at_most_as_often_as_allowed(
    true: float, improve: bool, void: float, check_rate: RateCheck
) -> None:
    # Binomial test at 1e-6 of the error rate .05 of each statement, for three challengers together,
    # looking after each of 150 examples that are drawn independently of a population.
    rng, shape, differing = np.random.default_rng(17), (WORLDS, 3, 150), 0.15
    shares = [(differing - true) / 2, 1.0 - differing, (differing + true) / 2]
    drawn = rng.choice([-1.0, 0.0, 1.0], shape, p=shares)
    hidden = rng.random(shape) < void * (1.0 - drawn)  # losses run into the time-out
    gains, losses = np.where(hidden, -1.0, drawn), np.where(hidden, -1.0, -drawn)
    question = Question(MARGIN, improve, 0.05, 3, 150, on_new=True)
    found, bar = when_proved(gains, losses, question), question.bar
    for after, is_wrong in (
        (found.passed, true <= bar),
        (found.failed, true >= bar),
        (found.worse, true >= 0.0),
    ):
        assert np.isfinite(found.passed if true > bar else found.failed).any() or true == bar
        if is_wrong:
            check_rate(int(np.isfinite(after).any(axis=-1).sum()), WORLDS, 0.05)
    # what the draws happen to show
    of_seen = when_proved(gains, losses, replace(question, on_new=False))
    if not void and true == bar:
        assert np.isfinite(of_seen.passed).mean() > 0.3


@pytest.mark.coverage
def test_the_rate_check_sees_unpaired_peeking(check_rate: RateCheck) -> None:
    # A z-test at 5 %, repeated after every example, must not get past the check.
    world = World(200, -MARGIN, 0.15)
    gains, _ = world.differences(500, np.random.default_rng(13))
    n = np.arange(1, 201)
    mean = np.cumsum(gains[:, 0], axis=1) / n
    spread = np.sqrt(np.maximum(np.cumsum(gains[:, 0] ** 2, axis=1) / n - mean**2, 1e-3) / n)
    fooled = ((mean + MARGIN)[:, 10:] / spread[:, 10:] > 1.645).any(axis=1)
    with pytest.raises(AssertionError, match="misses in 500 runs"):
        check_rate(int(fooled.sum()), 500, 0.05)


@pytest.mark.slow
def test_an_equal_challenger_passes_soon_and_a_worse_one_is_caught() -> None:
    rng = np.random.default_rng(14)
    equal, worse = World(2_000, 0.0, 0.1), World(2_000, -0.1, 0.1)
    question = question_of(equal, MARGIN)
    passed = simulate(equal, question, 200, rng)
    caught = simulate(worse, question, 200, rng)
    assert np.median(passed.passed) <= 250
    assert np.median(caught.failed) <= 130
    assert np.median(caught.worse) <= 60
    assert not np.isfinite(passed.failed).any()
    assert not np.isfinite(caught.passed).any()


@pytest.mark.parametrize("on_new", [False, True])
def test_the_wealth_by_hand(on_new: bool) -> None:
    """By the formulas (4) to (9), the best bet of (9) looked for by trying."""
    differences, bar, gap = [0.0, -1.0, 1.0, 0.5, 0.0, -0.5, 1.0, 1.0], -0.05, 0.05
    question = Question(gap, False, 0.05, 1, 40, on_new=on_new)

    def best(c: float, e: float, q: float) -> float:
        up, down = (q + e) / 2, (q - e) / 2

        def loss(bet: float) -> float:
            same = (1 - q) * math.log(1 - bet * c)
            ends = up * math.log(1 + bet * (1 - c)) + down * math.log(1 - bet * (1 + c))
            return -same - ends

        most = 0.999 / (1 + c)
        tried = minimize_scalar(loss, bounds=(0, most), method="bounded", options={"xatol": 1e-9})
        return float(tried.x)

    aimed, expected = 1.0, []
    for t, difference in enumerate(differences):
        total = sum(differences[:t])
        c = bar if on_new else (40 * bar - total) / (40 - t)
        e = c + (gap if on_new else gap * 40 / (40 - t))
        squares = sum(one**2 for one in differences[:t])
        q = max((20 * 0.08 + squares) / (20 + t), abs(e) + 20 * 0.01 / (20 + t))
        aimed *= 1 + min(best(c, e, q), 0.98 / (1 + c)) * (difference - c)
        expected.append(0.8 * aimed)
    halves = (1 + np.array([differences])) / 2
    grid = Wealth(1, (1 + bar) / 2, question.bets, None if on_new else 40).extend(halves)[0]
    found = AimedWealth(1, bar, bar, question).extend(np.array([differences]))[0]
    assert found == pytest.approx(np.array(expected) + 0.2 * grid, rel=1e-5)


def test_bets_are_on_means_that_can_be() -> None:
    assert kelly_bet(0.9, 1.2, 0.5) == kelly_bet(0.9, 1.0, 0.5)
    assert kelly_bet(-1.5, -0.5, 0.6) == kelly_bet(1e-9 - 1.0, -0.5, 0.6)


@pytest.mark.parametrize("improve", [False, True])
@pytest.mark.parametrize("on_new", [False, True])
@pytest.mark.parametrize(("void", "margin"), [(0.0, MARGIN), (0.05, MARGIN), (0.0, 0.0)])
def test_one_example_at_a_time_and_many_worlds_at_once_agree(
    improve: bool, on_new: bool, void: float, margin: float
) -> None:
    world = World(120, -0.05, 0.2, void=void)
    question = replace(question_of(world, margin, improve=improve), on_new=on_new)
    gains, losses = world.differences(30, np.random.default_rng(15))
    found = when_proved(gains, losses, question)
    for run in range(30):
        comparison = Comparison(question)
        for gain, loss in zip(gains[run, 0], losses[run, 0], strict=True):
            comparison.push((gain, -loss), (0.0, 0.0))
        one = (comparison.passed_after, comparison.failed_after, comparison.worse_after)
        assert one == tuple(float(part[run, 0]) for part in found)


def fed(question: Question, differences: list[float]) -> Comparison:
    comparison = Comparison(question)
    for difference in differences:
        comparison.push((max(difference, 0.0),) * 2, (max(-difference, 0.0),) * 2)
    return comparison


@pytest.mark.parametrize(
    ("differences", "improve", "verdict"),
    [
        ([-1.0] + [0.0] * 19, False, Conclusion.PASSED),  # lower by the margin, not by more
        ([-1.0] * 2 + [0.0] * 18, False, Conclusion.FAILED),
        ([1.0] + [0.0] * 19, True, Conclusion.FAILED),  # higher by the margin, not by more
        ([1.0] * 2 + [0.0] * 18, True, Conclusion.PASSED),
    ],
)
def test_all_examples_decide(differences: list[float], improve: bool, verdict: Conclusion) -> None:
    assert fed(Question(MARGIN, improve, 0.05, 1, 20), differences).verdict is verdict


def test_the_interval_says_all_at_first_and_later_what_was_shown() -> None:
    question = Question(MARGIN, False, 0.05, 1, 200)
    assert Comparison(question).interval() == (-1.0, 1.0)
    worse = fed(question, [-1.0] * 60)
    assert worse.worse_after < 60
    assert worse.interval()[1] < -MARGIN


def test_the_interval_never_leaves_open_what_was_shown() -> None:
    """Its ends are found by halving, and rounded outwards: by up to .00012."""
    margin, rng, found = 0.03, np.random.default_rng(18), []
    for chance in np.linspace(0.0, 0.06, 12):
        comparison = Comparison(Question(margin, False, 0.05, 1, 200))
        while comparison.n < 190 and not comparison.is_decided:
            difference = float(rng.choice([-1.0, 0.0, 1.0], p=[chance / 2, 1 - chance, chance / 2]))
            comparison.push((max(difference, 0.0),) * 2, (max(-difference, 0.0),) * 2)
        lower, upper = comparison.interval()
        assert lower >= -margin or comparison.verdict is not Conclusion.PASSED
        assert upper <= -margin or comparison.verdict is not Conclusion.FAILED
        found.append(lower)
    assert -margin in found, "some bounds would leave it open, and say the bar itself"


def test_all_examples_say_all_of_themselves_and_not_of_new_ones() -> None:
    differences = [0.0, 0.0, 1.0, -1.0] * 15
    seen, new = (
        fed(Question(MARGIN, False, 0.05, 1, 60, on_new=on_new), differences)
        for on_new in (False, True)
    )
    assert seen.verdict is Conclusion.PASSED
    assert seen.interval() == (0.0, 0.0)
    assert new.verdict is Conclusion.UNDECIDED
    lower, upper = new.interval()
    assert -0.5 < lower < -MARGIN < MARGIN < upper < 0.5


def test_missing_scores_leave_it_open_to_the_end() -> None:
    comparison = fed(Question(MARGIN, False, 0.05, 1, 20), [0.0] * 17)
    comparison.push((0.0, 1.0), (1.0, 1.0))
    comparison.push((0.0, 1.0), (1.0, 1.0))
    comparison.push((1.0, 1.0), (0.0, 1.0))
    assert comparison.verdict is Conclusion.UNDECIDED
    assert comparison.interval() == pytest.approx((-0.1, 0.05))


@pytest.mark.slow
@pytest.mark.coverage
def test_each_end_of_the_interval_holds_at_all_times(check_rate: RateCheck) -> None:
    # Binomial test at 1e-6 of the rate .1 per end, at every twentieth example.
    world, runs = World(100, -0.04, 0.2), 100
    question = question_of(world, MARGIN, alpha=0.1)
    gains, losses = world.differences(runs, np.random.default_rng(16))
    missed = np.zeros(2, dtype=int)
    for run in range(runs):
        comparison, ends = Comparison(question), []
        for t, (gain, loss) in enumerate(zip(gains[run, 0], losses[run, 0], strict=True), 1):
            comparison.push((gain, -loss), (0.0, 0.0))
            if t % 20 == 0:
                ends.append(comparison.interval())
        lower, upper = np.array(ends).T
        missed += [(lower > -0.04 + 1e-9).any(), (upper < -0.04 - 1e-9).any()]
    for count in missed.tolist():
        check_rate(count, runs, 0.1)
