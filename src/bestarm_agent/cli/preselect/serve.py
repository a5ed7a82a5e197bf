"""Runs ``preselect run``: the candidates that a router chooses answer prompts, and it learns."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import typer

from bestarm_agent.preselection.answers import Served
from bestarm_agent.preselection.serving import Service
from bestarm_agent.report.text import cost_text, safe

_SAVE_EVERY = 50  # prompts: the most that a crash can lose of what was learnt; replies are durable


def serve_study(opening: AbstractAsyncContextManager[Service], k: int, *, as_json: bool) -> None:
    """Serve every example of a study, printing JSON lines, or totals at the end."""
    asyncio.run(_serve(opening, k, as_json))


async def _serve(opening: AbstractAsyncContextManager[Service], k: int, as_json: bool) -> None:
    totals = Totals()
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


def _print_totals(service: Service, totals: Totals, version: int) -> None:
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


@dataclass(slots=True)
class Totals:
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
