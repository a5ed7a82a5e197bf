from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.preselection.features import (
    FeatureFilter,
    arm_features,
    joint_features,
)

DATA = Path(__file__).parents[3] / "../shared/data"


def test_the_joint_features_are_numpys_kronecker_product() -> None:
    rng = np.random.default_rng(0)
    context, arms = rng.random(3), rng.random((5, 4))
    joint = joint_features(context, arms)
    assert joint == pytest.approx(np.array([np.kron(context, arm) for arm in arms]))


def test_the_identity_gives_the_disjoint_model() -> None:
    joint = joint_features(np.array([1.0, 2.0]), np.eye(2))
    assert joint.tolist() == [[1, 0, 2, 0], [0, 1, 0, 2]]


def test_filter_by_hand() -> None:
    """Column 1 is twice column 0, column 2 is constant, column 3 stands alone."""
    base = np.array([0.0, 1.0, 0.0, 1.0, 0.5])
    other = np.array([1.0, 1.0, 0.0, 0.0, 0.5])
    raw = np.column_stack([base, 2 * base, np.full(5, 7.0), other])
    fitted = FeatureFilter().fit(raw)
    assert fitted.kept.tolist() in ([0, 3], [1, 3])
    assert fitted.transform(raw).tolist() == np.column_stack([base, other]).tolist()


def test_missing_values_become_the_mean_and_outliers_are_clipped() -> None:
    raw = np.array([[0.0], [1.0], [np.nan]])
    fitted = FeatureFilter().fit(raw)
    new = fitted.transform(np.array([[np.nan], [9.0], [-9.0]]))
    assert new[:, 0].tolist() == [0.5, 1.0, 0.0]


def test_a_column_without_any_value_is_dropped() -> None:
    raw = np.array([[0.0, np.nan], [1.0, np.nan]])
    assert FeatureFilter().fit(raw).kept.tolist() == [0]


def test_a_filter_goes_on_from_its_state() -> None:
    raw = np.random.default_rng(1).random((30, 6))
    fitted = FeatureFilter().fit(raw)
    again = FeatureFilter().restore(fitted.state())
    assert again.transform(raw).tolist() == fitted.transform(raw).tolist()


def test_filter_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="no feature has a variance"):
        FeatureFilter().fit(np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"\(N, p\)"):
        FeatureFilter().fit(np.ones((0, 2)))
    with pytest.raises(ValueError, match="2 wide, got 3"):
        FeatureFilter().fit(np.random.default_rng(0).random((9, 2))).transform(np.ones((1, 3)))


def test_the_papers_data_keeps_seven_features() -> None:
    path = DATA / "sat_swgcp_saps.npz"
    if not path.exists():
        pytest.skip("the data of the paper is not here")
    with np.load(path) as data:
        raw = data["features"].astype(np.float64)
    assert len(FeatureFilter().fit(raw).kept) == 7  # (section 6.2)


def test_arm_features_by_hand() -> None:
    numbers = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0]])
    made = arm_features(numbers, ("x", "y", "x"), identity=False)
    # a constant, the price on [0, 1] with the mean for the missing one, the family that is shared
    assert made.tolist() == [[1, 0, 1], [1, 0.5, 0], [1, 1, 1]]
    assert arm_features(np.zeros((2, 0)), ("", "")).tolist() == [[1, 0], [0, 1]]
