"""The decision of a run: one value, made once, that everything people read agrees with."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator

from bestarm_agent.cli.progress import CandidateTable
from bestarm_agent.cli.result_output import print_result, standing_json
from bestarm_agent.cli.run import exit_code
from bestarm_agent.config.goal_specs import ObjectiveSpec
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import (
    LimitState,
    ObjectiveResult,
    ProblemKind,
    Row,
    RowLimit,
    Standing,
    Status,
    estimate,
    interval,
)
from bestarm_agent.engine.scorer_signs import ScorerFault
from bestarm_agent.report.html_page import render_report
from bestarm_agent.report.markdown import markdown
from bestarm_agent.report.words import limit_text
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.view.documents import standing_page
from tests.support.commands import invoke
from tests.support.standings import (
    changed,
    selector_with,
    standing_of,
    standing_with,
    state_of,
)
from tests.support.studies import run_all, study_file, write_study

Capsys = pytest.CaptureFixture[str]
REJECTS = ScorerFault("`exact` rejects right answers", "try `contains`", "--set", rejects=True)


def drawn(seed: int) -> Standing:
    """A standing as a run may leave it, with whatever may be known and missing."""
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(1, 7)), int(rng.choice([5, 40, 300]))
    labels = [f"m{i}/p" for i in range(k)]
    rates = rng.choice([0.0, 0.3, 0.7, 0.75, 1.0], k)
    seen = [int(rng.choice([0, 3, n // 2, n])) for _ in labels]
    scores = [(rng.random(m) < p).astype(float).tolist() for m, p in zip(seen, rates, strict=True)]
    broken = {labels[0]: "HTTP 404"} if rng.random() < 0.2 else {}
    standing = standing_with(labels, scores, n_examples=n, broken=broken)
    rows = []
    for row in standing.rows:
        price = None if rng.random() < 0.3 else float(rng.choice([0.0, 0.1, 1.0, 5.0]))
        void = int(rng.integers(0, 3)) if row.n < n else 0
        rows.append(replace(row, usd_per_1000=price, void=void, is_barred=bool(rng.random() < 0.1)))
    objective, rows = sought(np.random.default_rng([seed, 1]), rows)
    found = changed(
        standing,
        rows=tuple(rows),
        end=None if rng.random() < 0.2 else str(rng.choice([end.value for end in End])),
        level=bool(rng.random() < 0.3),
        for_new=bool(rng.random() < 0.3),
        within=float(rng.choice([0.0, 0.05])),
        scored_by=str(rng.choice(["rule", "judge rubric", "people"])),
        suspect=REJECTS if rng.random() < 0.1 else None,
        scorer_trusted=bool(rng.random() < 0.5),
        spent=Spend(calls=int(rng.integers(1, 6))),
        budget=Budget(calls=4) if rng.random() < 0.3 else Budget(),
        guarantee=Guarantee.HEURISTIC if rng.random() < 0.2 else standing.guarantee,
    )
    if objective is not None and found.guarantee is Guarantee.HEURISTIC:
        objective = replace(objective, established=False)  # nothing is, without intervals
    return changed(found, objective=objective)


def sought(rng: Generator, rows: list[Row]) -> tuple[ObjectiveResult | None, list[Row]]:
    """Draw an objective, mostly none, with its answer; a bar is a limit of each row."""
    if rng.random() < 0.7:
        return None, rows
    spec = ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.05)
    if rng.random() < 0.5:
        spec = ObjectiveSpec(at_least=0.6)
        (bar,) = spec.constraints
        states = rng.choice(list(LimitState), len(rows))
        rows = [
            replace(row, limits=(RowLimit(bar, Measure(0.5, 0.0, 1.0), LimitState(state)),))
            for row, state in zip(rows, states.tolist(), strict=True)
        ]
    able = [row.index for row in rows if row.n and not row.is_broken]
    answer = int(rng.choice(able)) if able and rng.random() < 0.8 else None
    margin = float(rng.choice([0.0, 0.04, 0.3]))
    # that nobody is good enough can be proved of a bar alone: somebody is always the best
    established = bool(rng.random() < 0.5) and (answer is not None or spec.at_least is not None)
    return ObjectiveResult(spec, answer, established, margin, 0.95), rows


@pytest.mark.parametrize("seed", range(200))
def test_all_that_people_and_programs_read_is_one_decision(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = drawn(seed)
    decision, rows = standing.decision, standing.rows
    # each candidate stands in exactly one group, and the rows say which
    named = [] if decision.take is None else [decision.take]
    groups = [
        *(named, decision.as_good, decision.undecided, decision.worse),
        [one.label for one in decision.unmeasured],
    ]
    assert Counter(label for group in groups for label in group) == Counter(
        row.candidate.label for row in rows
    )
    taken = [r.candidate.label for r in rows if r.status in (Status.TAKE, Status.LEADING)]
    assert taken == named
    # nobody without a score is named; nothing is so far once it has ended
    n = {row.candidate.label: row.n for row in rows}
    assert all(n[label] for group in (named, decision.as_good) for label in group)
    said = " ".join(decision.said)
    if standing.end is not None:
        assert "so far" not in said
        assert Status.LEADING not in {row.status for row in rows}
        assert decision.next is not None
    # the sentences name it, and claim no proof that is not there
    if decision.take is not None:
        assert decision.take in said
        if not decision.proved:
            assert "would not change that" not in said
    else:
        assert decision.problem is not None or not any(row.n for row in rows) or "No " in said
        assert not decision.proved or "No candidate scores at least 60 %, proved" in said
        assert decision.cheaper is None
        assert decision.chance is None
    # the word of a sentence is that of the table
    words = {row.status for row in rows if row.candidate.label in decision.as_good}
    assert words <= {Status.EQUAL} or words <= {Status.GOOD}
    assert ("About as good" in said) <= (Status.EQUAL in words)
    assert ("Good enough" in said) <= (Status.GOOD in words)
    if decision.cheaper is not None:
        assert decision.cheaper.label in decision.as_good
        assert decision.cheaper.price < 1.0
        assert decision.cheaper.label in said
    if standing.guarantee is Guarantee.HEURISTIC:
        assert not decision.proved
    if standing.scored_by.startswith("judge") and decision.take is not None:
        assert "by the judge rubric" in said
    # every front end shows this decision
    found = json.loads(json.dumps(standing_json(standing)))["decision"]
    assert (found["take"], found["said"]) == (decision.take, list(decision.said))
    assert [*found["as_good"], *found["undecided"]] == [*decision.as_good, *decision.undecided]
    assert found["proved"] is decision.proved
    print_result(standing, as_json=False)
    printed = " ".join(capsys.readouterr().out.split())
    page = render_report(standing, config={}, failures=[], sessions=[])
    plain = html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\xa0", " ")  # before "%"
    shown = standing_page(standing, None, [row.candidate.label for row in rows], 20)
    text = re.sub(r"[\\\u200b]", "", markdown(standing))
    for sentence in decision.said:
        assert " ".join(sentence.split()) in printed
        assert sentence.replace("`", "") in plain
        assert sentence in text.replace("&gt;", ">")
        assert sentence in (shown["verdict"], *shown["lines"])  # type: ignore[misc]
    assert decision.text in repr(standing)
    # a standing that is decided again decides alike
    assert changed(standing).decision == decision


def test_the_property_above_meets_every_group_and_problem() -> None:
    found = [drawn(seed) for seed in range(200)]
    assert {row.status for one in found for row in one.rows} == set(Status)
    kinds = {one.decision.problem.kind for one in found if one.decision.problem is not None}
    assert kinds == set(ProblemKind)
    assert any(drawn(seed).decision.cheaper is not None for seed in range(400, 500))
    assert any(one.decision.chance is not None for one in found)


def halves(right: int, n: int) -> list[float]:
    return [float(x) for x in np.random.default_rng(right).permutation(n) < right]


def ended(*rights: int, n: int = 60, **changes: object) -> Standing:
    """A run over all examples, with so many right answers of each candidate."""
    labels = [f"c{i}" for i in range(len(rights))]
    standing = standing_with(labels, [halves(right, n) for right in rights], n_examples=n)
    return changed(standing, end="exhausted", told=standing.grid, in_flight=0, **changes)


def test_the_leader_is_taken_and_the_cheaper_equal_is_offered_with_its_bound() -> None:
    standing = ended(52, 51, 20)
    rows = [
        replace(row, usd_per_1000={"c0": 0.35, "c1": 0.07, "c2": 0.01}[row.candidate.label])
        for row in standing.rows
    ]
    found = changed(standing, rows=tuple(rows)).decision
    assert (found.take, found.as_good, found.worse) == ("c0", ("c1",), ("c2",))
    assert found.cheaper is not None
    assert found.cheaper.label == "c1"
    assert found.cheaper.price == pytest.approx(0.2)
    first, _, equal, cheaper, *_ = found.said
    assert first == "Take c0: 52 of 60 right, $0.35 per 1,000 calls."
    assert equal == "About as good: c1 (51 of 60 right)."
    assert re.match(r"Cheaper: c1, a fifth of the price; probably at most \d+", cheaper)
    free = tuple(replace(row, usd_per_1000=0.35 * (row.index == 0)) for row in rows)
    assert "Cheaper: c1, which is free; probably" in changed(standing, rows=free).decision.text


def test_whom_nobody_can_beat_is_not_said_to_lose_perhaps() -> None:
    """While a run goes on, or its budget is spent, who may still reach the best one's mean."""
    standing = standing_with(["a", "b"], [halves(45, 60), halves(44, 59)], n_examples=60)
    for end in (None, "budget"):
        said = changed(standing, margin=0.0, end=end, told=119, in_flight=0).decision.said
        assert said[1] == "More calls on these examples would not change that."
        assert said[2] == "1 other (b) may be as good on these examples, but not better."


