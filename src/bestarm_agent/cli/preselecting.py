"""``preselect``: learn which candidates to run for which prompt, and choose them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bestarm_agent.cli.options import JsonOption, StoreOption, default_store, study_options
from bestarm_agent.cli.preselecting_serving import run
from bestarm_agent.cli.preselecting_tables import simulate
from bestarm_agent.config.settings import Settings
from bestarm_agent.errors import ConfigError
from bestarm_agent.opening import STORE_FILE
from bestarm_agent.routing.embedding import Embedder, open_embedder
from bestarm_agent.routing.history import read_history
from bestarm_agent.routing.records import Record, parse_line, parse_prompt
from bestarm_agent.routing.router import Router
from bestarm_agent.routing.settings import (
    RoutedCandidate,
    RouterSettings,
    parse_candidates,
    parse_settings,
)
from bestarm_agent.store.sql import SqlStore
from bestarm_agent.wording import safe

_STREAM = Path("-")
_SAVE_EVERY = 50  # records of a stream: what a crash can lose

_MOST_PROMPTS = 5000  # of a history, to make features from

RouterOption = Annotated[str, typer.Option("--router", "-r", help="Name of the router.")]


@dataclass(frozen=True, slots=True)
class Training:
    """What ``train`` was asked to do.

    Attributes:
        name: of the router.
        candidates: what a new router chooses among; those of the history if there are none.
        settings: how a new router learns, or None.
        history: records that are all there, or None for a stream.
    """

    name: str
    candidates: tuple[RoutedCandidate, ...]
    settings: RouterSettings | None
    history: list[Record] | None


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    group = typer.Typer(
        help="Choose which candidates to run for a prompt, learning from which of them won.",
        no_args_is_help=True,
    )
    group.command()(train)
    group.command()(choose)
    group.command()(add)
    group.command()(run)
    group.command()(simulate)
    app.add_typer(group, name="preselect")


def train(
    history: Annotated[
        Path,
        typer.Argument(help='Records: .jsonl, .csv or .npz, or "-" for JSON lines on stdin.'),
    ] = _STREAM,
    router: RouterOption = "default",
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", "-c", help="JSON: names, or name, usd, size, family."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of a new router, such as rule=thompson; repeatable."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from records of earlier prompts, or from a live stream of them.

    A record is {"prompt": ..., "shown": [names], and "winner", "ranking" or "scores"}.
    """
    job = Training(
        name=router,
        candidates=() if candidates is None else _read_candidates(candidates),
        settings=parse_settings(settings) if settings else None,
        history=None if history == _STREAM else list(read_history(history)),
    )
    done = asyncio.run(_train(job, _place(store)))
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(
        f"router {safe(router)}, version {done['version']}: {done['learnt']:,} records learnt, "
        f"{done['uninformative']:,} say nothing, {done['waiting']:,} wait for features"
    )


def choose(
    prompt: Annotated[
        str | None,
        typer.Argument(help='The prompt; without it, JSON lines {"prompt": ...} on stdin.'),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Candidates to run.")] = 2,
    router: RouterOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the candidates to run for a prompt, the most promising first."""
    asked = _prompts() if prompt is None else iter([{"prompt": prompt}])
    lines = as_json or prompt is None
    asyncio.run(_choose(router, default_store(store), asked, k, lines))


def add(
    names: Annotated[list[str] | None, typer.Argument(help="Names of the candidates.")] = None,
    candidates: Annotated[
        Path | None,
        typer.Option("--candidates", "-c", help="JSON: names, or name, usd, size, family."),
    ] = None,
    router: RouterOption = "default",
    store: StoreOption = None,
) -> None:
    """Let candidates join a router; what it has learnt about the others stays."""
    joining = tuple(RoutedCandidate(name) for name in names or ())
    joining += () if candidates is None else _read_candidates(candidates)
    if not joining:
        raise ConfigError("name the candidates that join, or give them by --candidates FILE")
    version, count = asyncio.run(_add(router, default_store(store), joining))
    typer.echo(f"router {safe(router)}, version {version}: {count} candidates")


async def _add(
    name: str, where: str | Path, joining: tuple[RoutedCandidate, ...]
) -> tuple[int, int]:
    async with Router.open(name, where) as router:
        router.add_candidates(joining)
        return await router.save(), len(router.candidates)


async def _train(job: Training, where: str | Path) -> dict[str, Any]:
    said = {True: 0, False: 0}
    async with await SqlStore.connect(where) as opened:
        candidates = job.candidates
        if not candidates and job.history and not await Router.exists(job.name, opened):
            names = dict.fromkeys(name for record in job.history for name in record.shown)
            candidates = tuple(RoutedCandidate(name) for name in names)
        async with (
            Router.open(job.name, opened, candidates, job.settings) as router,
            embedding_of(router, opened) as embedder,
        ):
            history = job.history
            if history and embedder is not None:
                history = await embedder.described(history)
            if history and not router.ready:
                router.prepare([(r.prompt, r.features) for r in history[:_MOST_PROMPTS]])
            records = _stream() if history is None else iter(history)
            for count, record in enumerate(records, start=1):
                if history is None and embedder is not None:
                    [record] = await embedder.described([record])
                said[router.learn(record)] += 1
                if job.history is None and count % _SAVE_EVERY == 0:
                    await router.save()
            return {
                "router": job.name,
                "version": await router.save(),
                "learnt": said[True] - router.n_waiting,
                "uninformative": said[False],
                "waiting": router.n_waiting,
            }


async def _choose(
    name: str, where: str | Path, asked: Iterator[dict[str, Any]], k: int, lines: bool
) -> None:
    async with (
        await SqlStore.connect(where, create=False) as opened,
        Router.open(name, opened) as router,
        embedding_of(router, opened) as embedder,
    ):
        for row in asked:
            given = row.get("features", ())
            chosen = router.choose(
                row["prompt"],
                row.get("k", k),
                features=await embedder.vector(row["prompt"]) if embedder else given,
                among=row.get("candidates"),
            )
            if not lines:
                typer.echo("\n".join(chosen))
                continue
            answer = {"prompt": row["prompt"], "shown": chosen, "version": router.version}
            typer.echo(json.dumps(answer, ensure_ascii=False))
            sys.stdout.flush()  # whoever asked is waiting


@asynccontextmanager
async def embedding_of(router: Router, store: SqlStore) -> AsyncIterator[Embedder | None]:
    """The model that makes vectors of a router's prompts, or None."""
    if not router.settings.embedder:
        yield None
        return
    options = study_options(None, None)
    async with open_embedder(router.settings.embedder, store, options) as embedder:
        yield embedder


def _place(store: str | None) -> str | Path:
    """The store to train in: as everywhere, or a new one in this folder if there is none yet."""
    here = Path(STORE_FILE)
    nowhere = store is None and Settings().store is None
    if nowhere and not any(path for i in range(4) for path in Path().glob("*/" * i + STORE_FILE)):
        return here
    return default_store(store)


def _read_candidates(path: Path) -> tuple[RoutedCandidate, ...]:
    try:
        return parse_candidates(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error


def _stream() -> Iterator[Record]:
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            yield parse_line(line, f"stdin, line {number}")


def _prompts() -> Iterator[dict[str, Any]]:
    """Prompts asked for on stdin, one JSON object a line."""
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            yield parse_prompt(line, f"stdin, line {number}")
