from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.finite_pool import PoolTest
from bestarm_agent.certification.portfolio_prior import FloatArray
from bestarm_agent.certification.screening import ResidualChances
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.stats.conftest import RateCheck

LOSSES = np.array([0.0, 0.2, 1.0, 0.0, 0.7])  # mean .38
GUESSES = np.array([[0.1, 0.0, 0.9, 0.6, 0.5]])


class Chosen(np.random.Generator):
    """Draws a given example: for enumerating everything that can happen."""

    def __init__(self, place: int) -> None:
        super().__init__(np.random.PCG64(0))
        self._place = place

    def choice(self, *args: object, **kwargs: object) -> int:  # type: ignore[override]
        return self._place


def chances_of(test: PoolTest, told: dict[int, float]) -> FloatArray:
    """A wild rule that looks at the labels so far."""
    return np.array([1.0 + (j * 7 + sum(told.values()) * 5) % 3 for j in test.left])


def walk(order: tuple[int, ...], *, chosen: bool, risk: float) -> list[tuple[float, float]]:
    """Label in this order: the probability of the path so far, and the wealth, at each step."""
    test = PoolTest(Goal(risk, 0.01), GUESSES, Method(n_factors=3))
    path, probability, told = [], 1.0, dict[int, float]()
    for example in order:
        place = test.left.tolist().index(example)
        chances = chances_of(test, told) if chosen else None
        ask = test.ask(Chosen(place), chances)
        assert ask.example == example
        probability *= ask.propensity
        told[example] = float(LOSSES[example])
        test.tell(ask.seq, told[example])
        path.append((probability, math.exp(test.log_wealth)))
    return path


@pytest.mark.parametrize("chosen", [False, True])
def test_the_expected_wealth_is_at_most_one_if_the_risk_is_above_the_target(chosen: bool) -> None:
    # All 120 orders of five examples, by their probabilities; the risk .38 is above the target.
    paths = [walk(order, chosen=chosen, risk=0.37999) for order in permutations(range(5))]
    assert sum(path[-1][0] for path in paths) == pytest.approx(1)
    for step in range(5):
        per_path = [path[step] for path in paths]
        prefixes = {  # paths that agree so far count once
            order[: step + 1]: one
            for order, one in zip(permutations(range(5)), per_path, strict=True)
        }
        expected = sum(probability * wealth for probability, wealth in prefixes.values())
        assert expected <= 1 + 1e-9
        if step < 2:  # later, certainty makes some wealths 0
            assert expected > 0.999


def test_one_round_by_hand() -> None:
    test = PoolTest(Goal(0.5, 0.1), np.array([[0.0, 1.0, 0.2, 0.8]]), Method("r-autoeval"))
    ask = test.ask(Chosen(1))
    test.tell(ask.seq, 1.0)
    # q = 1 - 1 + .5 = .5, the fair price: nothing is won, though the loss was 1.
    assert (ask.example, ask.propensity) == (1, 0.25)
    assert test.log_wealth == pytest.approx(0.0)
    ask = test.ask(Chosen(0))
    test.tell(ask.seq, 0.0)
    # Left: guesses 0, .2, .8, mean 1/3. Price (4 * .5 - 1) / 3 = 1/3, q = 0 - 0 + 1/3: nothing.
    assert test.log_wealth == pytest.approx(0.0, abs=1e-12)
    ask = test.ask(Chosen(0))
    test.tell(ask.seq, 0.0)
    # Left: .2 and .8, mean .5. Price (2 - 1) / 2 = .5, q = -.2 + .5 = .3, top 1 - .2 + .5 = 1.3:
    # payoff -.2 / .8, and the mean of 1 + b / 4 is 1.125. The last loss cannot lift the mean above
    # .5 any more, so the risk is certain.
    assert test.log_wealth == math.inf
    assert test.certified


def test_certainty() -> None:
    test = PoolTest(Goal(0.4, 0.1), np.zeros((0, 5)))
    for _ in range(3):
        test.tell(test.ask(np.random.default_rng(0)).seq, 1.0)
    assert test.log_wealth == -math.inf  # three losses of five: above .4 whatever is left
    assert not test.certified


@pytest.mark.parametrize("seed", range(5))
def test_labelling_everything_decides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    losses = (rng.random(60) < 0.3).astype(float)
    for risk in (losses.mean() - 0.005, losses.mean()):
        test = PoolTest(Goal(float(risk), 1e-12), losses[None] * 0.5)
        while len(test.left):
            ask = test.ask(rng)
            test.tell(ask.seq, float(losses[ask.example]))
        assert test.certified == (losses.mean() <= risk)


