"""A race over real evals of inspect-ai, with its mock model: no call leaves the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.engine.results.standing import Status
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom

pytest.importorskip("inspect_ai", reason="needs the extra `inspect`")

import inspect_ai as ai
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from bestarm_agent.interop.inspect import InspectRace

pytestmark = [
    pytest.mark.slow,
    # of streams that inspect-ai leaves open
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
N = 40
QUALITY = {"good": 0.9, "fair": 0.6, "poor": 0.3, "bad": 0.1}
Grade = Callable[[int], float]


@pytest.fixture(autouse=True)
def leave_nothing_open() -> Iterator[None]:
    """Collect the streams that inspect-ai leaves open where their warnings are ignored."""
    yield
    gc.collect()


def graded_by(label: str, chance: float | None = None) -> Grade:
    """Return a grade for each sample, 1 with the label's chance."""
    draws = KeyedRandom(7, label).at(0).random(N)
    return lambda number: float(draws[number] < (chance or QUALITY[label]))


def task(
    grade: Grade,
    name: str = "task",
    *,
    runs: Callable[[int], None] | None = None,
    **settings: Any,  # noqa: ANN401
) -> ai.Task:
    @solver  # type: ignore[misc, untyped-decorator, unused-ignore]
    def answer() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            if runs is not None:
                runs(int(state.sample_id))
            # not from the mock model, which counts tokens with a file from the network
            state.output = ModelOutput.from_content("mockllm", "an answer")
            return state

        return solve

    @scorer(metrics=[accuracy()])  # type: ignore[misc, untyped-decorator, unused-ignore]
    def right() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            return Score(value=grade(int(state.sample_id)))

        return score

    samples = [Sample(id=number, input=f"question {number}") for number in range(N)]
    options = {"scorer": right(), "solver": answer(), "model": "mockllm/model", **settings}
    return ai.Task(name=name, dataset=MemoryDataset(samples), **options)


def four() -> list[ai.Task]:
    return [task(graded_by(label), label) for label in QUALITY]


def select(race: InspectRace, tasks: Sequence[ai.Task], folder: Path, **options: Any) -> list[Any]:  # noqa: ANN401
    return race.select(tasks, log_dir=str(folder), display="none", **options)


@pytest.mark.parametrize("slots", [1, None])
def test_the_best_is_found_with_few_slots_and_part_of_the_samples(
    tmp_path: Path, slots: int | None
) -> None:
    race = InspectRace(selector="auto", budget=80)
    logs = select(race, four(), tmp_path, max_samples=slots)
    standing = race.standing()
    n = {row.candidate.label: row.n for row in standing.rows}

    assert {log.status for log in logs} == {"success"}
    assert standing.best is not None
    assert standing.best.candidate.label == "good"
    assert standing.asked == sum(n.values()) <= 80
    assert {log.eval.task: len(log.samples or ()) for log in logs} == n
    assert all(len(log.results.early_stopping.early_stops) == N - n[log.eval.task] for log in logs)
    assert "good" in race.verdict()
    seen = [{sample.id for sample in log.samples} for log in logs]
    order = logs[0].eval.dataset.sample_ids  # common examples, in common order
    assert all(ids == set(order[: len(ids)]) for ids in seen)


@pytest.mark.parametrize("slots", [2, 4])
def test_slots_go_to_candidates_that_matter_not_to_those_that_are_idle(
    tmp_path: Path, slots: int
) -> None:
    race, chances = (
        InspectRace(selector="auto"),
        {"good": 0.9, "near": 0.55, "poor": 0.2, "bad": 0.1},
    )
    tasks = [task(graded_by(label, chance), label) for label, chance in chances.items()]
    select(race, tasks, tmp_path, max_samples=slots)
    n = {row.candidate.label: row.n for row in race.standing().rows}
    assert race.standing().decision.proved
    assert n["good"] > 1.5 * n["bad"], n


def test_errors_are_void_and_a_retry_runs_again(tmp_path: Path) -> None:
    failed: set[int] = set()

    def runs(number: int) -> None:
        if number % 10 == 0 or (number % 10 == 1 and number not in failed):
            failed.add(number)
            raise RuntimeError("no connection")

    race = InspectRace(budget=50)
    tasks = [task(graded_by("good"), "good", runs=runs), task(graded_by("bad"), "bad")]
    logs = select(race, tasks, tmp_path, max_samples=1, retry_on_error=1)
    good = next(row for row in race.standing().rows if row.candidate.label == "good")
    errors = {sample.id for sample in logs[0].samples if sample.error is not None}

    assert good.status is Status.TAKE
    assert good.void == len(errors) > 0
    assert {int(number) % 10 for number in errors} == {0}
    assert good.n + good.void == len(logs[0].samples)


