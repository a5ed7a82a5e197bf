"""Runs ``preselect train``, ``choose`` and ``run``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import typer

from bestarm_agent.preselection.records import (
    PromptRow,
    Record,
    RoutedCandidate,
    RouterSettings,
    parse_line,
)
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serve import Served, Service
from bestarm_agent.preselection.worth import would_pay
from bestarm_agent.report.words import cost_text, safe
from bestarm_agent.store.store import open_store

_Row = TypeVar("_Row", Record, PromptRow)

_SAVE_EVERY = 50  # prompts: the most that a crash can lose of what was learnt; replies are durable
_MOST_PROMPTS = 5000  # of a history, to make features from


@dataclass(frozen=True, slots=True)
class Training:
    """The order to train a router."""

    name: str  # of the router
    # what a new router chooses among; those of the history if there are none
    candidates: tuple[RoutedCandidate, ...]
    settings: RouterSettings | None  # how a new router learns, or None
    history: list[Record] | None  # records that are all there, or None for a stream on stdin
    k: int  # candidates that will be run per prompt


def train_router(job: Training, where: str | Path, *, as_json: bool) -> None:
    """Train a router and save it; print counts of records, and whether routing would pay."""
    done = asyncio.run(_train(job, where))
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(
        f"router {safe(job.name)}, version {done['version']}: {done['learnt']:,} records learnt, "
        f"{done['uninformative']:,} say nothing, {done['waiting']:,} wait for features"
    )
    if done["routing"] is not None:
        typer.echo(done["routing"]["says"])


async def _train(job: Training, where: str | Path) -> dict[str, Any]:
    async with open_store(where) as store:
        names = dict.fromkeys(name for record in job.history or () for name in record.shown)
        candidates = job.candidates or [RoutedCandidate(name=name) for name in names]
        async with Router.open(job.name, store, candidates, job.settings) as router:
            learnt, ignored = await _learn(router, job.history)
            worth = would_pay(job.history or (), router.settings, job.k)
            return {
                "router": job.name,
                "version": await router.save(),
                "learnt": learnt - router.n_waiting,
                "uninformative": ignored,
                "waiting": router.n_waiting,
                "routing": None if worth is None else {**asdict(worth), "says": str(worth)},
            }


async def _learn(router: Router, history: list[Record] | None) -> tuple[int, int]:
    """Learn all records; return how many say something, and how many nothing."""
    count = {True: 0, False: 0}
    if history and not router.ready:
        router.prepare([record.prompt for record in history[:_MOST_PROMPTS]])
    records = _stdin(Record) if history is None else iter(history)
    for number, record in enumerate(records, start=1):
        count[router.learn(record)] += 1
        if history is None and number % _SAVE_EVERY == 0:
            await router.save()
    return count[True], count[False]


def choose_for(prompt: str | None, name: str, where: str | Path, k: int, *, as_json: bool) -> None:
    """Print the candidates chosen for a prompt, or for each JSON line on stdin."""
    asked = _stdin(PromptRow) if prompt is None else iter([PromptRow(prompt=prompt)])
    asyncio.run(_choose(asked, name, where, k, as_json or prompt is None))


async def _choose(
    asked: Iterator[PromptRow], name: str, where: str | Path, k: int, as_lines: bool
) -> None:
    async with open_store(where, create=False) as store, Router.open(name, store) as router:
        for row in asked:
            chosen = router.choose(row.prompt, k)
            if not as_lines:
                typer.echo("\n".join(chosen))
                continue
            answer = {"prompt": row.prompt, "shown": chosen, "version": router.version}
            typer.echo(json.dumps(answer, ensure_ascii=False))
            sys.stdout.flush()  # the program that asked is waiting


def _stdin(model: type[_Row]) -> Iterator[_Row]:
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            yield parse_line(model, line, f"stdin, line {number}")


def serve_study(opening: AbstractAsyncContextManager[Service], k: int, *, as_json: bool) -> None:
    """Serve every example of a study, printing JSON lines, or totals at the end."""
    asyncio.run(_serve(opening, k, as_json))


async def _serve(opening: AbstractAsyncContextManager[Service], k: int, as_json: bool) -> None:
    totals = _Totals()
    async with opening as service:
        for number, example in enumerate(service.parts.examples, start=1):
            served = await service.serve(example, k)
            if served is None:
                break
            totals.add(served)
            if as_json:
                typer.echo(json.dumps(_line(served), ensure_ascii=False))
                sys.stdout.flush()  # the program that reads is waiting
            if number % _SAVE_EVERY == 0:
                await service.router.save()
        version = await service.router.save()
    if not as_json:
        _print_totals(service, totals, version)


@dataclass(slots=True)
class _Totals:
    """Counts and scores of the prompts so far."""

    served: int = 0
    learnt: int = 0
    best: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def add(self, served: Served) -> None:
        """Count one prompt in."""
        self.served += 1
        self.learnt += served.learnt
        if served.winner is not None and served.winner.score is not None:
            self.best.append(served.winner.score)
        if served.answers[0].score is not None:
            self.first.append(served.answers[0].score)


def _print_totals(service: Service, totals: _Totals, version: int) -> None:
    spent, run_id = service.spent, service.run_id
    typer.echo(
        f"{totals.served} of {len(service.parts.examples)} prompts, {spent.calls:,} calls, "
        f"{spent.tokens:,} tokens, cost {cost_text(spent.usd_nanos, priced=service.priced)}: "
        f"mean score of the best answer "
        f"{_mean(totals.best)}, of the first choice {_mean(totals.first)}"
    )
    typer.echo(
        f"router {safe(service.router.name)}, version {version}: learned from {totals.learnt:,} "
        f"of them"
    )
    typer.echo(f"run {run_id}: `bestarm-agent show {run_id}` says what each candidate did and cost")
    if totals.served < len(service.parts.examples):
        typer.echo("the budget ended, or nothing can be called any more")


def _mean(scores: Sequence[float]) -> str:
    return f"{sum(scores) / len(scores):.3f}" if scores else "unknown"


def _line(served: Served) -> Mapping[str, object]:
    winner = served.winner
    return {
        "example": served.example.id,
        "shown": [answer.candidate for answer in served.answers],
        "winner": None if winner is None else winner.candidate,
        "answer": None if winner is None else winner.answer,
        "scores": {a.candidate: a.score for a in served.answers},
        "usd": {a.candidate: a.usd for a in served.answers},
        "problems": {a.candidate: a.problem for a in served.answers if a.problem is not None},
        "learnt": served.learnt,
    }
