"""Objectives that depend on prices, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
USD = (0.0002, 0.0008, 0.002, 0.008, 0.004, 0.03)


def select(capsys: Capsys, folder: Path, *flags: str) -> Done:
    path = write_study(folder, n_examples=200, usd=USD)
    flags = ("--quiet", "--confidence", "0.9", *flags)
    return invoke(capsys, "select", "-c", path, *flags, folder=folder)


def aimed(name: str, *more: str) -> tuple[str, ...]:
    given = [f"objective={name}", *(f"objective.{one}" for one in more)]
    return tuple(word for one in given for word in ("--set", one))


def under(dollars: str) -> tuple[str, ...]:
    return aimed("best-under-usd", f"usd_per_1k_calls={dollars}")


def test_the_exit_code_tells_an_answer_that_is_not_established(
    tmp_path: Path, capsys: Capsys
) -> None:
    done = select(capsys, tmp_path, *under("3"), "--budget-answers", "60")
    assert done.code == 3
    assert "the best that costs at most $3 per 1,000 calls" in done.out
    assert "could be better" in done.out


@pytest.mark.parametrize("flags", [under("0.0001"), ("--at-least", "0.95")])
def test_the_exit_code_tells_that_nobody_is_named(
    tmp_path: Path, capsys: Capsys, flags: tuple[str, ...]
) -> None:
    """That it is proved that nobody fits is no winner: a script must not go on."""
    done = select(capsys, tmp_path, *flags, "--json")
    decision = json.loads(done.out)["decision"]
    assert (decision["take"], decision["proved"], done.code) == (None, True, 3)


@pytest.mark.slow
def test_a_run_stops_at_what_is_good_enough(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_examples=200, changes={"selector": "racing"})
    flags = ("--json", "--confidence", "0.9", "--set", "stop.within=0.15")
    found = json.loads(invoke(capsys, "select", "-c", path, *flags, folder=tmp_path).out)
    assert (found["end"], found["separated"]) == ("within", False)
    assert found["decision"]["proved"] is True
    assert found["margin"] <= found["within"] == 0.15
    assert "proved to be at most 15 points below the best" in found["decision"]["said"][1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objective": "cheapest-within-epsilon", "stop": {"within": 0.1}},
            "`stop.within` belongs to the objective `best`, not to `cheapest-within-epsilon`",
        ),
        (
            {"selector": {"stop_when_separated": False}, "stop": {"within": 0.1}},
            "`stop.within` contradicts `selector.stop_when_separated: false`",
        ),
        ({"stop": {"within": 2}}, "`stop.within` must be less than 1"),
        ({"stop": {"for": "all"}}, "`stop.for` must be"),
        (
            {"objective": "cheapest-within-epsilon", "stop": {"for": "new"}},
            "`stop.for` belongs to the objective `best`",
        ),
        ({"stop": {"for": "new"}, "selector": "uniform"}, "stop.for: uniform does not compare"),
    ],
)
def test_stops_that_make_no_sense(
    tmp_path: Path, capsys: Capsys, changes: dict[str, object], message: str
) -> None:
    path = write_study(tmp_path, changes={"selector": {}, **changes})
    done = invoke(capsys, "plan", "-c", path, folder=tmp_path)
    assert done.code == 2
    assert message in done.err


@pytest.mark.slow
def test_the_verdict_and_the_table_by_price(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_examples=200, usd=USD)
    flags = ("--quiet", "--confidence", "0.9", *under("$3"))
    done = invoke(capsys, "select", "-c", path, *flags, folder=tmp_path)
    assert done.code == 0
    assert "Take c2" in done.out
    assert "$2.00 per 1,000 calls" in done.out
    [barred] = [line for line in done.out.splitlines() if line.startswith("Breaks a limit: ")]
    assert barred.endswith(": usd_per_1k_calls <= 3 is not kept")
    assert all(label in barred for label in ("c3", "c4", "c5"))
    assert "worse" in done.out
    assert "per 1,000" in done.out


@pytest.mark.slow
def test_the_json_tells_prices_and_accounts(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, *aimed("cheapest-within-epsilon"), "--json")
    result = json.loads(done.out)
    objective = result["objective"]
    assert objective["spec"]["name"] == "cheapest-within-epsilon"
    by_label = {row["candidate"]["label"]: row for row in result["rows"]}
    assert objective["answer"] == by_label[result["decision"]["take"]]["index"]
    for i, price in enumerate(USD):
        row = by_label[f"c{i}"]
        assert row["price_source"] == "recording"
        assert row["price"]["value"] == pytest.approx(1000 * price)
    spent = sum(line["spend"]["usd"] for line in result["costs"])
    assert spent == pytest.approx(result["spent"]["usd"])


@pytest.mark.slow
def test_show_and_report_know_the_objective_too(tmp_path: Path, capsys: Capsys) -> None:
    ended = select(capsys, tmp_path, *aimed("cheapest-within-epsilon"), "--json")
    store = ("--store", "runs/runs.sqlite")
    shown = invoke(capsys, "show", "--json", *store, folder=tmp_path)
    live, stored = json.loads(ended.out), json.loads(shown.out)
    for key in ("objective", "decision", "costs", "rows"):
        assert stored[key] == live[key], key


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (aimed("best-under-usd"), "{name: best-under-usd, usd_per_1k_calls: 2}"),
        (aimed("cheapest"), "--set objective: `objective.name` must be"),
        (aimed("cheapest-within-epsilon", "usd_per_1k_calls=2"), "is what `best-under-usd` needs"),
        (aimed("cheapest-within-epsilon", "epsilon=1.5"), "epsilon"),
        (("--set", "selector.per=token"), "--set selector.per: `selector.per` must be"),
        (("--set", "budget.minuts=3"), "unknown key `budget.minuts`; did you mean `minutes` or"),
        (("--set", "budget.minutes"), "--set takes KEY=VALUE"),
        (("--set", "objective=["), "--set objective: "),
    ],
)
def test_wrong_flags_are_usage_errors(
    tmp_path: Path, capsys: Capsys, flags: tuple[str, ...], message: str
) -> None:
    done = select(capsys, tmp_path, *flags)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "runs").exists()


def test_working_per_dollar_by_a_flag(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, "--set", "selector.per=dollar", "--budget-usd", "0.2", "--json")
    rows = {row["candidate"]["label"]: row for row in json.loads(done.out)["rows"]}
    assert rows["c0"]["n"] > rows["c5"]["n"]


def test_what_a_point_is_worth_is_one_flag(tmp_path: Path, capsys: Capsys) -> None:
    done = select(capsys, tmp_path, "--cheapest-within", "0.3", "--json")
    found = json.loads(done.out)
    assert found["objective"]["spec"]["name"] == "cheapest-within-epsilon"
    rows = {row["candidate"]["label"]: row for row in found["rows"]}
    take = rows[found["decision"]["take"]]
    assert take["usd_per_1000"] < found["rows"][0]["usd_per_1000"], "cheaper than the leader"
