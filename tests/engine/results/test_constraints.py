"""Limits of an objective: what is shown of them, who is left out, what the winner is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.config.goal_specs import LENGTH, SCORE, SECONDS, ObjectiveSpec, constraint_of
from bestarm_agent.domain.events import (
    Asked,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Started,
    Told,
)
from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Candidate, Failure, Json, Outcome, Score
from bestarm_agent.engine.results.objectives import (
    Finding,
    MeanTracker,
    ObjectiveTracker,
)
from bestarm_agent.engine.results.standing import LimitState, Standing, Status
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.report.html_page import chart_axes, values_of
from bestarm_agent.report.words import facts
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.history import Factors
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState
from tests.support.confirm_worlds import missed
from tests.support.rates import RateCheck
from tests.support.standings import PROMPT
from tests.support.studies import run_all, study_file, write_study

N = 200


CONFIG: dict[str, Json] = {"limits": {"timeout_seconds": 10}}
MEASURES = ("polite", "toxicity")


class Tracked:
    """A run of some models, and the mean of one of its quantities."""

    def __init__(self, name: str, *params: dict[str, Json]) -> None:
        ids = tuple(f"e{j}" for j in range(N))
        candidates = [Candidate("p", f"m{i}", PROMPT, one) for i, one in enumerate(params or [{}])]
        nothing = (None,) * len(candidates)
        self.state = RunState()
        self.take(
            Started("study", "2026-11-21T09:30:15Z", "0.1.0", CONFIG, ".", measures=MEASURES),
            ExamplesAdded(ids, ids),
            CandidatesAdded(tuple(candidates), nothing, nothing),
        )
        self.name, self.tracker = name, MeanTracker(self.state, name, 0.9)

    def take(self, *events: Event) -> None:
        self.state.take([line_of(event) for event in events])

    def finding(self, limit: str) -> Finding:
        return Finding(constraint_of(self.name, limit), self.tracker.means())

    def asked(self, count: int) -> None:
        k = len(self.state.candidates)
        self.take(*(Asked(seq, seq % k, seq // k, "rule") for seq in range(count)))


def test_an_objective_is_behind_once_an_outcome_came_whatever_is_pending() -> None:
    run = Tracked(SECONDS, {}, {})
    spec = ObjectiveSpec.model_validate({"name": "best-under-usd", "usd_per_1k_calls": 5})
    pairs = make_selector("uniform", Problem(2, N, stop_when_separated=False))
    objective = ObjectiveTracker(spec, 0.9, run.state, pairs, stops=True)
    run.asked(4)
    assert not objective.is_behind()
    run.take(told(0, 1.0))
    assert objective.is_behind()
    objective.review(now=True)
    assert not objective.is_behind()
    run.take(told(1, 1.0))
    assert objective.is_behind()


def told(seq: int, seconds: float, tokens: int = 5, toxicity: float | None = 0.0) -> Told:
    score = Score(1.0, measures=(1.0, toxicity))
    return Told(seq, Outcome(score, usage=Usage(output=tokens), seconds=seconds), 1.0)


def test_history_narrows_the_means_that_have_to_clear_a_bar() -> None:
    rng = np.random.default_rng(3)
    factors = Factors(rng.normal(0.0, 3.0, N), np.zeros((N, 0)))
    right = (rng.random(N) < 1.0 / (1.0 + np.exp(-factors.offset))).astype(float)
    seen = rng.permutation(N)[:100].tolist()
    widths = {}
    for name in (SCORE, "polite"):
        run = Tracked(name)
        run.take(*(Asked(seq, 0, example, "rule") for seq, example in enumerate(seen)))
        for seq, example in enumerate(seen):
            of_example = float(right[example])
            score = Score(of_example, measures=(of_example, 0.0))
            run.take(Told(seq, Outcome(score, usage=Usage(output=5), seconds=1.0), of_example))
        for of_past in (None, factors):
            means = MeanTracker(run.state, name, 0.9, of_past).means().of(0)
            assert means.lower <= right.mean() <= means.upper
            widths[name, of_past is factors] = means.upper - means.lower
    assert widths[SCORE, True] < 0.85 * widths[SCORE, False]
    assert widths["polite", True] == widths["polite", False] == widths[SCORE, False]


LOST = Outcome(failure=Failure(FailureKind.REFUSED, Blame.CANDIDATE, "no"), seconds=1.0)


@pytest.mark.parametrize(
    ("name", "limit", "outcome_of", "seems_kept", "kept", "broken"),
    [
        # every fifth is slow: while it is under way the candidate does not look fast
        (SECONDS, "<= 2", lambda seq: told(seq, 1.0) if seq % 5 else None, True, False, False),
        (SECONDS, "<= 2", lambda seq: told(seq, 1.0 if seq % 5 else 9.0), False, False, True),
        # a call that was not made took no time, and says nothing of it
        (
            *(SECONDS, "<= 2"),
            lambda seq: told(seq, 2.5) if seq % 4 else Told(seq, replace(LOST, seconds=0.0), None),
            *(False, False, False),
        ),
        # the time-out bounds what is under way, but for a call that took longer than any may
        (SECONDS, "<= 2", lambda seq: told(seq, 1.0) if seq < 149 else None, True, True, False),
        (SECONDS, "<= 2", lambda seq: told(seq, 1.0 if seq < 149 else 11.0), True, False, False),
        ("toxicity", "<= 0.1", lambda seq: told(seq, 1.0), True, True, False),
        # a failed reply counts for either side
        (
            *("toxicity", "<= 0.1"),
            lambda seq: told(seq, 1.0) if seq % 4 else Told(seq, LOST, 0.0),
            *(True, False, False),
        ),
        ("polite", ">= 0.9", lambda seq: told(seq, 1.0), True, True, False),
    ],
)
def test_what_is_known_of_a_limit(
    name: str,
    limit: str,
    outcome_of: Callable[[int], Told | None],
    seems_kept: bool,
    kept: bool,
    broken: bool,
) -> None:
    run = Tracked(name)
    run.asked(150)
    run.take(*(one for one in map(outcome_of, range(150)) if one is not None))
    found = run.finding(limit)
    states = (found.seems_kept[0], found.kept[0], found.broken[0])
    assert states == (seems_kept, kept, broken)
    assert found.means.lower[0] <= found.means.mean[0] <= found.means.upper[0]


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("slow", [5, 6])
def test_statements_at_the_edge_of_a_limit_are_wrong_at_most_as_often_as_allowed(
    slow: int, check_rate: RateCheck
) -> None:
    # Two candidates of which 5 (kept) or 6 (broken) of 100 calls are slow, looked at after every
    # call of the first 60; binomial test at 1e-6 of the joint rate .05 in 10,000 worlds.
    worlds, n = 10_000, 100
    rng = np.random.default_rng(slow)
    calls = (rng.random((2 * worlds, n)).argsort(axis=1)[:, :60] < slow).astype(np.float64)
    wrong = missed(calls, np.full(len(calls), slow / n), 0.05 / 2, n).reshape(worlds, 2)
    check_rate(int(wrong.any(axis=1).sum()), worlds, 0.05)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("seconds_mean", "2", "must be a limit such as"),
        ("seconds_mean", ">= 2", "limits from above"),
        ("toxicity", "<= 2", "at most 1, got 2"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectiveSpec(subject_to={name: text})


def test_limits_share_the_error_with_the_scores() -> None:
    spec = ObjectiveSpec(subject_to={"toxicity": "<= .1", "seconds_mean": "<= 2"})
    assert spec.confidence_of_each(0.92) == pytest.approx(
        0.98
    )  # two statements about scores, one per limit
    under = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls=2.0)
    same = ObjectiveSpec(subject_to={"usd_per_1k_calls": "<= 2"})
    assert under.constraints == same.constraints
    assert (under.by_price, same.by_price) == (True, True)


# whole runs: c5 is the best and slow, c4 the next and rude, c3 keeps everything


def limited(folder: Path, objective: Json, **changes: Json) -> Path:
    path = write_study(
        folder,
        n_examples=N,
        changes={
            "measures": {"rude": {"name": "regex", "pattern": "damn"}},
            "objective": objective,
            "selector": {"name": "auto", "confidence": 0.9},
            "providers": {"replay": {"path": "scores.jsonl", "speed": 1e6}},
            "limits": {"in_flight": 16, "timeout_seconds": 6},
            **changes,
        },
    )
    scores = folder / "scores.jsonl"
    rng = np.random.default_rng(0)
    rows = []
    for line in scores.read_text().splitlines():
        row = json.loads(line)
        chance = {"c5": 0.4, "c3": 0.005}.get(row["candidate"], 0.01)
        row["seconds"] = 5.0 if rng.random() < chance else 0.5
        row["text"] = "damn" if row["candidate"] == "c4" and rng.random() < 0.5 else "fine"
        row["score"] = float(rng.random() < 0.4 + 0.1 * int(row["candidate"][1]))
        rows.append(json.dumps(row))
    scores.write_text("\n".join(rows))
    return path


LIMITS: Json = {"subject_to": {"seconds_mean": "<= 1", "rude": "<= 0.1"}}


def label(standing: Standing) -> str | None:
    return None if standing.winner is None else standing.winner.candidate.label


@pytest.mark.slow
def test_the_best_that_keeps_all_limits_wins_and_the_others_are_out(tmp_path: Path) -> None:
    standing = run_all(limited(tmp_path, LIMITS))
    rows = {row.candidate.label: row for row in standing.rows}
    assert label(standing) == "c3"
    assert rows["c5"].status is rows["c4"].status is Status.BARRED
    assert rows["c5"].problem == "seconds_mean <= 1 is not kept"
    assert rows["c4"].problem == "rude <= 10 % is not kept"
    assert rows["c5"].n < N, "it is asked no more once it is out"
    assert standing.decision.proved
    assert [one.state for one in rows["c3"].limits] == [LimitState.KEPT] * 2
    assert rows["c3"].price is None
    assert label(run_all(limited(tmp_path / "free", "best"))) == "c5", "the slow one, else"


def test_that_nobody_keeps_the_limits_is_an_answer(tmp_path: Path) -> None:
    limits: Json = {"subject_to": {"seconds_mean": "<= 0.1"}}
    standing = run_all(limited(tmp_path, limits))
    assert standing.winner is None
    assert standing.decision.proved
    assert standing.asked < standing.grid
    assert standing.decision.said[0] == "No candidate keeps the limits, proved at 90 %."


@pytest.mark.parametrize("seed", range(4))
def test_of_equals_that_keep_all_limits_the_cheapest_is_named(tmp_path: Path, seed: int) -> None:
    """Elsewhere, too; the rule's own order of equals is random."""
    prices = {"dear": 0.02, "cheap": 0.01, "mid": 0.015, "bad": 0.001}
    calls = [
        {"candidate": name, "example": f"e{k}", "text": "no", "usd": usd, "seconds": 0.1}
        | ({"text": "yes"} if name != "bad" and k % 5 else {})
        for name, usd in prices.items()
        for k in range(20)
    ]
    path = study_file(
        tmp_path,
        {"rows": [{"id": f"e{k}", "q": f"{k}", "a": "yes"} for k in range(20)], "calls": calls},
        models=[{"model": f"replay/{name}", "label": name} for name in prices],
        providers={"replay": {"path": "calls.jsonl"}},
        dataset={"path": "rows.jsonl", "target": "a"},
        scorer="exact",
        objective={"subject_to": {"seconds_mean": "<= 5"}},
        selector={"seed": seed},
    )
    decision = run_all(path).decision
    assert (decision.take, set(decision.as_good)) == ("cheap", {"mid", "dear"})
    assert decision.cheaper is None