def test_a_mean_that_rounds_to_all_is_not_said_to_be_all() -> None:
    standing = standing_with(["a", "b"], [halves(998, 1000), halves(500, 1000)], n_examples=2000)
    row = standing.rows[0]
    assert (estimate(row), interval(row)) == ("99 %", "99 to 100 %")
    assert "On new examples like these: 99 % right, between" in standing.decision.text


def test_of_new_examples_nothing_is_said_where_nothing_is_known() -> None:
    said = standing_with(["a", "b"], [[1.0], []], n_examples=60).decision.text
    assert said.startswith("a leads so far: 1 of 1 right.")
    assert "On new examples" not in said


def test_gpu_seconds_are_a_price_where_there_are_no_dollars() -> None:
    standing = ended(52, 51)
    rows = [
        replace(row, gpu_seconds_per_1000={"c0": 800.0, "c1": 80.0}[row.candidate.label])
        for row in standing.rows
    ]
    found = changed(standing, rows=tuple(rows)).decision
    assert found.cheaper is not None
    assert found.cheaper.price == pytest.approx(0.1)
    mixed = [replace(rows[0], usd_per_1000=0.4), rows[1]]
    assert changed(standing, rows=tuple(mixed)).decision.cheaper is None, "no common unit"


def test_who_lacks_answers_is_neither_as_good_nor_untried() -> None:
    """A scorer that fails on half of the answers, and a candidate whose calls all fail."""
    labels, scores = ["a", "b", "c"], [halves(27, 30), halves(20, 30), []]
    standing = standing_with(labels, scores, n_examples=60)
    rows = tuple(replace(row, void=60 - row.n) for row in standing.rows)
    found = changed(standing, rows=rows, end="exhausted", told=180, in_flight=0).decision
    assert (found.take, found.as_good, found.undecided) == ("a", (), ("b",))
    assert [(one.label, one.reason) for one in found.unmeasured] == [
        ("c", "asked, but no answer could be had")
    ]
    assert found.next is not None
    assert found.next.text == "mend what fails, then run again"


