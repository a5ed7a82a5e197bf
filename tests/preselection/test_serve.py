"""Prompts answered by the candidates that a router chooses, under the study's budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.values import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serve import Served, Service, text_of
from tests.support.commands import Command
from tests.support.studies import recorded_scores, write_study

pytest.importorskip("sklearn", reason="needs the extra preselect")

K, N = 4, 40
SETTINGS = RouterSettings(collect=10, n_components=3)


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - parts of a study file
    return write_study(folder, n_candidates=K, n_examples=N, changes=changes)


def serve_all(
    path: Path, k: int = 2, overrides: Mapping[str, Any] | None = None
) -> tuple[list[Served], Service]:
    """Serve every example until the budget ends."""

    async def scene() -> tuple[list[Served], Service]:
        async with Service.open(path, settings=SETTINGS, overrides=overrides) as service:
            found = []
            for example in service.parts.examples:
                if (served := await service.serve(example, k)) is None:
                    break
                found.append(served)
            return found, service

    return asyncio.run(scene())


def test_the_chosen_answer_and_the_router_learns_who_was_best(tmp_path: Path) -> None:
    found, service = serve_all(study(tmp_path))
    truth = recorded_scores(K, N)
    assert len(found) == N
    for j, served in enumerate(found):
        assert len({answer.candidate for answer in served.answers}) == 2
        scores = {a.candidate: a.score for a in served.answers}
        assert scores == {name: truth[int(name[1:])][j] for name in scores}
        assert served.winner is not None
        assert served.winner.score == max(truth[int(name[1:])][j] for name in scores)
        assert served.learnt == (len(set(scores.values())) == 2 or j < 10)  # at first all is kept
    assert service.spent.calls == service.spent.pulls == 2 * N
    assert service.router.ready
    late = [served.answers[0].candidate for served in found[N // 2 :]]
    assert late.count("c2") + late.count("c3") > len(late) / 2  # the better half of the four


@pytest.mark.slow
def test_replies_are_bought_once_and_the_router_goes_on(tmp_path: Path) -> None:
    path = study(tmp_path)
    _, first = serve_all(path, k=K)
    again, second = serve_all(path, k=K)
    assert (first.spent.calls, second.spent.calls) == (K * N, 0)
    assert len(again) == N
    assert second.router.version == 2
    assert second.router.n_learnt > first.router.n_learnt


@pytest.mark.parametrize("cap", ["0.0205", "0.021"])
def test_dollars_are_a_hard_cap(tmp_path: Path, cap: str) -> None:
    """A call costs a tenth of a cent; the last prompt gets what is left."""
    found, service = serve_all(study(tmp_path), k=3, overrides={"budget.usd": cap})
    calls = int(float(cap) / 0.001 + 1e-9)
    assert service.spent.usd_nanos == calls * 1_000_000
    assert [len(one.answers) for one in found] == [3] * (calls // 3) + [calls % 3] * (calls % 3 > 0)
    found, service = serve_all(tmp_path / "study.json", overrides={"budget.minutes": 1e-9})
    assert (found, service.spent.calls) == ([], 0), "minutes end it too"


def test_a_study_with_repeats_is_served_with_single_draws(tmp_path: Path) -> None:
    found, service = serve_all(study(tmp_path, repeats=5), overrides={"budget.usd": "0.004"})
    assert [len(served.answers) for served in found] == [2, 2]
    assert service.parts.config.repeats == 1


def test_who_could_not_be_measured_says_nothing(tmp_path: Path) -> None:
    path = study(tmp_path)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    kept = [json.dumps(r) for r in rows if r["candidate"] != "c1" or r["example"] == "e39"]
    (tmp_path / "scores.jsonl").write_text("\n".join(kept) + "\n")
    found, _ = serve_all(path, k=K)
    for served in found[:-1]:
        [missing] = [a for a in served.answers if a.score is None]
        assert missing.candidate == "c1"
        assert missing.problem is not None


def test_a_router_of_other_candidates_is_refused(tmp_path: Path) -> None:
    path = study(tmp_path)

    async def scene() -> None:
        names = [RoutedCandidate(name=f"c{i}") for i in range(K - 1)]
        (tmp_path / "runs").mkdir()
        async with Router.open("default", tmp_path / "runs" / "runs.sqlite", names) as router:
            router.prepare(["one prompt", "another thing"])
        with pytest.raises(ConfigError, match="knows no candidate 'c3'"):
            async with Service.open(path):
                pass

    asyncio.run(scene())


def test_how_many_are_run_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"k must be in 1\.\.4"):
        serve_all(study(tmp_path), k=K + 1)


def test_the_text_that_a_router_looks_at() -> None:
    assert text_of(Example("1", {"anything": "x"})) == "x"
    assert text_of(Example("1", {"text": "x", "prompt": "y"})) == "y"
    with pytest.raises(ConfigError, match="has the fields a, b, and a router looks at one text"):
        text_of(Example("1", {"a": 1, "b": 2}))


@pytest.mark.slow
def test_the_command_prints_a_line_per_prompt_or_a_summary(
    tmp_path: Path, command: Command
) -> None:
    path = study(tmp_path)
    done = command("preselect", "run", path, "--setting", "collect=10", "--json")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert len(rows) == N
    assert all(row["scores"][row["winner"]] == max(row["scores"].values()) for row in rows)
    less = command("preselect", "run", path, "-k", "4", "--set", "budget.calls=10")
    assert less.code == 0, less.err
    assert f"of {N} prompts" in less.out
    assert "router default, version 2" in less.out