def test_late_labels_change_nothing_but_the_time() -> None:
    losses = (np.random.default_rng(8).random(80) < 0.1).astype(float)
    guesses = np.abs(losses - 0.1)[None]
    random = KeyedRandom(0, "label")
    in_time, late = PoolTest(Goal(0.2, 0.1), guesses), PoolTest(Goal(0.2, 0.1), guesses)
    asks = [late.ask(random.at(i)) for i in range(30)]
    for ask in asks:
        assert in_time.ask(random.at(ask.seq)) == ask
        in_time.tell(ask.seq, float(losses[ask.example]))
    for ask in reversed(asks):
        assert late.n == 0  # the first label is still missing
        late.tell(ask.seq, float(losses[ask.example]))
        late.tell(ask.seq, 1.0)  # a second one is ignored
    assert late.n == in_time.n
    assert late.log_wealth == in_time.log_wealth
    assert late.log_peak == in_time.log_peak


def test_a_label_that_never_comes_counts_as_a_loss() -> None:
    lost, bad = (PoolTest(Goal(0.2, 0.1), np.zeros((1, 50))) for _ in range(2))
    for test, loss in ((lost, None), (bad, 1.0)):
        test.tell(test.ask(Chosen(3)).seq, loss)
    assert lost.log_wealth == bad.log_wealth < 0


def test_wrong_arguments_are_refused() -> None:
    test = PoolTest(Goal(0.2, 0.1), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="no label was asked for under number 0"):
        test.tell(0, 1.0)
    with pytest.raises(ValueError, match="2 positive finite numbers"):
        test.ask(np.random.default_rng(0), np.array([1.0, 0.0]))
    for _ in range(2):
        test.ask(np.random.default_rng(0))
    with pytest.raises(ValueError, match="in \\[0, 1\\], got 2"):
        test.tell(0, 2.0)
    with pytest.raises(ValueError, match="all 2 examples"):
        test.ask(np.random.default_rng(0))
    with pytest.raises(ValueError, match="every guess must be in"):
        PoolTest(Goal(0.2, 0.1), np.full((1, 2), np.nan))
    with pytest.raises(ValueError, match="N >= 1"):
        PoolTest(Goal(0.2, 0.1), np.zeros((1, 0)))


def label_all(
    losses: FloatArray, guesses: FloatArray, goal: Goal, seed: int, *, choose: bool, late: int = 0
) -> PoolTest:
    """Label until certified or all are labelled; the last ``late`` labels are always out."""
    test, chances = PoolTest(goal, guesses), ResidualChances(guesses)
    random, out = KeyedRandom(seed, "label"), list[tuple[int, int]]()
    while not test.certified and (len(test.left) or out):
        if len(test.left) and len(out) <= late:
            at = random.at(test.n_asked)
            ask = test.ask(at, chances.of(test.left) if choose else None)
            out.append((ask.seq, ask.example))
            continue
        out.sort(key=lambda one: losses[one[1]])  # wrong answers come back later
        seq, example = out.pop(0)
        test.tell(seq, float(losses[example]))
        chances.learn(example, float(losses[example]))
    return test


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("choose", "late"), [(False, 0), (True, 0), (True, 8)])
def test_a_pool_whose_risk_is_above_the_target_is_rarely_certified(
    choose: bool, late: int, check_rate: RateCheck
) -> None:
    # Level 1e-6 against delta = .1. Losses come in blocks, guesses are wrong in one block only, and
    # slow labels are the bad ones.
    false = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        losses = np.zeros(120)
        losses[:25] = 1.0
        guesses = losses.copy()
        guesses[10:40] = rng.random(30)
        goal = Goal(24.9 / 120, 0.1)
        false += label_all(losses, guesses[None], goal, seed, choose=choose, late=late).certified
    check_rate(false, 150, 0.1)


@pytest.mark.slow
def test_choosing_labels_saves_some_where_the_guesses_say_who_is_unsure() -> None:
    counts: dict[bool, list[int]] = {False: [], True: []}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        unsure = rng.random(1500) < 0.2
        losses = (unsure & (rng.random(1500) < 0.4)).astype(float)
        guesses = np.where(unsure, 0.4, 0.0)[None]
        for choose, found in counts.items():
            test = label_all(losses, guesses, Goal(0.11, 0.1), seed, choose=choose)
            found.append(test.n)
    assert np.mean(counts[True]) < 0.85 * np.mean(counts[False])
