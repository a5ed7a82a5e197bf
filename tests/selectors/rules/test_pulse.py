from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.pulse import Estimate, Predictions, Pulse, Step
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Guarantee, State, Tell
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.history import HistoryModel
from tests.support.histories import lesson
from tests.support.published_programs import PublishedPulse
from tests.support.selector_suite import World, WorldRun, flown, opened

# the estimator


def published_means(
    selector: Pairs, scores: FloatArray, rows: Sequence[FloatArray], batch: int
) -> tuple[float, list[float]]:
    """Equations 2 and 3 in batch form with the paper's lambda, for one candidate, batch by batch.

    ``rows`` are the predictions in force at each batch. Returns the mean and the lambdas.
    """
    n = len(scores)
    order = selector.table.example
    estimates: list[float] = []
    residuals: list[float] = []
    shares: list[float] = []
    for k, row in enumerate(rows):
        seen, drawn = order[: k * batch], order[k * batch : (k + 1) * batch]
        left = np.setdiff1d(np.arange(n), seen)
        total, squares = row[left].sum(), (row[left] ** 2).sum()
        mean_residual = np.mean(residuals) if residuals else 0.0
        share = np.clip(1 - total * mean_residual / (len(left) * squares), 0, 1) if k else 0.0
        probability = len(drawn) / len(left)
        z = (scores[drawn] - share * row[drawn]).sum() / probability
        estimates.append((scores[seen].sum() + share * total + z) / n)
        residuals += [z] if k else []
        shares.append(float(share))
    return float(np.mean(estimates)), shares


def test_it_is_equation_2_as_printed() -> None:
    n, batch = 40, 5
    known = lesson(n)
    selector = opened(Pulse, 1, n, history=known, batch=batch, tau=2)
    scores = np.random.default_rng(1).random(n).round(1)
    rows: list[FloatArray] = []
    u = np.zeros(2)
    for k in range(6):
        if k % 2:  # steps 0, 2, 4 after the warm-up refit before they draw
            seen = selector.table.example[: k * batch]
            u = known.factors.locate(seen.astype(int), scores[seen])
        rows.append(known.factors.predict(u).astype(float))
        asks = selector.ask(batch)
        selector.tell([Tell(a.seq, State.DONE, float(scores[a.pair.example])) for a in asks])
        mean, shares = published_means(selector, scores, rows, batch)
        assert selector.answer.estimates().mean[0] == pytest.approx(np.clip(mean, 0, 1), abs=1e-5)
    assert 0 < min(shares[1:]) < max(shares[1:]) <= 1


@cache
def arm(n: int, sd: float) -> tuple[HistoryModel, FloatArray]:
    """Factors of n examples, and a candidate's graded scores, ``sd`` from what they predict."""
    known = lesson(n)
    chance = known.factors.predict(np.array([1.5, -1.0]))
    noise = sd * np.random.default_rng(77).normal(size=n)
    return known, np.clip(chance + noise, 0, 1).round(2).astype(float)