def test_whom_the_budget_did_not_reach_is_what_the_next_one_is_for() -> None:
    standing = standing_with(["a", "b"], [[1.0], []], n_examples=60, budget=Budget(answers=1))
    found = changed(standing, spent=Spend(answers=1), in_flight=0, end="budget").decision
    assert found.next is not None
    assert found.next.command == f"bestarm-agent resume {standing.run_id} --budget-answers 1"


def test_good_enough_is_who_is_as_near_to_the_best_as_was_asked_for() -> None:
    spec = ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.05)
    standing = ended(57, 58, 47, objective=ObjectiveResult(spec, 0, True, 0.04, 0.95))
    rows = tuple(replace(row, against=None, is_ruled_out=False) for row in standing.rows)
    found = changed(standing, rows=rows).decision
    assert (found.take, found.as_good) == ("c0", ("c1",))
    assert found.undecided == ("c2",), "18 points below the best"


def test_a_limit_that_is_not_proved_is_not_said_to_be_kept() -> None:
    spec = ObjectiveSpec.model_validate({"subject_to": {"polite": ">= 0.9"}})
    (limit,) = spec.constraints
    standing = ended(52, 20, objective=ObjectiveResult(spec, 0, False, None, 0.95))
    said = {}
    for state in LimitState:
        limits = (RowLimit(limit, Measure(0.95, 0.8, 1.0), state),)
        rows = tuple(replace(row, limits=limits) for row in standing.rows)
        said[state] = changed(standing, rows=rows, separated=False).decision.said[0]
    assert "the best that keeps polite >= 90 %" in said[LimitState.KEPT]
    assert "the best that probably keeps polite >= 90 %" in said[LimitState.OPEN]


