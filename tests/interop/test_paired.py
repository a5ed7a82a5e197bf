"""Candidates in files on the examples that they share, beside paired tests worked out by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from math import comb, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.paired import compare_files
from tests.interop.test_golden_files import INSPECT, LM_EVAL, PROMPTFOO
from tests.support.commands import invoke

Capsys = pytest.CaptureFixture[str]
Rows = Sequence[Mapping[str, object]]


def table(path: Path, rows: Rows) -> str:
    """Write a CSV file; return its name."""
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def answers(scores: Sequence[float], **columns: Sequence[object]) -> Rows:
    """Rows of one candidate, without its name: id, score and further columns."""
    return [
        {"id": f"q{i}", "score": score, **{name: one[i] for name, one in columns.items()}}
        for i, score in enumerate(scores)
    ]


def mcnemar(only_a: int, only_b: int) -> float:
    """The exact two-sided p-value of as many examples on which only one is right."""
    n = only_a + only_b
    return min(1.0, 2.0 * sum(comb(n, k) for k in range(min(only_a, only_b) + 1)) / float(2**n))


def paired_t(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean of paired differences, with the textbook's interval for many of them."""
    mean, error = fmean(differences), stdev(differences) / sqrt(len(differences))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return mean, mean - half, mean + half


def test_a_document_that_lm_eval_scored_twice_counts_with_its_mean(tmp_path: Path) -> None:
    """Two documents that are equal, as data sets hold: neither line is dropped."""

    def line(number: int, copy: int, right: bool) -> str:
        doc = {"doc_id": 100 * copy + number, "doc": {"q": number}, "doc_hash": f"{number:03d}h"}
        said = {"resps": [["a"]], "filtered_resps": ["a"], "filter": "none"}
        return json.dumps({**doc, **said, "metrics": ["acc"], "acc": float(right)})

    paths = []
    for name, lines in (
        ("twice", [line(k, copy, copy == 0) for copy in (0, 1) for k in range(10)]),
        ("once", [line(k, 0, k < 5) for k in range(10)]),
    ):
        path = tmp_path / name / "samples_t_2026-01-01T00-00-00.jsonl"
        path.parent.mkdir()
        path.write_text("\n".join(lines))
        paths.append(str(path))
    [found] = compare_files(paths).comparisons
    assert (found.n, found.mean_a, found.mean_b) == (10, 0.5, 0.5)


def test_a_score_beyond_its_range_by_rounding_alone_is_no_other_kind_of_number(
    tmp_path: Path,
) -> None:
    ours = table(tmp_path / "a.csv", answers([1.0000000000000002, -1e-17] * 10))
    theirs = table(tmp_path / "b.csv", answers([1.0, 1.0] * 10))
    [found] = compare_files([ours, theirs]).comparisons
    assert (found.mean_a, found.mean_b) == (0.5, 1.0)
    beyond = table(tmp_path / "c.csv", answers([1.0000001, 0.0] * 10))
    with pytest.raises(ConfigError, match=r"'score' is 1\.0000001; choose another"):
        compare_files([ours, beyond])


@pytest.mark.parametrize(
    ("only_a", "only_b", "verdict"),
    [(10, 60, "b"), (60, 10, "a"), (24, 25, "about equal"), (0, 0, "about equal")],
)
def test_two_tables_agree_with_a_paired_test_by_hand(
    tmp_path: Path, only_a: int, only_b: int, verdict: str
) -> None:
    rest = 300 - only_a - only_b
    a = [1.0] * only_a + [0.0] * only_b + [float(i % 3 > 0) for i in range(rest)]
    b = [0.0] * only_a + [1.0] * only_b + [float(i % 3 > 0) for i in range(rest)]
    paths = [table(tmp_path / f"{n}.csv", answers(s)) for n, s in (("old", a), ("new", b))]
    [found] = compare_files(paths).comparisons

    assert (found.a, found.b, found.n, found.metric) == ("old", "new", 300, "score")
    assert (found.only_a, found.only_b) == (only_a, only_b)
    gap = (only_a - only_b) / 300
    assert found.seen == pytest.approx((gap, gap, gap)), "all of these examples were seen"
    assert found.verdict == verdict
    assert (mcnemar(only_a, only_b) < 0.05) == (verdict in ("a", "b"))
    mean, lower, upper = paired_t([x - y for x, y in zip(a, b, strict=True)])
    assert found.difference.value == pytest.approx(mean)
    # valid whenever one looked, so wider than the textbook's, which is valid once
    assert found.difference.lower <= lower <= upper <= found.difference.upper
    assert found.difference.upper - found.difference.lower < 2 * (upper - lower) + 0.06


