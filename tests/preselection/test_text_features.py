from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.features import TextFeatures

pytest.importorskip("sklearn", reason="needs the extra preselect")

SUMS = [f"add {i} and {i + 7}" for i in range(20)]
POEMS = [f"write a poem on the colour of {thing}" for thing in ("sea", "sky", "sun", "mud")] * 5


def test_prompts_of_a_kind_lie_together() -> None:
    features = TextFeatures(4).fit(SUMS + POEMS)
    sums, poems = features.transform(SUMS), features.transform(POEMS)
    between = np.linalg.norm(sums.mean(axis=0) - poems.mean(axis=0))
    assert between > 1.2 * np.linalg.norm(sums - sums.mean(axis=0), axis=1).mean()
    new = features.transform(["add 88 and 99", "write a poem on the colour of wine"])
    assert np.linalg.norm(new[0] - sums.mean(axis=0)) < np.linalg.norm(new[0] - poems.mean(axis=0))
    assert np.linalg.norm(new[1] - poems.mean(axis=0)) < np.linalg.norm(new[1] - sums.mean(axis=0))


def test_each_feature_has_the_same_variance_and_vectors_length_about_one() -> None:
    made = TextFeatures(5).fit(SUMS + POEMS).transform(SUMS + POEMS)
    assert made.var(axis=0) == pytest.approx(np.full(5, 0.2), rel=0.05)
    assert (made**2).sum(axis=1).mean() == pytest.approx(1.0, rel=0.1)


def test_formats_are_told_apart() -> None:
    plain = [f"{i}+{j}=" for i in range(5) for j in range(5)]
    spaced = [f"{i} + {j} =" for i in range(5) for j in range(5)]
    features = TextFeatures(8).fit(plain + spaced)
    one, other = features.transform(plain), features.transform(spaced)
    assert np.linalg.norm(one - other, axis=1).min() > 0.1


def test_it_goes_on_from_its_state_as_plain_arrays() -> None:
    fitted = TextFeatures(4).fit(SUMS + POEMS)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **fitted.state())
    file.seek(0)
    again = TextFeatures(4)
    with np.load(file, allow_pickle=False) as arrays:
        again.restore(dict(arrays))
    new = ["add a poem", "nothing known 🎲", ""]
    assert again.transform(new) == pytest.approx(fitted.transform(new), abs=1e-6)


@pytest.mark.parametrize("prompts", [["same words"] * 5, ["", ""], ["one"]])
def test_prompts_that_do_not_differ_are_refused(prompts: list[str]) -> None:
    with pytest.raises(ValueError, match="no features can be made of"):
        TextFeatures(4).fit(prompts)


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        TextFeatures(4).transform(["x"])
    with pytest.raises(ValueError, match="n_components must be at least 1"):
        TextFeatures(0)
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ConfigError, match=r"pip install 'bestarm-agent\[preselect\]'"):
        TextFeatures(4)