def one_arm(
    options: dict[str, Any], seed: int, in_flight: int = 1, n: int = 20, sd: float = 0.2
) -> float:
    """Error of the estimate after three fifths of a candidate's scores are told."""
    rng = np.random.default_rng([seed, 76])
    known, scores = arm(n, sd)
    options = {"history": known} | options
    rule = options.pop("rule", Pulse)
    selector = opened(rule, 1, n, seed=seed, track_intervals=False, batch=n // 7 + 1, **options)

    def outcome(ask: Ask) -> tuple[Tell, float]:
        score = float(scores[ask.pair.example])
        slowness = 1 + 4 * (1 - score)  # wrong answers come back later
        return Tell(ask.seq, State.DONE, score), rng.exponential(slowness)

    for _ in flown(selector, outcome, in_flight, 3 * n // 5):
        pass
    return float(selector.answer.estimates().mean[0] - scores.mean())


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("tau", "in_flight"), [(2, 1), (1, 8)])
def test_the_estimate_is_unbiased(tau: int, in_flight: int) -> None:
    """Level: a mean of 800 errors leaves 3 standard errors with probability 0.0027."""
    errors = np.array([one_arm({"tau": tau}, seed, in_flight) for seed in range(800)])
    assert abs(errors.mean()) < 3 * errors.std(ddof=1) / np.sqrt(800)


@pytest.mark.coverage
def test_stale_predictions_bias_it() -> None:
    """What the published program does: seen examples' predictions stay in the sum."""
    errors = np.array([one_arm({"tau": 1, "rule": PublishedPulse}, s) for s in range(200)])
    assert errors.mean() > 0.05
    assert errors.mean() > 10 * errors.std(ddof=1) / np.sqrt(len(errors))


@pytest.mark.slow
def test_predictions_reduce_the_error() -> None:
    """Scores .1 from their predictions: the ratio is .72; at .2, by the printed lambda, .87."""
    known, _ = arm(40, 0.1)
    unused = {"history": lesson(known.factors, gain=-0.1)}
    used, plain = (
        np.array([one_arm(options, seed, n=40, sd=0.1) for seed in range(400)])
        for options in ({"tau": 1}, unused)
    )
    assert (used**2).mean() < 0.85 * (plain**2).mean()


def test_equation_2_by_hand() -> None:
    """N = 4, predictions (.5, .25, .75, 1), weight 1/2, draws 2 then 0, scores 1 then 0.

    First: (0 + 1/2 * 2.5 + 4 * (1 - .375)) / 4 = 3.75 / 4.
    Second: (1 + 1/2 * 1.75 + 3 * (0 - .25)) / 4 = 1.125 / 4. Their mean is 2.4375 / 4.
    """
    estimate = Estimate()
    estimate.take(Step(0.5, 2.5, 4, 4, is_first=False), 0.75, 1.0)
    estimate.take(Step(0.5, 1.75, 3, 4, is_first=False), 0.5, 0.0)
    assert estimate.mean == pytest.approx(2.4375 / 4)
    assert estimate.n_residual == 2
    assert estimate.residual == pytest.approx(2.5 - 0.75)
    # the batch form, both draws from all four, each likely 2/4: (0 + 1.25 + .375 / (2/4)) / 4
    estimate, step = Estimate(), Step(0.5, 2.5, 4, 4, is_first=False)
    estimate.take(step, 0.75, 1.0)
    estimate.take(step, 0.5, 0.0)
    assert estimate.mean == pytest.approx((1.25 + 0.375 * 2) / 4)


def test_a_void_draw_is_left_out_with_its_example() -> None:
    """The second step knows of three examples: (0 + 1.75 + 3 (1 - .5)) / 3."""
    estimate = Estimate()
    estimate.take(Step(1.0, 2.5, 4, 4, is_first=False), 0.75, None)
    estimate.take(Step(1.0, 1.75, 3, 4, is_first=False), 0.5, 1.0)
    assert (estimate.n, estimate.void) == (1, 1)
    assert estimate.mean == pytest.approx(3.25 / 3)
    estimate = Estimate()  # a pull before the first refit is no residual
    estimate.take(Step(0.0, 2.0, 4, 4, is_first=True), 0.5, 1.0)
    assert (estimate.n, estimate.n_residual, estimate.residual) == (1, 0, 0.0)


def test_a_candidate_moves_when_refitted_to_new_scores_only() -> None:
    known = lesson(6).factors
    average = known.predict(np.zeros(2))
    predictions = Predictions(known, average)
    predictions.refit(0)
    assert predictions.row is average  # no score yet
    predictions.scored.append((3, 0.75))
    assert predictions.row is average  # until it is refitted
    predictions.refit(0)
    moved = predictions.row
    expected = known.predict(known.locate(np.array([3]), np.array([0.75])))
    np.testing.assert_allclose(moved, expected, atol=1e-5)
    predictions.refit(1)
    assert predictions.row is moved  # no new score
    predictions.scored.append((1, 0.0))
    predictions.refit(0)
    assert predictions.row is moved  # not in the same round
    predictions.refit(1)
    assert predictions.row is not moved


# what surrounds it


@pytest.mark.parametrize("history", [None, lesson(30, gain=0.0)])
def test_without_useful_history_it_is_ucb_e_in_batches(history: HistoryModel | None) -> None:
    world = World.bernoulli([0.2, 0.5, 0.8], 30, seed=5)
    pulse = opened(Pulse, 3, 30, seed=5, history=history, batch=4, a=0.5)
    plain = opened(UcbE, 3, 30, seed=5, eta=0.5, batch=4)
    assert WorldRun(pulse, world).go(60).pairs == WorldRun(plain, world).go(60).pairs
    np.testing.assert_array_equal(pulse.answer.estimates().mean, plain.answer.estimates().mean)
    assert pulse.answer.estimates().guarantee is Guarantee.ANYTIME_VALID


@pytest.mark.parametrize("rule", ["pulse", "auto"])
def test_history_of_more_examples_than_there_are_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="align the history"):
        opened(rule, 2, 10, history=lesson(12))
