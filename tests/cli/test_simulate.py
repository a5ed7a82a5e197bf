from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bestarm_agent._version import __version__
from bestarm_agent.cli.main import app
from bestarm_agent.cli.simulate import parse_budget
from bestarm_agent.errors import ConfigError


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """A file of four candidates, the best of them far ahead."""
    rng = np.random.default_rng(0)
    heads = rng.random((4, 60)) < np.array([[0.2], [0.4], [0.6], [0.9]])
    path = tmp_path / "four.npz"
    np.savez(path, scores=heads.astype(np.float32), methods=["a", "b", "c", "d"])
    return path


def run(matrix: str | Path, *arguments: str) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(app, ["simulate", str(matrix), "--jobs", "1", *arguments])
    return result.stdout, result.exception


def test_the_object_has_the_documented_fields(scores: Path) -> None:
    wanted = ("--selectors", "ucb-e,uniform", "--budget", "0.1:0.5:3", "--seeds", "5")
    found = json.loads(run(scores, *wanted, "--json")[0])
    assert found["version"] == __version__
    assert found["matrix"]["shape"] == [4, 60]
    assert found["matrix"]["h1"] > 0
    assert found["seeds"] == 5
    assert set(found["selectors"]) == {"ucb-e", "uniform"}
    curve = found["selectors"]["ucb-e"]
    for name in ("top1", "top1_eps0.01", "ndcg10", "regret"):
        assert len(curve[name]) == len(curve[f"{name}_se"]) == len(curve["budget_fraction"]) == 3
    assert curve["seconds_per_decision"] > 0
    assert {"budget_to_95", "budget_to_95_range"} <= set(curve)


def test_the_table_names_rules_and_savings(scores: Path) -> None:
    text, error = run(
        scores, "--selectors", "ucb-e[eta=0.5]", "--budget", "0.5:1:2", "--seeds", "3"
    )
    assert error is None
    assert "four.npz: 4 candidates x 60 examples, H1 = " in text
    assert "ucb-e[eta=0.5]" in text
    assert "it would have saved" in text
    assert "of 240 calls." in text.replace("\n", " ")
    assert "missing" not in text


def test_a_first_budget_that_is_enough_says_so(scores: Path) -> None:
    text, _ = run(scores, "--budget", "1:1:1", "--seeds", "1")
    assert "from 100 % of all calls on, if not from fewer: it would have saved 0 % of them" in text


def test_json_on_stdout_is_all_there_is(scores: Path) -> None:
    text, error = run(scores, "--budget", "1:1:1", "--seeds", "1", "--json")
    assert error is None
    found = json.loads(text)["selectors"]
    assert list(found) == ["auto", "ucb-e", "sysrs", "uniform"], "the default and its rivals"
    assert found["auto"]["top1"] == [1.0]


def test_a_budget_that_is_never_enough_is_said(scores: Path) -> None:
    text, _ = run(scores, "--selectors", "uniform", "--budget", "0.01:0.02:2", "--seeds", "20")
    assert "No rule names the best candidate in 95 % of the runs" in text


@pytest.mark.slow
def test_a_figure_is_written(scores: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.svg"
    _, error = run(scores, "--budget", "0.1:0.5:3", "--seeds", "2", "--plot", str(path))
    assert error is None
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--selectors", "ucbe"), "there is no selector 'ucbe'"),
        (("--selectors", "ucb-e[eta=-1]"), "eta must be > 0, got -1"),
        (("--plot", "out.gif"), "a figure is written as"),
        (("--budget", "0.5:0.1"), "--budget must be LO:HI"),
        (("--plot", "nowhere/out.svg"), "there is no folder nowhere to write out.svg into"),
    ],
)
def test_what_the_user_wrote_wrong_is_named(
    scores: Path, arguments: tuple[str, ...], message: str
) -> None:
    _, error = run(scores, *arguments)
    assert isinstance(error, ConfigError)
    assert message in str(error)


def test_a_single_candidate_is_no_contest(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", scores=np.ones((1, 9)))
    _, error = run(tmp_path / "one.npz")
    assert isinstance(error, ConfigError)
    assert "holds one candidate" in str(error)


def test_missing_scores_are_pointed_out(scores: Path, tmp_path: Path) -> None:
    with np.load(scores) as arrays:
        some = arrays["scores"].copy()
    some[0, :30] = np.nan
    np.savez(tmp_path / "some.npz", scores=some)
    text, _ = run(tmp_path / "some.npz", "--seeds", "1", "--selectors", "uniform")
    assert "12 % of the scores are missing: these answers count as not to be had" in text


def test_a_file_of_another_kind_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "scores.npy").write_bytes(b"")
    _, error = run(tmp_path / "scores.npy")
    assert "is not a score file (.npz, .csv, .parquet)" in str(error)


@pytest.mark.parametrize("text", ["", "0.1", "0:0.1", "0.1:2", "0.1:0.2:0", "a:b", "0.1:0.2:3:4"])
def test_budgets_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError, match="--budget must be LO:HI"):
        parse_budget(text)
