"""Gates with slices: order of asking, verdicts by slice, error rates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Stop
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.non_inferiority import Comparison, Conclusion, Question
from tests.gate.test_pairs import MARGIN, drive, gate, plan_of, replayed
from tests.support.commands import Command
from tests.support.gate_worlds import World, simulate_sliced, wrong_verdicts, wrongly_worse
from tests.support.rates import RateCheck
from tests.support.studies import write_study


def in_line(sizes: tuple[int, ...], n_challengers: int = 1) -> Pairs:
    """A gate whose slices follow one another in the numbers of the examples."""
    ends = np.cumsum((0, *sizes)).tolist()
    groups = [range(*ends[k : k + 2]) for k in range(len(sizes))]
    return gate(n_challengers, ends[-1], groups=groups)


def test_small_slices_are_asked_more_at_the_start_and_alone_at_the_end() -> None:
    sizes = (900, 70, 30)
    pairs = in_line(sizes)
    first = [ask.pair.example for ask in pairs.ask(120) if ask.pair.candidate == 0]
    counts = np.histogram(first, bins=(0, 900, 970, 1000))[0]
    assert counts.min() >= 15, "60 examples, by their share 54, 4 and 2"
    scores = np.ones((2, 1000))
    asked = drive(pairs := in_line(sizes), scores)
    assert plan_of(pairs).challengers[1].verdict is Conclusion.PASSED
    rows = [np.unique(pairs.table.example[pairs.table.candidate == row]) for row in (0, 1)]
    assert np.array_equal(rows[0], rows[1]), "both answered the same examples"
    assert asked < 2 * 400, "large slices are left once they are decided"
    assert np.histogram(rows[0], bins=(0, 900, 970, 1000))[0][2] >= 25


def test_every_part_takes_its_examples_in_one_random_order() -> None:
    # the last slice shares some with the others
    pairs = gate(1, 100, groups=(range(60), range(60, 100), range(0, 100, 3)), seed=3)
    over_all, *in_slices = (list(part.examples) for part in plan_of(pairs).parts)
    for own in in_slices:
        assert [j for j in over_all if j in own] == own
    scores = np.random.default_rng(0).random((2, 100))
    drive(pairs, scores, 16, lambda score: 1.0 if score > 0.5 else 20.0)
    for part, comparison in zip(
        plan_of(pairs).parts, plan_of(pairs).challengers[1].comparisons, strict=True
    ):
        seen = list(part.examples[: comparison.n])
        assert comparison.gains == pytest.approx((scores[1] - scores[0])[seen])


def simpson() -> FloatArray:
    """Scores on 200 easy and 800 hard examples of a baseline, a challenger that is worse by .2 and
    by .1, and one that is worse by the margin on the hard ones, which takes all of them to show.
    """
    scores = np.zeros((3, 1_000))
    scores[0, :190] = scores[1, :150] = scores[2, :190] = 1.0
    scores[0, 200:280] = scores[2, 200:240] = 1.0
    return scores


def test_a_challenger_that_saw_easier_examples_is_still_seen_to_be_worse() -> None:
    """Simpson's paradox: the better mean of all it answered, and worse in every slice."""
    scores, pairs = simpson(), in_line((200, 800), 2)
    drive(pairs, scores)
    means = pairs.table.total / pairs.table.n_scored
    assert means[1] > means[0], "the baseline went on with the hard examples for the other one"
    assert plan_of(pairs).challengers[1].verdict is Conclusion.FAILED
    for part, comparison in zip(
        plan_of(pairs).parts, plan_of(pairs).challengers[1].comparisons, strict=True
    ):
        members = list(part.examples)
        assert (scores[1] - scores[0])[members].mean() < -MARGIN
        assert np.mean(comparison.gains) < 0.0


def test_one_bad_slice_fails_the_challenger_though_the_mean_is_better() -> None:
    scores = np.ones((2, 500))
    scores[0, :200] = 0.0  # better on the large slice
    scores[1, 450:] = 0.0  # worse on the small one
    pairs = in_line((450, 50))
    drive(pairs, scores)
    over_all, large, small = plan_of(pairs).challengers[1].comparisons
    assert plan_of(pairs).challengers[1].verdict is Conclusion.FAILED
    assert small.verdict is Conclusion.FAILED
    assert over_all.verdict is not Conclusion.FAILED
    assert large.verdict is not Conclusion.FAILED
    assert pairs.stopped() is Stop.VERDICT


