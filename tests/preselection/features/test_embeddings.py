from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.preselection.features.embeddings import EmbeddingFeatures


def vectors(n: int = 200, seed: int = 0) -> np.ndarray:
    """Two directions that matter, in fifty dimensions, and a little noise."""
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(np.random.default_rng(9).normal(size=(50, 2)))[0]
    strong = rng.normal(size=(n, 2)) * [3.0, 1.0]
    return np.asarray(strong @ plane.T + 0.01 * rng.normal(size=(n, 50)) + 5.0)


def test_components_have_equal_variance_and_rows_length_one() -> None:
    made = EmbeddingFeatures(2).fit(vectors()).transform(vectors())
    assert made.shape == (200, 2)
    np.testing.assert_allclose(made.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose(made.var(axis=0), 0.5, rtol=0.05)


def test_the_directions_that_matter_are_found() -> None:
    """New vectors are told apart as by the two directions themselves."""
    fitted = EmbeddingFeatures(2).fit(vectors())
    new = vectors(40, seed=1)
    plane = np.linalg.qr(np.random.default_rng(9).normal(size=(50, 2)))[0]
    true = (new - new.mean(axis=0)) @ plane
    made = fitted.transform(new)
    assert abs(np.corrcoef(made[:, 0], true[:, 0])[0, 1]) > 0.99
    assert abs(np.corrcoef(made[:, 1], true[:, 1])[0, 1]) > 0.99


def test_as_many_components_as_there_are() -> None:
    line = np.outer(np.arange(10.0), np.ones(5))
    assert EmbeddingFeatures(8).fit(line).n_features == 1
    with pytest.raises(ValueError, match="do not differ"):
        EmbeddingFeatures().fit(np.ones((5, 3)))


def test_what_was_fitted_comes_back() -> None:
    fitted = EmbeddingFeatures(3).fit(vectors())
    again = EmbeddingFeatures(3).restore(fitted.state())
    np.testing.assert_array_equal(again.transform(vectors(5)), fitted.transform(vectors(5)))


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="n_components must be at least 1"):
        EmbeddingFeatures(0)
    with pytest.raises(ValueError, match="vectors must be 50 long, got 3"):
        EmbeddingFeatures(2).fit(vectors()).transform(np.ones((1, 3)))
