from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from bestarm_agent._version import __version__
from bestarm_agent.cli.option_groups import expanded
from bestarm_agent.cli.simulate import inputs
from bestarm_agent.cli.simulate.command import simulate
from bestarm_agent.cli.simulate.inputs import parse_budget, parse_latency, with_costs
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.floor import information_floor
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Latency


def small_matrix() -> ScoreMatrix:
    rng = np.random.default_rng(0)
    scores = (rng.random((4, 60)) < np.array([[0.2], [0.4], [0.6], [0.9]])).astype(np.float32)
    return ScoreMatrix(scores, ("a", "b", "c", "d"), np.array([1.0, 1.0, 2.0, 4.0]), "run-1")


def run(*arguments: str) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(expanded(simulate))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "stored_scores", lambda run, store: small_matrix())
        result = CliRunner().invoke(app, ["run-1", "--jobs", "1", *arguments])
    return result.stdout, result.exception


def test_the_object_has_the_documented_fields(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    _, error = run(
        "--selectors", "ucb-e,uniform", "--budget", "0.1:0.5:3", "--seeds", "5",
        "--eps", "0.05", "--top-k", "2", "--json", str(path),
    )  # fmt: skip
    assert error is None
    found = json.loads(path.read_text())
    assert found["version"] == __version__
    assert found["matrix"]["shape"] == [4, 60]
    assert found["matrix"]["h1"] > 0
    assert found["seeds"] == 5
    assert set(found["selectors"]) == {"ucb-e", "uniform"}
    curve = found["selectors"]["ucb-e"]
    for name in ("top1", "top1_eps0.01", "top1_eps0.05", "top1_p0.1", "ndcg10", "regret", "cost"):
        assert len(curve[name]) == len(curve[f"{name}_se"]) == len(curve["budget_fraction"]) == 3
    assert len(curve["aggregate_regret"]) == 3
    assert curve["seconds_per_decision"] > 0
    assert {"budget_to_95", "budget_to_95_isotonic", "budget_to_95_range"} <= set(curve)


def test_the_table_names_rules_and_savings() -> None:
    text, error = run("--selectors", "ucb-e[eta=0.5]", "--budget", "0.5:1:2", "--seeds", "3")
    assert error is None
    assert "run-1: 4 candidates x 60 examples, H1 = " in text
    assert "ucb-e[eta=0.5]" in text
    assert "100.0%" in text  # everything seen costs everything
    assert "it would have saved" in text
    assert "of 240 calls." in text.replace("\n", " ")


def test_the_floor_stands_beside_every_rule() -> None:
    text, error = run("--selectors", "ucb-e", "--budget", "0.5:1:2", "--seeds", "3", "--floor")
    assert error is None
    assert "x floor" in text
    assert "the least that any rule needs" in text.replace("\n", " ")
    text, _ = run(
        "--selectors", "ucb-e", "--budget", "1:1:1", "--seeds", "1", "--floor", "--json", "-"
    )
    assert json.loads(text)["floor"] == pytest.approx(information_floor(small_matrix()))
    text, _ = run("--selectors", "ucb-e", "--budget", "1:1:1", "--seeds", "1", "--json", "-")
    assert json.loads(text)["floor"] is None


def test_the_floor_of_a_set_is_refused() -> None:
    _, error = run("--floor", "--top-k", "2")
    assert str(error) == "--floor is known for one best candidate; leave out --top-k or --floor"


def test_a_first_budget_that_is_enough_says_so() -> None:
    text, _ = run("--budget", "1:1:1", "--seeds", "1")
    assert "from 100.0% of all calls on, if not from fewer: it would have saved 0.0% of it" in text


def test_json_on_stdout_is_all_there_is() -> None:
    text, error = run("--budget", "1:1:1", "--seeds", "1", "--json", "-")
    assert error is None
    found = json.loads(text)["selectors"]
    assert list(found) == ["auto", "ucb-e", "sysrs", "uniform"], "the default and its rivals"
    assert found["auto"]["top1"] == [1.0]


def test_a_budget_that_is_never_enough_is_said() -> None:
    text, _ = run("--selectors", "uniform", "--budget", "0.01:0.02:2", "--seeds", "20")
    assert "No rule names the best candidate in 95 % of the runs" in text


@pytest.mark.slow
def test_a_figure_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.svg"
    _, error = run("--budget", "0.1:0.5:3", "--seeds", "2", "--plot", str(path))
    assert error is None
    assert path.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--selectors", "ucbe"), "there is no selector 'ucbe'"),
        (("--selectors", "ucb-e[eta=-1]"), "eta must be > 0, got -1"),
        (("--top-k", "9"), "top_k must be at most 4 candidates, got 9"),
        (("--batch", "4", "--in-flight", "2"), "in_flight must be at least the batch size 4"),
        (("--latency", "slow"), "--latency must be none"),
        (("--plot", "out.gif"), "a figure is written as"),
        (("--costs", "nowhere.csv"), "there is no file nowhere.csv"),
        (("--budget", "0.5:0.1"), "--budget must be LO:HI"),
        (("--per", "dollar", "--costs", "none"), "--per dollar needs to know what a call"),
        (("--per", "dollar", "--in-flight", "3"), "per dollar one call is made at a time"),
        (("--json", "nowhere/out.json"), "there is no folder nowhere to write out.json into"),
        (("--plot", "nowhere/out.svg"), "there is no folder nowhere to write out.svg into"),
        (("--json", "."), ". is a folder; name a file in it"),
    ],
)
def test_what_the_user_wrote_wrong_is_named(arguments: tuple[str, ...], message: str) -> None:
    _, error = run(*arguments)
    assert isinstance(error, ConfigError)
    assert message in str(error)


