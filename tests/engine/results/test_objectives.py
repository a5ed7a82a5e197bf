"""Objectives that depend on prices: what is named, what is shown, whom it is worth asking."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.baselines.filled_subset import FilledSubset

from bestarm_agent.config.goal_specs import ObjectiveSpec
from bestarm_agent.domain.events import Asked, CandidatesBarred
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.results.objectives import Finding, Means, ObjectiveState, rule
from bestarm_agent.engine.results.standing import Standing, Status
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.study import Study
from tests.support.replay_check import unexplained_asks
from tests.support.studies import events_of, run_all, write_study


def spec(name: str, **more: float) -> ObjectiveSpec:
    return ObjectiveSpec.model_validate({"name": name, **more})


def ruled(objective: ObjectiveSpec, selector: Pairs, prices: list[float]) -> ObjectiveState:
    """What is said where the prices of 1,000 calls are known for sure."""
    exact = np.array(prices)
    findings = [Finding(one, Means(exact, exact, exact)) for one in objective.constraints]
    return rule(objective, selector, findings, exact)


def tell_all(selector: Pairs, scores: Iterable[Iterable[float]]) -> None:
    """Tell the scores of each candidate, on the first examples."""
    for i, row in enumerate(scores):
        for j, score in enumerate(row):
            ask = Ask(selector.table.n_asked, Pair(i, j), "")
            selector.adopt([ask])
            selector.tell([Tell(ask.seq, State.DONE, float(score))])


def ruling(objective: ObjectiveSpec, means: list[float], prices: list[float]) -> ObjectiveState:
    """What is said once every example was seen; means are tenths."""
    selector = make_selector("uniform", Problem(len(means), 10, stop_when_separated=False))
    tell_all(selector, ([j < round(10 * mean) for j in range(10)] for mean in means))
    return ruled(objective, selector, prices)


MEANS, PRICES = [0.5, 0.9, 0.8, 0.6, 0.8], [1.0, 16.0, 4.0, 8.0, 6.0]


def test_the_best_under_a_price_by_hand() -> None:
    found = ruling(spec("best-under-usd", usd_per_1k_calls=5), MEANS, PRICES)
    assert found.answer == 2
    assert sorted(found.infeasible) == [1, 3, 4]
    assert not found.established  # before those are barred
    assert ruling(spec("best-under-usd", usd_per_1k_calls=20), MEANS, PRICES).established
    found = ruling(spec("best-under-usd", usd_per_1k_calls=0.5), MEANS, PRICES)
    assert found.answer is None
    assert found.established, "that none is cheap enough is an answer too"


@pytest.mark.parametrize(("epsilon", "answer"), [(0.05, 1), (0.101, 2), (0.31, 2), (0.401, 0)])
def test_the_cheapest_that_is_good_enough_by_hand(epsilon: float, answer: int) -> None:
    found = ruling(spec("cheapest-within-epsilon", epsilon=epsilon), MEANS, PRICES)
    assert (found.answer, found.established) == (answer, True)
    assert found.margin == pytest.approx(max(MEANS) - MEANS[answer])


def test_little_data_establishes_nothing() -> None:
    selector = make_selector("uniform", Problem(3, 1000, stop_when_separated=False))
    for ask in selector.ask(30):
        selector.tell([Tell(ask.seq, State.DONE, float(ask.pair.candidate > 0))])
    found = ruled(spec("cheapest-within-epsilon", epsilon=0.05), selector, [0.1, 0.2, 0.3])
    assert not found.established
    assert found.worth is not None
    assert found.worth.any()


def test_once_an_answer_is_good_enough_nobody_dearer_is_asked() -> None:
    """Two that are known in full, and a cheaper one that may be as good: only it is left."""
    selector = make_selector("uniform", Problem(3, 50, stop_when_separated=False))
    tell_all(selector, [[1, 0, 1], [1] * 50, [1] * 50])
    found = ruled(spec("cheapest-within-epsilon"), selector, [0.1, 0.2, 0.3])
    assert found.answer == 1
    assert found.worth is not None
    assert found.worth[0]
    assert found.worth.sum() <= 2  # it, and the leading one that it is compared with


def test_nobody_is_named_without_an_answer() -> None:
    selector = make_selector("uniform", Problem(2, 50, stop_when_separated=False))
    tell_all(selector, [[], [1] * 20])
    found = ruled(spec("cheapest-within-epsilon", epsilon=0.2), selector, [0.1, 0.2])
    assert (found.answer, found.established) == (1, False)


# whole runs

USD = (0.0002, 0.0008, 0.002, 0.008, 0.004, 0.03)


def study_for(folder: Path, objective: dict[str, Any], **selector: Any) -> Path:  # noqa: ANN401
    changes = {
        "objective": objective,
        "selector": {"name": "ucb-e", "confidence": 0.9, **selector},
        "limits": {"in_flight": 8},
    }
    return write_study(folder, n_examples=300, usd=USD, changes=changes)


def label(standing: Standing) -> str | None:
    winner = standing.winner
    return None if winner is None else winner.candidate.label


@pytest.mark.slow
def test_candidates_shown_to_be_too_expensive_are_pulled_no_more(tmp_path: Path) -> None:
    path = study_for(tmp_path, {"name": "best-under-usd", "usd_per_1k_calls": 3})
    standing = run_all(path)
    rows = {row.candidate.label: row for row in standing.rows}
    assert label(standing) == "c2"  # c3 to c5 are better, and cost 4 to 30 dollars
    assert standing.decision.proved
    assert standing.end == "separated"
    barred = {name for name, row in rows.items() if row.status is Status.BARRED}
    assert barred == {"c3", "c4", "c5"}
    # a price that equals its bound all the time is told from one a third lower in a few answers
    assert all(rows[name].n < 40 for name in barred)
    assert rows["c2"].price is not None
    assert rows["c2"].price.value == pytest.approx(2.0)
    assert rows["c2"].price.upper == pytest.approx(2.0)


@pytest.mark.slow
def test_the_cheapest_good_enough_one_ends_the_run_early(tmp_path: Path) -> None:
    path = study_for(tmp_path, {"name": "cheapest-within-epsilon", "epsilon": 0.6})
    standing = run_all(path)
    assert label(standing) == "c0"
    assert standing.end == "separated"
    assert standing.asked < 0.9 * standing.grid


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        {"name": "best-under-usd", "usd_per_1k_calls": 3},
        {"name": "cheapest-within-epsilon", "epsilon": 0.05},
    ],
)
@pytest.mark.parametrize("rule_name", ["ucb-e", "sysrs"])
def test_a_resumed_run_goes_on_and_the_log_explains_it(
    tmp_path: Path, objective: dict[str, Any], rule_name: str
) -> None:
    path = study_for(tmp_path, objective, name=rule_name)
    if rule_name == "sysrs":
        text = path.read_text().replace('"limits"', '"budget": {"answers": 600}, "limits"')
        path.write_text(text)

    async def scene() -> tuple[Standing, Standing, Standing]:
        async with Study.open(path) as study:
            first = await study.run(Budget(answers=200))
        options = Options(store=path.parent / "runs" / "runs.sqlite")
        async with Study.resume(options=options) as study:
            again = study.standing()
            return first, again, await study.run(Budget(answers=200))

    first, again, last = asyncio.run(scene())
    assert again.objective == first.objective
    assert again.rows == first.rows
    assert last.asked > 200 or first.decision.proved or rule_name == "sysrs"  # its plan is done
    events = events_of(path)
    barred = {i for e in events if isinstance(e, CandidatesBarred) for i in e.candidates}
    left: set[int] = set()
    for event in events:
        if isinstance(event, CandidatesBarred):
            left |= set(event.candidates)
        elif isinstance(event, Asked):
            assert event.candidate not in left
    assert barred <= {3, 4, 5}


@pytest.mark.slow
def test_every_ask_follows_from_the_log_before_it(tmp_path: Path) -> None:
    path = study_for(tmp_path, {"name": "best-under-usd", "usd_per_1k_calls": 3})
    run_all(path, Budget(answers=300))
    events = events_of(path)
    assert any(isinstance(event, CandidatesBarred) for event in events)
    selector = make_selector("ucb-e", Problem(6, 300, confidence=0.95, stop_when_separated=False))
    assert unexplained_asks(events, selector) == []


def test_an_objective_by_price_needs_known_prices(tmp_path: Path) -> None:
    path = study_for(tmp_path, {"name": "cheapest-within-epsilon"})
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    kept = [line.split(', "usd"')[0] + "}" if '"c3"' in line else line for line in lines]
    (tmp_path / "scores.jsonl").write_text("\n".join(kept))
    with pytest.raises(
        ConfigError, match=r"objective is `cheapest-within-epsilon`, but the price of replay/c3"
    ):
        run_all(path)


@pytest.mark.slow
@pytest.mark.coverage
def test_what_is_established_is_true() -> None:
    """Random worlds, looked at after every tenth pull; wrong at most at the asked level."""
    objective = spec("cheapest-within-epsilon", epsilon=0.1)
    level, n_worlds, wrong, early = 0.8, 60, 0, 0
    for seed in range(n_worlds):
        rng = KeyedRandom(seed, "objective worlds").at(0)
        scores = (rng.random((4, 100)) < rng.uniform(0.2, 0.9, (4, 1))).astype(float)
        problem = Problem(4, 100, seed=seed, confidence=level, stop_when_separated=False)
        selector = Pairs(FilledSubset(problem))
        while asks := selector.ask(10):
            selector.tell([Tell(a.seq, State.DONE, scores[a.pair]) for a in asks])
            found = ruled(objective, selector, [1.0, 2.0, 3.0, 4.0])
            if found.established:
                means = scores.mean(axis=1)
                wrong += found.answer != np.flatnonzero(means >= means.max() - 0.1)[0]
                early += selector.table.n_asked < 400
                break
    # Binomial(60, 0.2) exceeds 23 with probability 3e-4
    assert wrong <= 23, wrong
    assert early >= 30, "most of these are established before all is seen"


@pytest.mark.slow
def test_prices_that_differ_from_call_to_call_have_valid_intervals(tmp_path: Path) -> None:
    """The longest example is not the dearest one, so every example's bound counts."""
    path = study_for(tmp_path, {"name": "best-under-usd", "usd_per_1k_calls": 1.2})
    records = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    rng = KeyedRandom(3, "prices of calls").at(0)
    for record in records:
        record["usd"] = round(record["usd"] * float(rng.uniform(0.2, 1.8)), 9)
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, records)))
    standing = run_all(path)
    true = {
        f"c{i}": 1000 * float(np.mean([r["usd"] for r in records if r["candidate"] == f"c{i}"]))
        for i in range(6)
    }
    for row in standing.rows:
        assert row.price is not None
        assert row.price.lower <= true[row.candidate.label] <= row.price.upper < math.inf
    assert label(standing) == "c1"
    assert standing.decision.proved
    assert all(row.status is Status.BARRED for row in standing.rows if row.index >= 2)
