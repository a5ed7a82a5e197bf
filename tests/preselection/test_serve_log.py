"""The log of prompts that a router's candidates answered, read as a run's log is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Example
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import RouterSettings
from bestarm_agent.preselection.serve import Served, Service
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.store.run_state import RunState
from bestarm_agent.study import Archive, Study
from tests.support.commands import Command
from tests.support.studies import store_of, write_study

pytest.importorskip("sklearn", reason="needs the extra preselect")

K, N = 4, 30
SETTINGS = RouterSettings(collect=10, n_components=3)


def study(folder: Path) -> Path:
    return write_study(folder, n_candidates=K, n_examples=N)


Pick = Callable[[Service], list[Example]]


def serve(path: Path, pick: Pick, calls: int | None = None) -> tuple[list[Served | None], Service]:
    """Let two candidates answer each of the prompts picked."""

    async def scene() -> tuple[list[Served | None], Service]:
        caps = {} if calls is None else {"budget.calls": calls}
        async with Service.open(path, settings=SETTINGS, overrides=caps) as service:
            return [await service.serve(example, 2) for example in pick(service)], service

    return asyncio.run(scene())


def state_of(path: Path, run: str) -> RunState:
    return asyncio.run(Archive(store_of(path)).state(run))


def every(service: Service) -> list[Example]:
    return list(service.parts.examples)


def test_the_log_says_who_was_asked_and_what_became_of_it(tmp_path: Path) -> None:
    path = study(tmp_path)
    found, service = serve(path, every)
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
        if served is not None
        for answer in served.answers
    }
    reasons = [state.ask(seq).reason for seq in range(state.n_asked)]
    assert (set(reasons[:20]), set(reasons[20:])) == ({"random"}, {"linucb"})
    assert standing.selector == "router"
    assert standing.guarantee is Guarantee.HEURISTIC
    assert not standing.established


@pytest.mark.parametrize(("calls", "end"), [(7, "budget"), (2 * N, "served")])
def test_the_log_says_why_it_ended(tmp_path: Path, calls: int, end: str) -> None:
    path = study(tmp_path)
    _, service = serve(path, every, calls)
    state = state_of(path, service.run_id)
    assert (state.end, state.n_told) == (end, calls)


def test_an_error_is_an_end_too(tmp_path: Path) -> None:
    path = study(tmp_path)
    with pytest.raises(ConfigError, match="a router looks at one text"):
        serve(path, lambda service: [*every(service)[:3], Example("odd", {"a": 1, "b": 2})])
    state = state_of(path, "latest")
    assert (state.end, state.n_told) == ("error", 6)


def test_prompts_that_come_again_and_new_ones_join(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=3)

    def pick(service: Service) -> list[Example]:
        first, second, _ = service.parts.examples
        return [first, second, first, Example("e0", {"question": "new"}), first]

    _, service = serve(path, pick)
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


@pytest.mark.slow
def test_it_is_not_resumed(tmp_path: Path, command: Command) -> None:
    path = study(tmp_path)
    serve(path, every)

    async def resumed() -> None:
        async with Study.resume(options=Options(store=store_of(path))):
            pass

    with pytest.raises(ConfigError, match=r"what `preselect run` did.*run that command again"):
        asyncio.run(resumed())
    done = command("resume", "--store", store_of(path))
    assert done.code == 2
    assert "what `preselect run` did" in done.err


@pytest.mark.slow
def test_the_usual_commands_read_it(tmp_path: Path, command: Command) -> None:
    path = study(tmp_path)
    ran = command("preselect", "run", path, "--setting", "collect=10")
    [line] = [line for line in ran.out.splitlines() if line.startswith("run ")]
    run = line.split()[1].rstrip(":")
    shown = command("show", run, "--store", store_of(path))
    assert f"{run}, ended: every prompt was answered" in shown.out
    exported = command("export", run, "--store", store_of(path))
    assert len(exported.out.splitlines()) == 1 + 2 * N
    taught = command(
        *("select", "-c", path, "--history", run, "--selector", "pulse", "--budget-pulls", "20"),
    )
    assert taught.code in (0, 3), taught.err
