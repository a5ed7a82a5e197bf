from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.commands import invoke


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three candidates of risks .02, .1 and .5; 120 of 480 examples are labelled."""
    rng = np.random.default_rng(1)
    true = rng.random((3, 480)) < np.array([[0.02], [0.1], [0.5]])
    losses = true.astype(float)
    losses[:, 120:] = np.nan
    np.savez(
        tmp_path / "losses.npz",
        losses=losses,
        guesses=(true ^ (rng.random((3, 480)) < 0.05)).astype(float),
        candidates=np.array(["large", "medium", "small"]),
        cost=[4.0, 2.0, 1.0],
    )
    return tmp_path


def test_the_cheapest_good_candidate(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke(
        capsys, "certify", "--losses", "losses.npz", "--risk", "0.25", "--plot", "c.svg",
        folder=table,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "Chosen:      medium" in done.out
    assert "small " in done.out
    assert "refuted" in done.out
    assert "probability that a bad one was certified is at most 0.1" in done.out
    for method in ("r-eval:", "r-autoeval:", "r-autoeval+:"):
        assert method in done.out
    assert "labels for the same" in done.out
    assert "log10 of the e-value" in (table / "c.svg").read_text(encoding="utf-8")


def test_json_holds_the_trails(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke(
        capsys, "certify", "--losses", "losses.npz", "--risk", "0.25", "--confidence", "0.95",
        "--factors", "4", "--json", folder=table,
    )  # fmt: skip
    found = json.loads(done.out)
    assert found["chosen"] == "medium"
    assert found["confidence"] == pytest.approx(0.95)
    assert found["reliance"] == [[0.0], [pytest.approx(1 / 3)], [pytest.approx(2 / 3)], [1.0]]
    large = found["candidates"][0]
    assert large["labels"] == len(large["log_wealths"]) == len(large["weights"])
    assert large["log_e_value"] == pytest.approx(max(large["log_wealths"]))
    assert large["log_e_value"] >= np.log(20)
    assert sum(large["weights"][-1]) == pytest.approx(1, abs=1e-4)
    assert found["labels"] >= found["alternatives"]["r-autoeval+"]["labels_for_same"]


def test_no_candidate_is_good_enough(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke(
        capsys, "certify", "--losses", "losses.npz", "--risk", "0.001", "--method", "r-eval",
        folder=table,
    )  # fmt: skip
    assert done.code == 3
    assert "none is shown to be good enough" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--risk", "1.5"), "--risk must be between 0 and 1, got 1.5"),
        (("--method", "r-autoevl"), "did you mean `r-autoeval`"),
        (("--betting", "kelly"), "--betting: there is no 'kelly'"),
        (("--correction", "holm"), "--correction: there is no 'holm'"),
        (("--order", "price"), "holds no array 'price'"),
        (("--guess", "judge"), "holds no array 'judge'"),
        (("--plot", "c.bmp"), "a figure is written as .svg"),
        (("--choose-labels",), "360 of losses.npz have none"),
    ],
)
def test_bad_options_are_named(
    table: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    done = invoke(capsys, "certify", "--losses", "losses.npz", *arguments, folder=table)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_something_must_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke(capsys, "certify", folder=tmp_path)
    assert done.code == 2
    assert "--losses" in done.err