def test_a_task_that_fails_leaves_the_race(tmp_path: Path) -> None:
    def runs(number: int) -> None:
        raise RuntimeError("no such model")

    race = InspectRace(budget=30)
    tasks = [task(graded_by("good"), "good"), task(graded_by("bad"), "bad", runs=runs)]
    logs = select(race, tasks, tmp_path, max_samples=2, fail_on_error=True)
    rows = {row.candidate.label: row for row in race.standing().rows}

    assert [log.status for log in logs] == ["success", "error"]
    assert rows["bad"].is_broken
    assert rows["bad"].n == 0
    assert rows["good"].n == len(logs[0].samples) > 1


@pytest.mark.parametrize("slots", [1, 4])
def test_a_race_ends_where_the_first_samples_of_a_task_fail(tmp_path: Path, slots: int) -> None:
    ran: list[int] = []

    def runs(number: int) -> None:
        ran.append(number)
        raise RuntimeError("no such model")

    tasks = [task(graded_by("good"), "good"), task(graded_by("bad"), "bad", runs=runs)]
    said = "first 2 samples of 'bad' failed, the last with: .*no such model"
    with pytest.raises(ConfigError, match=said):
        select(InspectRace(), tasks, tmp_path, max_samples=slots)
    assert 2 <= len(ran) <= 2 + slots  # those that have begun end


def test_one_task_races_several_models(tmp_path: Path) -> None:
    race = InspectRace(budget=30)
    logs = select(race, [task(graded_by("fair"))], tmp_path, models=["mockllm/a", "mockllm/b"])
    standing = race.standing()

    assert sorted(row.candidate.label for row in standing.rows) == ["mockllm/a", "mockllm/b"]
    assert {log.eval.model for log in logs} == {"mockllm/a", "mockllm/b"}
    assert standing.asked == sum(len(log.samples) for log in logs)


def test_a_plain_eval_takes_part_through_its_argument(tmp_path: Path) -> None:
    race = InspectRace(budget=30)
    tasks = [task(graded_by(name), name, early_stopping=race.task(name)) for name in QUALITY]
    with pytest.raises(ConfigError, match="not begun"):
        race.standing()
    ai.eval(tasks, max_tasks=4, sample_shuffle=3, log_dir=str(tmp_path), display="none")
    assert race.standing().asked == 30
    with pytest.raises(ConfigError, match="'late' cannot join: the race has begun"):
        race.task("late")


def killed_race(folder: str) -> None:
    """Race until the process dies, with 30 samples begun."""
    begun: set[tuple[str, int]] = set()

    def dying(label: str) -> Callable[[int], None]:
        def runs(number: int) -> None:
            begun.add((label, number))
            if len(begun) == 30:
                os._exit(9)

        return runs

    select(InspectRace(budget=60), close(dying), Path(folder), max_samples=2)


def close(runs: Callable[[str], Callable[[int], None]]) -> list[ai.Task]:
    return [task(graded_by(name, 0.5), name, runs=runs(name)) for name in ("heads", "tails")]


def test_a_killed_race_goes_on_without_the_samples_that_were_scored(tmp_path: Path) -> None:
    code = f"from tests.interop.test_inspect import killed_race as k; k({str(tmp_path)!r})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    logs: list[Any] = [read_eval_log(info) for info in list_eval_logs(str(tmp_path))]
    scored = {
        (log.eval.task, sample.id) for log in logs for sample in log.samples or () if sample.scores
    }
    ran: list[tuple[str, int]] = []

    race = InspectRace(budget=60, resume=str(tmp_path))
    tasks = close(lambda label: lambda number: ran.append((label, number)))
    select(race, tasks, tmp_path, max_samples=1)
    order = logs[0].eval.dataset.sample_ids
    asked = {(row.candidate.label, id) for row in race.standing().rows for id in order[: row.n]}

    assert 20 < len(scored) < 30
    assert not scored & set(ran)
    assert scored | set(ran) == asked
    assert len(asked) == 60 == len(scored) + len(ran)

    other = InspectRace(seed=5, resume=str(tmp_path))
    with pytest.raises(ConfigError, match=r"another order of them; give .* the same seed"):
        select(other, close(lambda label: lambda number: None), tmp_path)


@pytest.mark.parametrize(("options", "reason"), [
    ({"max_tasks": 1}, "max_tasks=2"),
    ({"sample_shuffle": None}, "random order"),
    ({"sample_shuffle": True}, "one whole number"),
    ({"log_samples": False}, None),
    ({"epochs": 2}, "2 epochs, .* samples of their own"),
])  # fmt: skip
def test_what_cannot_be_raced_is_refused(
    tmp_path: Path, options: dict[str, Any], reason: str | None
) -> None:
    race = InspectRace(budget=30)
    tasks = [task(graded_by(name), name) for name in ("good", "bad")]
    with pytest.raises(ConfigError, match=reason):
        select(race, tasks, tmp_path, **options)


@pytest.mark.parametrize(("made", "reason"), [
    ({"selector": "ucb-e", "budget": 9}, "'ucb-e' does not take common examples"),
    ({"metric": "style"}, "right = .*name a metric"),
])  # fmt: skip
def test_a_rule_or_metric_that_does_not_fit_is_refused(
    tmp_path: Path, made: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        select(InspectRace(**made), [task(graded_by(name), name) for name in QUALITY], tmp_path)
