"""Prompts answered by the candidates that a router chooses, under the study's budget; their log."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.values import Example
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serve import Served, Service, text_of
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.store.run_state import RunState
from bestarm_agent.study import Archive, Study
from tests.support.commands import Command
from tests.support.studies import recorded_scores, store_of, write_study

pytest.importorskip("sklearn", reason="needs the extra preselect")

K, N = 4, 40
SETTINGS = RouterSettings(collect=10, n_components=3)
Pick = Callable[[Service], list[Example]]


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - parts of a study file
    return write_study(folder, n_candidates=K, n_examples=N, changes=changes)


def every(service: Service) -> list[Example]:
    return list(service.parts.examples)


def serve(
    path: Path, k: int = 2, pick: Pick = every, **caps: float | str
) -> tuple[list[Served], Service]:
    """Let k candidates answer each of the prompts picked, until the budget ends."""

    async def scene() -> tuple[list[Served], Service]:
        overrides = {f"budget.{key}": cap for key, cap in caps.items()}
        async with Service.open(path, settings=SETTINGS, overrides=overrides) as service:
            found = []
            for example in pick(service):
                if (served := await service.serve(example, k)) is None:
                    break
                found.append(served)
            return found, service

    return asyncio.run(scene())


def state_of(path: Path, run: str) -> RunState:
    return asyncio.run(Archive(store_of(path)).state(run))


def test_the_chosen_answer_and_the_router_learns_who_was_best(tmp_path: Path) -> None:
    found, service = serve(study(tmp_path))
    truth = recorded_scores(K, N)
    assert len(found) == N
    for j, served in enumerate(found):
        assert len({answer.candidate for answer in served.answers}) == 2
        scores = {a.candidate: a.score for a in served.answers}
        assert scores == {name: truth[int(name[1:])][j] for name in scores}
        assert served.winner is not None
        assert served.winner.score == max(truth[int(name[1:])][j] for name in scores)
        assert served.learnt == (len(set(scores.values())) == 2 or j < 10)  # at first all is kept
    assert service.spent.calls == service.spent.answers == 2 * N
    assert service.router.ready
    late = [served.answers[0].candidate for served in found[N // 2 :]]
    assert late.count("c2") + late.count("c3") > len(late) / 2  # the better half of the four


@pytest.mark.slow
def test_replies_are_bought_once_and_the_router_goes_on(tmp_path: Path) -> None:
    path = study(tmp_path)
    _, first = serve(path, k=K)
    again, second = serve(path, k=K)
    assert (first.spent.calls, second.spent.calls) == (K * N, 0)
    assert len(again) == N
    assert second.router.version == 2
    assert second.router.n_learnt > first.router.n_learnt


@pytest.mark.parametrize("cap", ["0.0205", "0.021"])
def test_dollars_are_a_hard_cap(tmp_path: Path, cap: str) -> None:
    """A call costs a tenth of a cent; the last prompt gets what is left."""
    found, service = serve(study(tmp_path), k=3, usd=cap)
    calls = int(float(cap) / 0.001 + 1e-9)
    assert service.spent.usd_nanos == calls * 1_000_000
    assert [len(one.answers) for one in found] == [3] * (calls // 3) + [calls % 3] * (calls % 3 > 0)
    found, service = serve(tmp_path / "study.json", minutes=1e-9)
    assert (found, service.spent.calls) == ([], 0), "minutes end it too"


def test_a_study_with_repeats_is_served_with_single_draws(tmp_path: Path) -> None:
    found, service = serve(study(tmp_path, repeats=5), usd="0.004")
    assert [len(served.answers) for served in found] == [2, 2]
    assert service.parts.config.repeats == 1


def test_who_could_not_be_measured_says_nothing(tmp_path: Path) -> None:
    path = study(tmp_path)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    kept = [json.dumps(r) for r in rows if r["candidate"] != "c1" or r["example"] == "e39"]
    (tmp_path / "scores.jsonl").write_text("\n".join(kept) + "\n")
    found, _ = serve(path, k=K)
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
        serve(study(tmp_path), k=K + 1)


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
    assert re.search(r"mean score of the best answer \d+ %, of the first choice \d+ %", less.out)
    assert "router default, version 2" in less.out


# the log


def test_the_log_says_who_was_asked_and_what_became_of_it(tmp_path: Path) -> None:
    path = study(tmp_path)
    found, service = serve(path)
    record = asyncio.run(Archive(store_of(path)).record(service.run_id))
    state, standing = state_of(path, service.run_id), record.standing
    assert (state.name, state.end) == ("recorded-preselect", "served")
    assert (standing.asked, standing.told, len(state.pending)) == (2 * N, 2 * N, 0)
    assert standing.spent == service.spent
    logged = {
        (state.candidates[row].label, state.example_ids[column]): score
        for (row, column, *_), score in zip(
            state.asks.tolist(), state.told["score"].tolist(), strict=True
        )
    }
    assert logged == {
        (answer.candidate, served.example.id): answer.score
        for served in found
        for answer in served.answers
    }
    reasons = [state.ask(seq).reason for seq in range(state.n_asked)]
    assert (set(reasons[:20]), set(reasons[20:])) == ({"random"}, {"linucb"})
    assert standing.selector == "router"
    assert standing.guarantee is Guarantee.HEURISTIC
    assert not standing.decision.proved


@pytest.mark.parametrize(("calls", "end"), [(7, "budget"), (2 * N, "served")])
def test_the_log_says_why_it_ended(tmp_path: Path, calls: int, end: str) -> None:
    path = study(tmp_path)
    _, service = serve(path, calls=calls)
    state = state_of(path, service.run_id)
    assert (state.end, state.n_told) == (end, calls)


def test_an_error_is_an_end_too(tmp_path: Path) -> None:
    path = study(tmp_path)
    with pytest.raises(ConfigError, match="a router looks at one text"):
        serve(path, 2, lambda service: [*every(service)[:3], Example("odd", {"a": 1, "b": 2})])
    state = state_of(path, "latest")
    assert (state.end, state.n_told) == ("error", 6)


def test_prompts_that_come_again_and_new_ones_join(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=3)

    def pick(service: Service) -> list[Example]:
        first, second, _ = service.parts.examples
        return [first, second, first, Example("e0", {"question": "new"}), first]

    _, service = serve(path, 2, pick)
    state = state_of(path, service.run_id)
    assert state.example_ids == ["e0", "e1", "e2", "e0", "e0", "e0"]
    assert state.asks["example"].tolist() == [0, 0, 1, 1, 3, 3, 4, 4, 5, 5]
    assert state.example_digests[0] == state.example_digests[3] != state.example_digests[4]
    assert state.n_told == 10


def test_an_interruption_leaves_what_was_asked_pending(tmp_path: Path) -> None:
    """Who is asked is in the log before the answers are there."""
    path = write_study(tmp_path, n_candidates=2, n_examples=2, latency_seconds=60.0)
    opened = asyncio.Queue[str]()

    async def serve_first() -> None:
        async with Service.open(path, settings=SETTINGS) as service:
            opened.put_nowait(service.run_id)
            await service.serve(every(service)[0], 2)

    async def scene() -> str:
        serving = asyncio.create_task(serve_first())
        run, archive = await opened.get(), Archive(store_of(path))
        while (await archive.state(run)).n_asked < 2:
            assert not serving.done()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        return run

    state = state_of(path, asyncio.run(scene()))
    assert (len(state.pending), state.n_told, state.end) == (2, 0, "interrupted")


def test_it_is_not_resumed(tmp_path: Path) -> None:
    path = study(tmp_path)
    serve(path)

    async def resumed() -> None:
        async with Study.resume(options=Options(store=store_of(path))):
            pass

    with pytest.raises(ConfigError, match=r"what `preselect run` did.*run that command again"):
        asyncio.run(resumed())


def test_its_log_is_found_and_no_router_is_named_that_learned_nothing(
    tmp_path: Path, command: Command
) -> None:
    path = study(tmp_path)
    path.rename(tmp_path / "study.yaml")
    ran = command("preselect", "run", "-k", "1", "--set", "budget.calls=5")
    assert "nothing was learned, so no router is kept" in ran.out
    assert "router default" not in ran.out
    [line] = [line for line in ran.out.splitlines() if line.startswith("run ")]
    shown = command("show")
    assert shown.code == 0, shown.err
    assert line.split()[1].rstrip(":") in shown.out


@pytest.mark.slow
def test_the_usual_commands_read_it(tmp_path: Path, command: Command) -> None:
    path = study(tmp_path)
    ran = command("preselect", "run", path, "--setting", "collect=10")
    [line] = [line for line in ran.out.splitlines() if line.startswith("run ")]
    run = line.split()[1].rstrip(":")
    shown = command("show", run, "--store", store_of(path))
    assert f"{run}, finished: every prompt was answered" in shown.out
    exported = command("export", run, "--store", store_of(path))
    assert len(exported.out.splitlines()) == 1 + 2 * N
    taught = command(
        *("select", "-c", path, "--history", run, "--selector", "pulse", "--budget-answers", "20"),
    )
    assert taught.code in (0, 3), taught.err