@pytest.mark.parametrize(
    ("limit", "mean", "text"),
    [
        ({"polite": ">= 0.945"}, (0.9525, 0.945, 0.953), "95.2 % (94.5 to 95.3 %)"),
        ({"polite": ">= 0.945"}, (0.95, 0.9446, 0.96), "95 % (94 to 96 %)"),
        ({"polite": ">= 0.5"}, (0.6, 0.502, 0.7), "60 % (50 to 70 %)"),
        ({"output_tokens_mean": "<= 20"}, (19.2, 6.0, float("inf")), "19"),
        ({"output_tokens_mean": "<= 19.7"}, (19.1, 6.0, 19.6), "19.1 (6.0 to 19.6)"),
        ({"output_tokens_mean": "<= 20"}, (19.2, 6.0, 31.0), "19 (6 to 31)"),
        ({"seconds_mean": "<= 2"}, (1.5, 1.0, float("inf")), "1.5 s"),
    ],
)
def test_the_ends_of_a_limit_do_not_contradict_it(
    limit: dict[str, str], mean: tuple[float, float, float], text: str
) -> None:
    (bar,) = ObjectiveSpec.model_validate({"subject_to": limit}).constraints
    said = limit_text(RowLimit(bar, Measure(*mean), LimitState.KEPT))
    assert said == f"{bar.text}: proved to be kept; mean {text}"


def test_what_is_proved_of_the_best_under_a_price_is_not_said_of_points_below_it() -> None:
    spec = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls="5")
    standing = ended(55, 10, objective=ObjectiveResult(spec, 0, True, None, 0.95))
    said = " ".join(standing.decision.said)
    assert "proved to be the best there too" in said
    assert "points below" not in said


def test_estimates_have_no_more_digits_than_their_intervals() -> None:
    standing = standing_with(["a", "b"], [[1.0] * 36, [0.0] * 36], n_examples=60)
    text = str(changed(standing, end="separated"))
    assert "100 %" in text
    assert not re.search(r"\d\.\d+ %", text)


def test_a_suspected_scorer_leaves_nobody_to_take_unless_it_is_trusted() -> None:
    suspected = ended(52, 20, suspect=REJECTS)
    found = suspected.decision
    assert (found.take, found.worse, found.proved) == (None, (), False)
    assert found.said[0] == "No winner yet: `exact` rejects right answers."
    assert "try `contains`" in found.said[1]
    assert exit_code(suspected, confidence_asked=False) == 3
    assert changed(suspected, scorer_trusted=True).decision.take == "c0"


def test_nobody_wins_without_a_right_answer() -> None:
    standing = ended(0, 0)
    assert standing.decision.take is None
    assert standing.decision.said[0] == "No winner yet: none of the 120 answers is right."
    assert exit_code(standing, confidence_asked=False) == 3


