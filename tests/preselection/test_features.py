from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.preselection.reproduce import filtered

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.features import PromptFeatures, contexts_of
from bestarm_agent.preselection.rule import FloatArray

pytest.importorskip("sklearn", reason="needs the extra preselect")

DATA = Path(__file__).parents[3] / "../shared/data"
SUMS = [f"add {i} and {i + 7}" for i in range(20)]
POEMS = [f"write a poem on the colour of {thing}" for thing in ("sea", "sky", "sun", "mud")] * 5


def fitted(prompts: list[str], n_components: int = 4) -> PromptFeatures:
    features = PromptFeatures(n_components)
    features.fit(prompts)
    return features


def test_every_arm_has_columns_of_its_own() -> None:
    prompt = np.random.default_rng(0).random(3)
    made = contexts_of(prompt, 4)
    assert made == pytest.approx(np.array([np.kron(prompt, arm) for arm in np.eye(4)]))


def test_prompts_of_a_kind_lie_together() -> None:
    features = fitted(SUMS + POEMS)
    sums, poems = features.vectors(SUMS), features.vectors(POEMS)
    between = np.linalg.norm(sums.mean(axis=0) - poems.mean(axis=0))
    assert between > 1.2 * np.linalg.norm(sums - sums.mean(axis=0), axis=1).mean()
    new = features.vectors(["add 88 and 99", "write a poem on the colour of wine"])

    def distance(vector: FloatArray, kind: FloatArray) -> float:
        return float(np.linalg.norm(vector - kind.mean(axis=0)))

    assert distance(new[0], sums) < distance(new[0], poems)
    assert distance(new[1], poems) < distance(new[1], sums)


def test_each_feature_has_the_same_variance_and_vectors_length_about_one() -> None:
    made = fitted(SUMS + POEMS, 5).vectors(SUMS + POEMS)
    assert set(made[:, 0]) == {1.0}
    assert made[:, 1:].var(axis=0) == pytest.approx(np.full(5, 0.2), rel=0.05)
    assert (made[:, 1:] ** 2).sum(axis=1).mean() == pytest.approx(1.0, rel=0.1)


def test_formats_are_told_apart() -> None:
    plain = [f"{i}+{j}=" for i in range(5) for j in range(5)]
    spaced = [f"{i} + {j} =" for i in range(5) for j in range(5)]
    features = fitted(plain + spaced, 8)
    one, other = features.vectors(plain), features.vectors(spaced)
    assert np.linalg.norm(one - other, axis=1).min() > 0.1


@pytest.mark.parametrize("prompts", [SUMS + POEMS, ["same words"] * 5])
def test_it_goes_on_from_its_state_as_plain_arrays(prompts: list[str]) -> None:
    features, file = fitted(prompts), io.BytesIO()
    np.savez(file, allow_pickle=False, **features.state())
    file.seek(0)
    again = fitted(POEMS)
    with np.load(file, allow_pickle=False) as arrays:
        again.restore(dict(arrays))
    new = ["add a poem", "nothing known 🎲", ""]
    assert again.vectors(new) == pytest.approx(features.vectors(new), abs=1e-6)
    assert again.n_features == features.n_features


@pytest.mark.parametrize("prompts", [["same words"] * 5, ["", ""], ["one"]])
def test_prompts_that_do_not_differ_have_the_constant_alone(prompts: list[str]) -> None:
    features = fitted(prompts)
    assert features.n_features == 1
    assert features.vectors(["another", "one"]).tolist() == [[1.0], [1.0]]


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ConfigError, match=r"pip install 'bestarm-agent\[preselect\]'"):
        fitted(SUMS)


def test_the_papers_filter_by_hand() -> None:
    """Column 1 is twice column 0, column 2 is constant, column 3 stands alone."""
    base = np.array([0.0, 1.0, 0.0, 1.0, 0.5])
    other = np.array([1.0, 1.0, 0.0, 0.0, 0.5])
    raw = np.column_stack([base, 2 * base, np.full(5, 7.0), other])
    assert filtered(raw).tolist() == np.column_stack([base, other]).tolist()


def test_the_papers_data_keeps_seven_features() -> None:
    path = DATA / "sat_swgcp_saps.npz"
    if not path.exists():
        pytest.skip("the data of the paper is not here")
    with np.load(path) as data:
        assert filtered(data["features"].astype(np.float64)).shape[1] == 7  # (section 6.2)