def test_a_log_that_is_replayed_leads_to_the_same() -> None:
    scores = (np.random.default_rng(7).random((3, 300)) < 0.8).astype(float)
    replayed(in_line((200, 60, 40), 2), in_line((200, 60, 40), 2), scores)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    ("differences", "challengers"),
    [
        ((-MARGIN,) * 3, 1),
        ((0.0,) * 3, 1),
        ((0.0, -MARGIN, -MARGIN), 3),
        ((0.1, 0.1, -0.075), 1),  # one slice alone keeps it from passing
        ((0.1, 0.1, -0.075), 3),
        ((0.02, 0.02, -0.1), 1),
    ],
)
def test_verdicts_and_statements_of_worse_are_ever_wrong_at_most_as_often_as_allowed(
    differences: tuple[float, ...], challengers: int, check_rate: RateCheck
) -> None:
    # Binomial tests at 1e-6 of the joint error rate .05, looking after every example.
    sizes, worlds = (200, 100, 40), 600
    parts = [World(n, d, 0.15, challengers) for n, d in zip(sizes, differences, strict=True)]
    found = simulate_sliced(parts, MARGIN, 0.05, worlds, np.random.default_rng(21))
    check_rate(int(wrong_verdicts(found).sum()), worlds, 0.05)
    check_rate(int(wrongly_worse(found).sum()), worlds, 0.05)


def test_to_pass_a_slice_takes_no_more_for_there_being_others_and_to_fail_it_does() -> None:
    found = []
    for parts in (1, 10):
        passing, failing = (Comparison(Question(0.1, False, 0.05, 1, 400, parts)) for _ in "pf")
        for t in range(100):
            passing.push((1.0, 1.0), (1.0, 1.0))
            failing.push((float(t % 2),) * 2, (1.0, 1.0))
        found.append((passing.passed_after, failing.failed_after))
    (alone, failed_alone), (among, failed_among) = found
    assert alone == among < 100
    assert failed_alone < failed_among < 100


def study(folder: Path) -> None:
    """c1 is as good as c0 on the whole, and worse on the German quarter of 400 examples."""
    n = 400
    write_study(folder, n_candidates=2, n_examples=n)
    rng = np.random.default_rng(2)
    german = np.arange(n) % 4 == 0
    baseline = (rng.random(n) < 0.8).astype(float)
    challenger = np.where(german, baseline * (rng.random(n) < 0.3), 1.0)
    rows = [
        {"candidate": f"c{i}", "example": f"e{j}", "score": score}
        for i, scores in enumerate((baseline, challenger))
        for j, score in enumerate(scores.tolist())
    ]
    examples = [
        {"id": f"e{j}", "question": f"q{j}", "language": "de" if german[j] else "en"}
        for j in range(n)
    ]
    for name, records in (("scores", rows), ("questions", examples)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)))


@pytest.mark.slow
def test_verdicts_by_slice_in_all_outputs(tmp_path: Path, command: Command) -> None:
    study(tmp_path)
    asked = ("gate", "study.json", "-q", "--baseline", "c0", "--margin", "0.05")
    done = command(*asked)
    assert done.code == 0, done.out
    files = ("--markdown", "summary.md", "--by", "language", "--set", "gate.slice_margin=0.1")
    done = command(*asked, *files)
    assert done.code == 5, done.out
    assert "FAIL: c1 is worse by more than 10 points on language=de: " in done.out
    assert "over all examples" in done.out
    assert "all verdicts together are right" in done.out
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "language=de | ❌ worse by more than 10 points |" in summary
    assert summary.startswith("### ❌ Gate recorded: worse by more than 10 points")
    found = command("show", "--json").json["challengers"][0]
    assert found["verdict"] == "failed"
    verdicts = {one["slice"]: one["verdict"] for one in found["slices"]}
    assert verdicts["language=de"] == "failed"
    assert {one["of_examples"] for one in found["slices"]} == {100, 300}
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "runs").glob("*.html")]
    assert ["· language=de" in page for page in pages].count(True) == 1


def test_an_unknown_field_is_refused_before_anything_is_paid(
    tmp_path: Path, command: Command
) -> None:
    study(tmp_path)
    done = command("gate", "study.json", "-q", "--baseline", "c0", "--by", "lang")
    assert done.code == 2
    assert "no example has the field `lang`" in done.err
    assert "language" in done.err