def test_a_winner_that_may_break_a_limit_is_not_called_established(tmp_path: Path) -> None:
    standing = run_all(limited(tmp_path, LIMITS, budget={"answers": 40}))
    assert standing.winner is not None
    assert not standing.decision.proved
    assert any(one.state is LimitState.OPEN for one in standing.winner.limits)


def test_a_limit_of_an_unknown_measure_names_those_there_are(tmp_path: Path) -> None:
    path = limited(tmp_path, {"subject_to": {"rudee": "<= 0.1"}})
    with pytest.raises(ConfigError, match=r"rudee.*is not one of `measures`.*rude"):
        run_all(path)


def test_a_mean_length_is_bounded_by_the_most_tokens_of_a_reply() -> None:
    run = Tracked(LENGTH, {"max_tokens": 100}, {}, {"max_tokens": 20})
    run.asked(3 * 150)
    run.take(*(told(seq, 1.0, tokens=40) for seq in range(3 * 150)))
    found = run.finding("<= 60")
    assert found.means.mean.tolist() == pytest.approx([40] * 3)
    assert found.kept.tolist() == [True, False, False], "no bound; longer than its bound"
    assert 30 < found.means.lower[0] < 40 < found.means.upper[0] < 55
    assert np.isinf(found.means.upper[1:]).all()


@pytest.mark.parametrize(("objective", "low"), [("best", False), (LIMITS, True)])
def test_measures_are_shown_as_means_and_less_is_better_where_they_are_limited(
    tmp_path: Path, objective: Json, low: bool
) -> None:
    standing = run_all(limited(tmp_path, objective, budget={"answers": 90}))
    axes = {axis["key"]: axis["low"] for axis in chart_axes(standing)}
    assert axes["measure: rude"] is low
    assert axes["latency"] is True
    assert "price" not in axes or axes["price"] is True
    for row in standing.rows:
        [rude] = row.measures
        assert (rude.name, rude.n) == ("rude", row.n)
        assert values_of(row)["measure: rude"] == rude.mean
        if row.candidate.label == "c4" and rude.n > 5:
            assert rude.mean is not None
            assert rude.mean > 0.1
    assert dict(facts(standing))["Measures"].startswith("rude ")