def test_per_dollar_shares_are_of_the_money(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    text, error = run("--per", "dollar", "--selectors", "ucb-e,sysrs", "--budget", "0.1:0.5:3",
                      "--seeds", "3", "--json", str(path))  # fmt: skip
    assert error is None
    assert "the share of what all calls cost from which" in text
    found = json.loads(path.read_text())
    assert found["per"] == "dollar"
    whole = found["matrix"]["full_cost"]
    for rule, curve in found["selectors"].items():
        assert curve["budget_fraction"] == pytest.approx([0.1, 0.225, 0.5], abs=0.005)
        for share, cost in zip(curve["budget_fraction"], curve["cost"], strict=True):
            most_left = 4 if rule == "ucb-e" else 0.2 * whole  # a dear call, or a round
            assert share * whole - most_left < cost <= share * whole + 1e-9


def test_a_single_candidate_is_no_contest(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", scores=np.ones((1, 9)))
    _, error = run_file(tmp_path / "one.npz")
    assert isinstance(error, ConfigError)
    assert "holds one candidate" in str(error)


def test_missing_scores_are_pointed_out(tmp_path: Path) -> None:
    scores = small_matrix().scores.copy()
    scores[0, :30] = np.nan
    np.savez(tmp_path / "some.npz", scores=scores)
    text, _ = run_file(tmp_path / "some.npz", "--seeds", "1", "--selectors", "uniform")
    assert "12.5% of the scores are missing: these pairs count as not measurable" in text
    assert "missing" not in run("--seeds", "1", "--selectors", "uniform")[0]


def run_file(path: Path, *arguments: str) -> tuple[str, BaseException | None]:
    app = typer.Typer()
    app.command()(expanded(simulate))
    result = CliRunner().invoke(app, [str(path), "--jobs", "1", *arguments])
    return result.stdout, result.exception


def test_run_times_are_read_with_a_cutoff(tmp_path: Path) -> None:
    np.savez(tmp_path / "times.npz", runtime=np.array([[0.5, 1.0]] * 30))
    app = typer.Typer()
    app.command()(expanded(simulate))
    arguments = [f"{tmp_path / 'times.npz'}:runtime", "--jobs", "1", "--budget", "1:1:1"]
    arguments += ["--seeds", "1", "--transpose", "--cutoff", "2", "--json", "-"]
    result = CliRunner().invoke(app, arguments)
    found = json.loads(result.stdout)
    assert found["matrix"]["shape"] == [2, 30]
    assert found["matrix"]["h1"] == pytest.approx(1 / 0.25**2)


@pytest.mark.parametrize("text", ["", "0.1", "0:0.1", "0.1:2", "0.1:0.2:0", "a:b", "0.1:0.2:3:4"])
def test_budgets_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError, match="--budget must be LO:HI"):
        parse_budget(text)


def test_latency_laws() -> None:
    assert parse_latency("none") is None
    assert parse_latency("exponential") == Latency(1.0)
    assert parse_latency("exponential:2.5") == Latency(2.5)
    assert parse_latency("correlated") == Latency(1.0, 3.0)
    for text in ("correlated:0", "exponential:x"):
        with pytest.raises(ConfigError, match=f"--latency {text}"):
            parse_latency(text)


def test_costs_can_be_dropped_and_replaced(tmp_path: Path) -> None:
    matrix = small_matrix()
    assert with_costs(matrix, "matrix") is matrix
    assert with_costs(matrix, "none").costs is None
    table = tmp_path / "costs.csv"
    table.write_text("candidate,cost\nd,8\nc,4\nb,2\na,1\n")
    costs = with_costs(matrix, str(table)).costs
    assert costs is not None
    assert list(costs) == [1.0, 2.0, 4.0, 8.0]
    table.write_text("candidate,cost\na,1\n")
    with pytest.raises(ConfigError, match="no cost is given for candidate 'b'"):
        with_costs(matrix, str(table))
    table.write_text("candidate,cost\na,1\nb,2\nc,x\nd,1\n")
    with pytest.raises(ConfigError, match="could not convert"):
        with_costs(matrix, str(table))
    table.write_text("name,price\na,1\n")
    with pytest.raises(ConfigError, match="the columns candidate and cost"):
        with_costs(matrix, str(table))
