"""The mixture of posteriors against its definition, and models that are used like one."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.auto.factor_model import OneFactor, Posterior, mixture
from bestarm_agent.selectors.auto.profiles import Profile
from bestarm_agent.selectors.history import Factors


def posterior_of(seed: int, active: list[int], n_rows: int) -> Posterior:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(len(active), len(active)))
    sd = rng.random(n_rows) + 0.5
    covariance = root @ root.T
    sd[active] = np.sqrt(covariance.diagonal())
    return Posterior(rng.normal(size=n_rows), sd, np.array(active), covariance)


def test_moments_of_a_mixture_are_those_of_its_parts_drawn_at_random() -> None:
    one, two = (posterior_of(seed, [0, 1, 2], 3) for seed in (1, 2))
    found = mixture([one, two])
    for part in (one, two):  # E[M M'] of the mixture is the mean of theirs
        assert part.active.tolist() == found.active.tolist()
    second = [p.covariance + np.outer(p.mean, p.mean) for p in (one, two)]
    expected = np.mean(second, axis=0) - np.outer(found.mean, found.mean)
    np.testing.assert_allclose(found.mean, (one.mean + two.mean) / 2)
    np.testing.assert_allclose(found.covariance, expected, atol=1e-12)
    np.testing.assert_allclose(found.sd**2, expected.diagonal(), atol=1e-12)


def test_rows_that_one_part_takes_for_independent_are_independent() -> None:
    one, two = posterior_of(1, [0, 2, 3], 5), posterior_of(2, [1, 2, 3], 5)
    found, gap = mixture([one, two]), one.mean - two.mean
    assert found.active.tolist() == [2, 3]
    off_diagonal = (one.covariance[1, 2] + two.covariance[1, 2]) / 2 + gap[2] * gap[3] / 4
    assert np.isclose(found.covariance[0, 1], off_diagonal)
    np.testing.assert_allclose(found.sd**2, (one.sd**2 + two.sd**2) / 2 + gap**2 / 4)


def test_full_rows_are_known_whatever_history_says() -> None:
    rng = np.random.default_rng(3)
    factors = Factors(rng.normal(0, 2, 20), rng.uniform(0.5, 2, (20, 1)))
    models = [OneFactor(profile, 4) for profile in Profile.of(factors).readings()]
    scores = rng.random((4, 20))
    for model in models:
        for row, length in enumerate([20, 20, 9, 5]):
            for place in range(length):
                model.put(row, place, float(scores[row, place]))
    seen = mixture([model.fit(8) for model in models])
    np.testing.assert_allclose(seen.mean[:2], scores.mean(axis=1)[:2])
    np.testing.assert_allclose(seen.sd[:2], 0.0, atol=1e-7)
    assert (seen.sd[2:] > 0.01).all()


def test_the_second_reading_weighs_examples_as_a_uniform_draw_would() -> None:
    factors = Factors(np.array([6.0, 0.0, -6.0, 1.0]), np.ones((4, 1)))
    whole, second = Profile.of(factors).readings()
    np.testing.assert_array_equal(second.mean, whole.mean)
    np.testing.assert_allclose(second.scale[:, None] * second.slope, 1.0)
    # the precision of what an example says of a level, times the chance of drawing it
    np.testing.assert_allclose(np.ptp(whole.weights() / second.scale**2), 0.0, atol=1e-12)
    assert second.n_levels == 1