def test_graded_scores_agree_with_a_paired_t_test(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    a = rng.beta(4, 3, 400)
    b = np.clip(a - 0.06 + rng.normal(0, 0.1, 400), 0, 1)
    paths = [table(tmp_path / f"{n}.csv", answers(s.tolist())) for n, s in (("one", a), ("two", b))]
    [found] = compare_files(paths).comparisons
    mean, lower, upper = paired_t((a - b).tolist())
    assert found.difference.value == pytest.approx(mean)
    assert found.verdict == "a"
    assert found.difference.lower <= lower < upper <= found.difference.upper


def test_rows_are_paired_whatever_their_order_and_what_is_in_one_file_only_is_counted(
    tmp_path: Path, capsys: Capsys
) -> None:
    scores = [float(i % 4 > 0) for i in range(60)]
    rows = [*answers(scores)]
    one = table(tmp_path / "a.csv", rows[:50])
    # no answer: an empty score is not wrong
    other = table(tmp_path / "b.csv", [*reversed(rows[5:59]), {"id": "q59", "score": ""}])
    [found] = compare_files([one, other]).comparisons
    assert (found.n, found.n_examples, found.unpaired_a, found.unpaired_b) == (45, 45, 5, 10)
    assert (found.only_a, found.only_b, found.verdict) == (0, 0, "about equal")
    done = invoke(capsys, "compare", one, other)
    assert done.code == 0
    assert "45 of 45 examples were scored for both; only they count here" in done.out
    assert "5 examples only in A's (a)" in done.out
    assert "10 examples only in B's (b)" in done.out
    said = " ".join(done.out.split())
    assert "on these 45 examples A and B score alike" in said
    assert "on new examples like these A and B differ by 0 points, between -" in said
    assert ": about equal; 45 examples can reveal" in said


def test_missing_answers_widen_what_is_said_of_these_examples(tmp_path: Path) -> None:
    rows = [
        {"candidate": c, "example": i, "score": s}
        for c, s in (("a", 1), ("b", 0))
        for i in range(40)
    ]
    whole = table(tmp_path / "whole.csv", rows)
    part = table(
        tmp_path / "part.csv", [*rows[:-4], *({**row, "score": None} for row in rows[-4:])]
    )
    [full], [less] = (compare_files([path]).comparisons for path in (whole, part))
    assert full.seen == pytest.approx((1, 1, 1))
    assert (less.n, less.seen.value) == (36, 1.0)
    assert less.seen.lower == pytest.approx(0.9, abs=0.01), "four may be right"


def test_examples_with_other_ids_are_paired_by_their_input(tmp_path: Path) -> None:
    rows = [{"id": i, "question": f"What is {i}?", "score": i % 2} for i in range(40)]
    moved = [{**row, "id": 39 - i} for i, row in enumerate(rows)]
    names = [table(tmp_path / "a.csv", rows), table(tmp_path / "b.csv", moved)]
    found = compare_files(names)
    assert (found.comparisons[0].n, found.comparisons[0].flips) == (40, ())
    without = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    found = compare_files([names[1], table(tmp_path / "c.csv", without)])
    assert (found.comparisons[0].n, found.comparisons[0].flips) == (40, ())
    # the prompt is part of the input: ids say what is the same, and that is told
    worded = [{**row, "question": f"Think. {row['question']}"} for row in rows]
    found = compare_files([names[0], table(tmp_path / "d.csv", worded)])
    assert found.comparisons[0].n == 40
    assert "40 examples of d with the id of another input of a" in found.notes[0]


def test_a_cluster_is_one_draw(tmp_path: Path, capsys: Capsys) -> None:
    documents = [f"d{i // 10}" for i in range(300)]
    # of 30 documents A is right on 20 and B on 10, on all of their questions
    a = [float(i // 10 % 3 > 0) for i in range(300)]
    b = [float(i // 10 % 3 == 0) for i in range(300)]
    names = [
        table(tmp_path / f"{n}.csv", answers(s, document=documents))
        for n, s in (("a", a), ("b", b))
    ]
    [plain], [found] = (
        compare_files(names, cluster=cluster).comparisons for cluster in (None, "document")
    )
    assert (plain.verdict, found.verdict) == ("a", "undecided")
    assert (found.n, found.n_units, found.unit) == (300, 30, "cluster")
    assert found.difference.value == plain.difference.value == pytest.approx(1 / 3)
    mean, lower, upper = paired_t([1.0] * 20 + [-1.0] * 10)
    assert found.difference.value == pytest.approx(mean)
    assert found.difference.lower <= lower <= upper <= found.difference.upper
    done = invoke(capsys, "compare", *names, "--cluster", "document")
    assert "on new clusters like these A is ahead of B by 33.3 points" in done.out
    assert "not proved; 30 clusters can reveal a difference of about 58 points" in " ".join(
        done.out.split()
    )
    assert done.code == 3
    wrong = invoke(capsys, "compare", *names, "--cluster", "dokument")
    assert wrong.code == 2
    assert "no field 'dokument'" in " ".join(wrong.err.split())
    assert "did you mean `document`?" in " ".join(wrong.err.split())


def test_epochs_of_a_sample_are_one_draw(tmp_path: Path) -> None:
    def log(name: str, right: Callable[[int, int], bool]) -> str:
        samples = [
            {
                "id": i,
                "epoch": epoch,
                "scores": {"match": {"value": "C" if right(i, epoch) else "I"}},
            }
            for i in range(50)
            for epoch in range(1, 5)
        ]
        spec = {"task": "t", "model": name}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"version": 2, "eval": spec, "samples": samples}))
        return str(path)

    names = [log("a", lambda i, epoch: (i + epoch) % 4 > 0), log("b", lambda i, _: i % 2 == 0)]
    [found] = compare_files(names).comparisons
    assert (found.n, found.n_units) == (50, 50)
    assert (found.mean_a, found.mean_b) == (0.75, 0.5)
    mean, lower, upper = paired_t([0.75 - (i % 2 == 0) for i in range(50)])
    assert found.difference.value == pytest.approx(mean)
    assert found.difference.lower <= lower < upper <= found.difference.upper


def test_metrics_and_candidates_share_the_error_probability(tmp_path: Path, capsys: Capsys) -> None:
    rng = np.random.default_rng(1)
    names = [
        table(
            tmp_path / f"{n}.csv",
            [
                {"id": i, "right": int(rng.random() < p), "polite": rng.random(), "tokens": 90}
                for i in range(200)
            ],
        )
        for n, p in (("base", 0.5), ("better", 0.9), ("worse", 0.1))
    ]
    found = compare_files(names)
    assert [(one.b, one.metric) for one in found.comparisons] == [
        (name, metric) for name in ("better", "worse") for metric in ("right", "polite")
    ]
    assert [one.verdict for one in found.comparisons[::2]] == ["b", "a"]
    alone = compare_files(names[:2], ["right"]).comparisons[0]
    assert found.comparisons[0].difference.lower < alone.difference.lower
    assert (alone.confidence, found.comparisons[0].confidence) == (0.95, 0.95)
    out = tmp_path / "summary.md"
    done = invoke(capsys, "compare", *names, "--markdown", out)
    assert done.code == 5, "one is worse"
    text = " ".join(done.out.split())
    assert "better, right better 200" in text
    assert "worse, right worse 200" in text
    assert "right: on these 200 examples better is ahead of base by" in text
    page = out.read_text()
    assert page.startswith("### ❌ Comparison with base: worse\n")
    assert "| better, right | ✅ better | 200 |" in page
    assert "| worse, right | ❌ worse | 200 |" in page
    two = invoke(capsys, "compare", *names[:2], "--metric", "right", "--json")
    as_json = json.loads(two.out)
    assert (two.code, as_json["verdict"]) == (0, "passed")
    assert as_json["comparisons"][0]["verdict"] == "b"
    pair = invoke(capsys, "compare", *names, "--between", "worse", "better", "--metric", "right")
    assert "A = worse\nB = better\nscore: right" in pair.out


def test_a_candidate_in_two_files_is_told_apart_by_them_and_tasks_are_joined(
    tmp_path: Path,
) -> None:
    rows = [{"candidate": "gpt", "example": i, "score": i % 2} for i in range(40)]
    names = [
        table(tmp_path / "before.csv", rows),
        table(tmp_path / "after.csv", [{**row, "score": 1} for row in rows]),
    ]
    [found] = compare_files(names).comparisons
    assert (found.a, found.b) == tuple(f"gpt ({name})" for name in names)
    other = table(
        tmp_path / "other.csv", [{**row, "example": f"x{i}"} for i, row in enumerate(rows)]
    )
    with pytest.raises(ConfigError, match="there is one candidate, gpt, and two are compared"):
        compare_files([names[0], other])


def test_logs_in_their_documented_forms() -> None:
    inspect = compare_files(INSPECT, ["match"]).comparisons[0]
    assert (inspect.a, inspect.b) == ("mockllm/good", "mockllm/weak")
    assert (inspect.n, inspect.scored_b, inspect.only_a, inspect.only_b) == (3, 4, 2, 0)
    found = compare_files(LM_EVAL)
    assert {one.metric for one in found.comparisons} == {
        "exact_match,strict-match",
        "exact_match,first-number",
    }
    assert [one.n for one in found.comparisons] == [4, 4]
    promptfoo = compare_files(PROMPTFOO)
    assert all(one.metric == "score" for one in promptfoo.comparisons)


def test_promptfoo_before_and_after_a_change_of_the_tests(tmp_path: Path) -> None:
    def results(name: str, provider: str, least: int) -> str:
        rows = [
            {
                "promptIdx": 0,
                "testIdx": i,
                "vars": {"n": i, "topic": f"t{i % 2}"},
                "testCase": {"assert": [{"type": "contains", "value": str(least)}]},
                "provider": {"id": provider},
                "prompt": {"raw": "{{n}}"},
                "success": i >= least,
                "score": float(i >= least),
                "response": {"output": f"answer {i}"},
            }
            for i in range(40)
        ]
        path = tmp_path / name
        path.write_text(json.dumps({"evalId": name, "results": {"version": 3, "results": rows}}))
        return str(path)

    names = [results("a.json", "openai:x", 10), results("b.json", "openai:y", 15)]
    [found] = compare_files(names).comparisons
    assert (found.n, found.only_a, found.only_b) == (40, 5, 0), "joined by their variables"
    assert compare_files(names, cluster="topic").comparisons[0].n_units == 2


@pytest.mark.parametrize(
    ("files", "options", "problem"),
    [
        (("a.csv", "a.csv"), (), "a.csv is the same file as a.csv; give each file once"),
        (("a.csv", "link.csv"), (), "link.csv is the same file as a.csv"),
        (("a.csv",), (), "there is one candidate, a, and two are compared; give a file"),
        (("wide.csv",), (), "if x and y are candidates, write a row for each, with columns can"),
        (("a.csv", "far.csv"), (), "have no example in common: no id is in both (here 'q0', there"),
        (("a.csv", "other.csv"), (), "different metrics, score and grade; score one as the other"),
        (
            ("a.csv", "b.csv"),
            ("--metric", "skore"),
            "no score is called 'skore'; did you mean `sco",
        ),
        (
            ("a.csv", "high.csv"),
            (),
            "a score must be in [0, 1], higher is better, but 'score' is 7",
        ),
        (
            ("a.csv", "words.csv"),
            (),
            "column `score` must be a number, got 'good'; write it as",
        ),
        (("a.csv", "none.csv"), (), "there is no file 'none.csv'; check the name"),
        (("a.csv", "broken.json"), (), "broken.json: not JSON"),
        (("a.csv", "broken.eval"), (), "broken.eval: a damaged Inspect log"),
        (("a.csv", "latest"), (), "'latest' is no file, and is to be compared with one"),
        (("a.csv", "b.csv"), ("--between", "a", "c"), "no file has a candidate 'c'; there are `a`"),
        (("a.csv", "void.csv"), (), "no example was scored for both 'a' and 'void'"),
        (("run", "other"), ("--metric", "x"), "--metric, --cluster and --markdown are for files"),
        (("one", "two", "three"), (), "name two candidates (--between A B), or a second run"),
    ],
)
def test_errors_name_file_rule_value_and_way_out(
    tmp_path: Path, capsys: Capsys, files: Sequence[str], options: Sequence[str], problem: str
) -> None:
    rows = answers([0.0, 1.0, 1.0])
    table(tmp_path / "a.csv", rows)
    (tmp_path / "link.csv").symlink_to("a.csv")
    table(tmp_path / "b.csv", answers([1.0, 1.0, 1.0]))
    table(tmp_path / "far.csv", [{"id": f"z{i}", "score": 1} for i in range(3)])
    table(tmp_path / "other.csv", [{"id": f"q{i}", "grade": 1} for i in range(3)])
    table(tmp_path / "wide.csv", [{"id": f"q{i}", "x": 1, "y": 0} for i in range(3)])
    table(tmp_path / "high.csv", answers([7.0, 0.0, 1.0]))
    table(tmp_path / "words.csv", [{"id": "q0", "score": "good"}])
    table(tmp_path / "void.csv", [{"id": "q0", "score": ""}, {"id": "x", "score": 0}])
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "broken.eval").write_text("no zip")
    done = invoke(capsys, "compare", *files, *options, folder=tmp_path)
    assert done.code == 2, done.out
    assert problem in " ".join(done.err.split())


@pytest.mark.slow
def test_false_verdicts_are_as_rare_as_they_say(tmp_path: Path) -> None:
    """Of three equal candidates and two metrics, none is proved to differ, but in 5 % of the files.

    12 or more of 100 at a true rate of 0.05 have probability 0.4 %; the intervals are valid at all
    times, so that far fewer are expected.
    """
    rng = np.random.default_rng(11)
    wrong = 0
    for number in range(100):
        names = [
            table(
                tmp_path / f"{n}{number}.csv",
                [
                    {"id": i, "x": int(rng.random() < 0.7), "y": float(rng.random() < 0.2)}
                    for i in range(60)
                ],
            )
            for n in "abc"
        ]
        found = compare_files(names).comparisons
        wrong += any(one.verdict in ("a", "b") for one in found)
        assert len(found) == 4
    assert wrong < 12