def test_what_cannot_be_called_is_no_candidate_to_take() -> None:
    standing = standing_with(
        ["a", "b"], [[1.0] * 40, halves(20, 40)], n_examples=90, broken={"a": "HTTP 404"}
    )
    found = changed(standing, end="failures").decision
    assert found.take == "b"
    assert " ".join(found.said).count("HTTP 404") == 1
    assert "Cannot be called: a: HTTP 404." in found.said, "it has scores"
    assert [(one.label, one.reason) for one in found.unmeasured] == [("a", "HTTP 404")]
    assert not found.proved
    both = standing_with(["a", "b"], [[1.0], [1.0]], n_examples=90, broken=dict.fromkeys("ab", "X"))
    assert changed(both, end="failures").decision.said[1].startswith("Stopped: ")


@pytest.mark.parametrize("scores", [[[1.0] * 40, halves(20, 40)], [[], []]])
def test_what_is_refused_for_good_and_ended_the_run_is_said_first(
    scores: list[list[float]],
) -> None:
    why = "openai/m: the account has no credit left"
    standing = standing_with(["a", "b"], scores, n_examples=90, broken=dict.fromkeys("ab", why))
    problem = changed(standing, end="failures").decision.problem
    assert problem is not None
    assert problem.text == (why if scores[0] else f"{why}; no answer has a score")


def test_a_winner_by_a_judge_says_so() -> None:
    found = ended(52, 20, scored_by="judge rubric").decision
    assert found.said[0].startswith("Take c0: 52 of 60 right by the judge rubric")


def test_the_table_and_the_sentence_never_contradict_each_other() -> None:
    """Both are about the same groups, also where the examples were all asked."""
    for rights in ((52, 51, 50), (55, 51, 30), (40, 40, 40), (60, 59, 1)):
        standing = ended(*rights)
        equal = [r.candidate.label for r in standing.rows if r.status is Status.EQUAL]
        assert equal == list(standing.decision.as_good)
        assert CandidateTable(standing, 3) is not None


def test_where_nobody_can_be_better_those_left_may_be_as_good_at_most() -> None:
    standing = standing_with(["c0", "c1"], [halves(52, 60), halves(44, 60)], n_examples=500)
    settled = changed(standing, end="level", told=120, in_flight=0, separated=False, margin=0.0)
    assert settled.decision.undecided == ("c1",)
    assert settled.decision.said[1:3] == (
        "More calls on these examples would not change that.",
        "1 other (c1) may be as good on these examples, but not better.",
    )
    near = changed(settled, margin=0.01).decision
    assert "1 other (c1) is not ruled out, but probably worse." in near.said


def test_a_picture_of_a_run_that_goes_on_says_nothing_of_new_examples() -> None:
    labels, scores = ["a", "b", "c"], [[1.0] * 40, [1.0, 0.0] * 20, [0.0] * 40]
    selector = selector_with(scores, 60)
    state = state_of(labels, 60)
    whole = build_standing(state, selector, "r")
    brief = build_standing(state, selector, "r", of_new=False)
    assert whole.new_examples is not None
    assert all(row.against is not None for row in whole.rows[1:])
    assert brief.new_examples is None
    assert all(row.against is None for row in brief.rows)
    assert [replace(row, against=None, status=Status.WORSE) for row in whole.rows] == [
        replace(row, status=Status.WORSE) for row in brief.rows
    ]


@pytest.mark.parametrize(
    ("budget", "flag"),
    [
        (Budget(answers=9), "answers 9"),
        (Budget(answers=90, calls=10), "calls 10"),
        (Budget(answers=90, tokens=1000), "tokens 1000"),
        (Budget(answers=90, usd=2.5), "usd 2.5"),
        (Budget(answers=90, seconds=90.0), "minutes 1.5"),
    ],
)
def test_more_is_asked_for_by_the_cap_that_ended_the_run(budget: Budget, flag: str) -> None:
    selector = selector_with([[1, 1, 0, 1, 1], [1, 0, 0, 1]], 50)
    spent = Spend(answers=9, calls=10, tokens=1000, usd_nanos=2_500_000_000)
    standing = changed(
        standing_of(["a", "b"], selector, 50),
        budget=budget,
        spent=spent,
        seconds=90.0,
        end="budget",
    )
    advice = standing.decision.next
    assert advice is not None
    assert advice.text == "spend as much again to decide between them"
    assert advice.command == f"bestarm-agent resume {standing.run_id} --budget-{flag}"


