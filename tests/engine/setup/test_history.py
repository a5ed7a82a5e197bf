from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Started, Told
from bestarm_agent.domain.values import Candidate, Example, Outcome, PromptTemplate, Score
from bestarm_agent.engine.setup import history
from bestarm_agent.engine.setup.history import (
    described,
    learn_once,
    past_scores,
    recorded_history,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.history import Factors, HistoryModel, Validation
from bestarm_agent.store.run_state import RunState, fold

FloatArray = NDArray[np.float64]

EXAMPLES = [Example(f"e{j}", {"question": f"what is {j}?"}, str(j)) for j in range(40)]


def by_ease(n_rows: int, seed: int = 0) -> FloatArray:
    """0/1 scores on all examples; some are easy, some hard."""
    rng = np.random.default_rng(seed)
    ease = 3 * np.random.default_rng(99).normal(size=len(EXAMPLES))
    return (rng.random((n_rows, len(ease))) < 1 / (1 + np.exp(-ease))).astype(float)


def candidate(name: str) -> Candidate:
    return Candidate("fake", name, PromptTemplate("plain", text="{{ question }}"))


def run_of(scores: FloatArray, examples: list[Example], prefix: str = "m") -> RunState:
    """A finished run with these scores; NaN was never asked."""
    events: list[Event] = [
        Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, "."),
        CandidatesAdded(tuple(candidate(f"{prefix}{i}") for i in range(len(scores)))),
        ExamplesAdded(tuple(e.id for e in examples), tuple(e.digest for e in examples)),
    ]
    for seq, (i, j) in enumerate(np.argwhere(~np.isnan(scores)).tolist()):
        outcome = Outcome(Score(float(scores[i, j])), seconds=0.1)
        events += [Asked(seq, i, j, ""), Told(seq, outcome, float(scores[i, j]))]
    return fold(events)


def load(runs: dict[str, RunState], examples: list[Example] | None = None) -> FloatArray:
    return past_scores(runs, examples or EXAMPLES)[0]


def test_a_runs_examples_are_recognised_by_content(tmp_path: Path) -> None:
    """The same examples under other ids and in another order teach the same."""
    scores = by_ease(12)
    order = np.random.default_rng(1).permutation(len(EXAMPLES))
    renamed = [Example(f"other {j}", EXAMPLES[j].inputs, EXAMPLES[j].reference) for j in order]
    np.testing.assert_array_equal(load({"run": run_of(scores, EXAMPLES)}), scores)
    np.testing.assert_array_equal(load({"run": run_of(scores[:, order], renamed)}), scores)
    assert learn_once(scores, tmp_path)[0].validation.is_useful


def test_examples_that_history_does_not_know_are_average(tmp_path: Path) -> None:
    study = [Example("new", {"question": "what is new?"}, "new"), *EXAMPLES]
    scores = load({"run": run_of(by_ease(12), EXAMPLES)}, study)
    model, _ = learn_once(scores, tmp_path)
    assert "on 40 of the 41 examples" in described(model.validation, scores, 0)
    assert model.factors.offset[0] == pytest.approx(model.factors.offset[1:].mean())
    Pulse(Problem(3, 41), history=model)


def test_candidates_with_too_few_scores_are_dropped(tmp_path: Path) -> None:
    scores = by_ease(12)
    scores[3, 5:] = np.nan

    found, n_dropped = past_scores({"run": run_of(scores, EXAMPLES)}, EXAMPLES)
    assert (len(found), n_dropped) == (11, 1)
    model, _ = learn_once(found, tmp_path)
    assert "1 more had too few scores" in described(model.validation, found, n_dropped)


def test_a_candidate_of_two_runs_is_one() -> None:
    scores = by_ease(6)
    first, second = scores.copy(), scores.copy()
    first[:, 20:], second[:, :20] = np.nan, np.nan
    found = load({"a": run_of(first, EXAMPLES), "b": run_of(second, EXAMPLES)})
    np.testing.assert_array_equal(found, scores)


def test_history_on_other_examples_is_refused() -> None:
    others = [Example(e.id, {"question": f"and {e.id}?"}, None) for e in EXAMPLES]
    with pytest.raises(ConfigError, match="no candidate in run has 20 scores"):
        load({"run": run_of(by_ease(5), others)})


def test_history_that_predicts_nothing_says_so(tmp_path: Path) -> None:
    scores = (np.random.default_rng(5).random((20, 40)) < 0.5).astype(float)
    model, _ = learn_once(scores, tmp_path)
    assert not model.validation.is_useful
    assert "not used" in described(model.validation, scores, 0)
    assert not Pulse(Problem(3, 40), history=model).uses_history


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (0.4, "predictions remove 40 % of a new candidate's variance over examples"),
        (
            0.1,
            "for pulse and for the intervals of means, not for what auto asks (surely above 15 %)",
        ),
        (0.0, "so it is not used"),
    ],
)
def test_a_history_says_who_will_use_it(gain: float, words: str) -> None:
    factors = Factors(np.zeros(40), np.ones((40, 1)))
    lesson = HistoryModel(factors, Validation(1, 4.0, gain, 0.01, 30))
    assert described(lesson.validation, np.ones((30, 40)), 0).endswith(words)
    assert Auto(Problem(3, 40), history=lesson).uses_history == lesson.validation.is_strong
    assert Pulse(Problem(3, 40), history=lesson).uses_history == lesson.validation.is_useful


def test_what_was_learned_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = by_ease(10)
    first = learn_once(scores, tmp_path)[0]
    monkeypatch.setattr(history, "learn", lambda scores: pytest.fail("learned again"))
    again = learn_once(scores, tmp_path)[0]
    assert again.validation == first.validation
    np.testing.assert_array_equal(again.factors.loadings, first.factors.loadings)


def test_a_damaged_file_is_learned_anew(tmp_path: Path) -> None:
    scores = by_ease(10)
    first = learn_once(scores, tmp_path)[0]
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert learn_once(scores, tmp_path)[0].validation == first.validation
    path.write_bytes(b"")
    assert learn_once(scores, tmp_path)[0].validation == first.validation


def test_a_run_recalls_what_it_goes_by(tmp_path: Path) -> None:
    lesson, name = learn_once(by_ease(10), tmp_path / "history")

    def recalled(name: str | None) -> HistoryModel | None:
        begun = fold([Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, ".", name)])
        return recorded_history(begun, tmp_path / "runs.sqlite")

    again = recalled(name)
    assert again is not None
    assert again.validation == lesson.validation
    np.testing.assert_array_equal(again.factors.offset, lesson.factors.offset)
    assert recalled(None) is None
    with pytest.raises(ConfigError, match="lesson-none"):
        recalled("lesson-none")
