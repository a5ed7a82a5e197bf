"""Small studies over recorded scores, for tests that need a whole run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.loop import End, RunLoop
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import STORE_FILE, Options
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.store.store import Store
from bestarm_agent.study import Study


def recorded_scores(n_candidates: int, n_examples: int, seed: int = 0) -> list[list[float]]:
    """Draw a world: candidate i answers right with probability .3 + .5 i / K."""
    rng = KeyedRandom(seed, "test-world").at(0)
    chances = [0.3 + 0.5 * i / n_candidates for i in range(n_candidates)]
    return [[float(rng.random() < chance) for _ in range(n_examples)] for chance in chances]


ANSWERED: dict[str, Json] = {"path": "rows.jsonl", "target": "answer"}  # a dataset
RECORDED: dict[str, Json] = {"replay": {"path": "calls.jsonl"}}  # providers


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON, one a line."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def study_file(
    folder: Path,
    files: Mapping[str, Sequence[Mapping[str, Any]]],
    **study: Any,  # noqa: ANN401
) -> Path:
    """Write a study and the rows of its files, ``NAME.jsonl`` each; return the study's path.

    Where nothing else is said, an example of ``rows.jsonl`` is asked as its field ``q``, and all
    candidates see all of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        write_lines(folder / f"{name}.jsonl", rows)
    usual = {
        "prompts": [{"q": "{{ q }}"}],
        "dataset": "rows.jsonl",
        "selector": {"name": "uniform", "stop_when_separated": False},
    }
    path = folder / "study.json"
    path.write_text(json.dumps({**usual, **study}))
    return path


def write_study(
    folder: Path,
    *,
    n_candidates: int = 6,
    n_examples: int = 40,
    latency_seconds: float = 0.0,
    usd: Sequence[float] = (),
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """Write a study over recorded scores into a folder; return the path of its file.

    A call to candidate i costs ``usd[i]`` dollars; a thousandth where that is left out.
    """
    scores = recorded_scores(n_candidates, n_examples)
    prices = [*usd, *[0.001] * (n_candidates - len(usd))]
    records = [
        {"candidate": f"c{i}", "example": f"e{j}", "score": scores[i][j], "usd": prices[i]}
        for i in range(n_candidates)
        for j in range(n_examples)
    ]
    examples = [{"id": f"e{j}", "question": f"q{j}"} for j in range(n_examples)]
    study = {
        "name": "recorded",
        "models": [f"replay/c{i}" for i in range(n_candidates)],
        "prompts": [{"q": "{{ question }}"}],
        "dataset": "questions.jsonl",
        "scorer": "recorded",
        "providers": {"replay": {"path": "scores.jsonl", "latency_seconds": latency_seconds}},
        "limits": {"in_flight": 4},
        "selector": {"name": "ucb-e", "stop_when_separated": False},
        **(changes or {}),
    }
    return study_file(folder, {"scores": records, "questions": examples}, **study)


def store_of(path: Path) -> Path:
    """Where the runs of a study are stored unless it says otherwise."""
    return path.parent / "runs" / STORE_FILE


def run_all(
    path: Path,
    budget: Budget | None = None,
    overrides: Mapping[str, Json] | None = None,
    options: Options | None = None,
) -> Standing:
    """Begin a run of the study at ``path``, and see it to its end."""
    return run_study(path, budget, overrides=overrides, options=options)[0]


def run_study(
    study: Path | Mapping[str, Any],
    budget: Budget | None = None,
    *,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run,
    **opening: Any,  # noqa: ANN401
) -> tuple[Standing, Study]:
    """Run a study to its end, opened with ``opening``; return where it stands, and the study."""

    async def scene() -> tuple[Standing, Study]:
        async with Study.open(study, **opening) as opened:
            return await opened.run(budget), opened

    found: tuple[Standing, Study] = run(scene())
    return found


def resume_all(path: Path, budget: Budget | None = None) -> Standing:
    """Go on with the latest run of the study at ``path``, and see it to its end."""

    async def scene() -> Standing:
        async with Study.resume(options=Options(store=store_of(path))) as study:
            return await study.run(budget)

    return asyncio.run(scene())


def events_of(path: Path) -> list[Event]:
    """What the latest run of the study at ``path`` logged."""

    async def read() -> list[Event]:
        async with await Store.connect(path.parent / "runs" / STORE_FILE) as store:
            return list(await store.events_of("latest"))

    return asyncio.run(read())


def each_turn(loop: RunLoop, look: Callable[[], None]) -> None:
    """Call ``look`` whenever outcomes were told, before the next ask."""
    reason_to_end = loop._reason_to_end

    def looked() -> End | None:
        look()
        return reason_to_end()

    loop._reason_to_end = looked  # type: ignore[method-assign]
