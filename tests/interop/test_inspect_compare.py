"""Logs that inspect-ai writes, compared; its mock model answers, and no call leaves the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest

from bestarm_agent.interop.paired import compare_files
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import invoke

pytest.importorskip("inspect_ai", reason="needs the extra `inspect`")

import inspect_ai as ai
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes, match
from inspect_ai.solver import Generate, Solver, TaskState, solver

pytestmark = [
    pytest.mark.slow,
    # of streams that inspect-ai leaves open
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
N = 80


@pytest.fixture(autouse=True)
def leave_nothing_open() -> Iterator[None]:
    """Collect the streams that inspect-ai leaves open where their warnings are ignored."""
    yield
    gc.collect()


@solver  # type: ignore[misc, untyped-decorator, unused-ignore]
def answering(model: str, right: Sequence[bool]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        number = int(str(state.sample_id)[1:])
        text = f"it is ={number}" if right[number] else "no idea"
        state.output = ModelOutput.from_content(f"mockllm/{model}", text)
        return state

    return solve


def log(folder: Path, model: str, right: Sequence[bool], epochs: int = 1) -> str:
    """Run an eval of a model that is right where told, sample by sample; return its log."""
    samples = [
        Sample(input=f"What is {i}?", target=f"={i}", id=f"s{i}", metadata={"page": i // 8})
        for i in range(N)
    ]
    task = ai.Task(
        dataset=MemoryDataset(samples),
        solver=answering(model, right),
        scorer=[match(), includes()],
        name="t",
    )
    [done] = ai.eval(
        task,
        model=f"mockllm/{model}",
        epochs=epochs,
        log_dir=str(folder / model),
        display="none",
    )
    assert done.status == "success", done.error
    return str(done.location)


def test_two_real_logs_agree_with_a_paired_test_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draws = KeyedRandom(5, "answers").at(0).random((2, N))
    a, b = (draws[0] < 0.5).tolist(), (draws[1] < 0.9).tolist()
    paths = [log(tmp_path, "old", a), log(tmp_path, "new", b)]
    found = compare_files(paths).comparisons
    assert {one.metric for one in found} == {"match", "includes"}
    [one] = compare_files(paths, ["includes"]).comparisons
    assert (one.a, one.b, one.n) == ("mockllm/old", "mockllm/new", N)
    differences = [float(x) - float(y) for x, y in zip(a, b, strict=True)]
    mean, error = fmean(differences), stdev(differences) / sqrt(N)
    assert one.seen == pytest.approx((mean, mean, mean))
    assert mean + 4 * error < 0.0
    assert one.verdict == "b"
    assert one.difference.lower <= mean - 1.96 * error
    assert mean + 1.96 * error <= one.difference.upper < 0.0
    [pages] = compare_files(paths, ["includes"], "page").comparisons
    assert (pages.n_units, pages.unit) == (10, "cluster")
    done = invoke(capsys, "compare", *paths, "--metric", "includes")
    assert done.code == 0
    assert f"{N} of {N} examples were scored for both" in done.out
    assert "What is " in done.out
    assert "«no idea»" in done.out
    assert "same file" in invoke(capsys, "compare", paths[0], paths[0]).err


def test_epochs_of_real_logs_are_one_draw(tmp_path: Path) -> None:
    right = [i % 2 == 0 for i in range(N)]
    paths = [log(tmp_path, name, right, epochs=3) for name in ("one", "two")]
    [one] = compare_files(paths, ["includes"]).comparisons
    assert (one.n, one.n_units, one.verdict) == (N, N, "about equal")
    assert one.seen == pytest.approx((0, 0, 0))