def test_a_cap_that_only_the_study_sets_is_not_named() -> None:
    selector = selector_with([[1, 1, 0, 1, 1], [1, 0, 0, 1]], 50)
    standing = changed(
        standing_of(["a", "b"], selector, 50),
        budget=Budget(answers=90, gpu_seconds=60.0),
        spent=Spend(answers=9, calls=9, gpu_seconds=60.0),
        end="budget",
    )
    assert standing.decision.next is not None
    assert standing.decision.next.command is None


def test_only_candidates_with_a_score_are_compared_with_the_winner(tmp_path: Path) -> None:
    changes = {"selector": {"name": "racing"}, "limits": {"in_flight": 1}}
    path = write_study(tmp_path, n_candidates=6, n_examples=40, changes=changes)
    standing = run_all(path, Budget(answers=4))
    assert standing.winner is not None
    rows = [row for row in standing.rows if row is not standing.winner]
    assert sorted(row.n for row in rows) == [0, 0, 1, 1, 1]
    assert all((row.against is None) == (row.n == 0) for row in rows)


@pytest.mark.parametrize("seed", range(6))
def test_of_exactly_equal_candidates_with_all_answers_the_cheapest_is_taken(
    tmp_path: Path, capsys: Capsys, seed: int
) -> None:
    """Which of them leads is drawn by the seed; what they cost decides whom to take."""
    rights = (np.arange(40) % 2, 1 - np.arange(40) % 2, np.arange(40) % 2, np.zeros(40))
    records = [
        {"candidate": f"c{i}", "example": f"e{j}", "score": int(right[j]), "usd": usd}
        for i, (right, usd) in enumerate(zip(rights, (0.003, 0.001, 0.002, 0.0001), strict=True))
        for j in range(40)
    ]
    path = study_file(
        tmp_path,
        {
            "scores": records,
            "questions": [{"id": f"e{j}", "question": f"q{j}"} for j in range(40)],
        },
        name="equal",
        models=[f"replay/c{i}" for i in range(4)],
        prompts=[{"q": "{{ question }}"}],
        dataset="questions.jsonl",
        scorer="recorded",
        providers={"replay": {"path": "scores.jsonl"}},
        selector={"name": "uniform", "stop_when_separated": False, "seed": seed},
    )
    for command in (("select", path, "-q"), ("show",)):
        shown = json.loads(invoke(capsys, *command, "--json", folder=tmp_path).out)
        decision = shown["decision"]
        assert decision["take"] == "c1"
        assert set(decision["as_good"]) == {"c0", "c2"}
        assert decision["worse"] == ["c3"]
        assert decision["cheaper"] is None
        assert shown["rows"][0]["candidate"]["label"] == "c1"


def test_candidates_of_which_all_is_seen_are_not_undecided_when_the_budget_ends() -> None:
    scores = [halves(9, 10), halves(9, 10), halves(4, 5)]
    standing = standing_with(["a", "b", "c"], scores, n_examples=10)
    decision = changed(standing, end="budget", in_flight=0).decision
    assert (decision.take, decision.as_good) == ("a", ("b",)), "no call can part a and b"
    assert decision.undecided == ("c",)


@pytest.mark.parametrize("n", [1, 3])
def test_nobody_is_as_good_as_the_best_because_examples_are_few(tmp_path: Path, n: int) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=n)
    scores = [1.0, 0.0, 1.0]
    records = [
        {"candidate": f"c{i}", "example": f"e{j}", "score": score}
        for i, score in enumerate(scores)
        for j in range(n)
    ]
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    decision = run_all(path).decision
    assert {decision.take, *decision.as_good} == {"c0", "c2"}  # exact ties stay
    assert decision.worse == ("c1",)
