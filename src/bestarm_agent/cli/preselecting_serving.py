"""``preselect run``: let the candidates that a router chooses answer prompts, and let it learn."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.options import (
    CallsOption,
    CatalogOption,
    JsonOption,
    StoreOption,
    UsdOption,
    overrides,
    study_options,
)
from bestarm_agent.config.settings import resolve
from bestarm_agent.domain.spend import usd
from bestarm_agent.routing.served import Served
from bestarm_agent.routing.service import Service
from bestarm_agent.routing.settings import parse_settings
from bestarm_agent.wording import safe

_SAVE_EVERY = 50  # prompts: what a crash can lose of what was learnt; replies are kept at once


def run(  # noqa: PLR0913 - one argument per option
    study: Annotated[Path, typer.Argument(help="Study file: candidates, prompts, scorer, budget.")],
    k: Annotated[int, typer.Option("--k", "-k", help="Candidates to run per prompt.")] = 2,
    router: Annotated[str, typer.Option("--router", "-r", help="Name of the router.")] = "default",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of a new router, such as rule=thompson; repeatable."),
    ] = None,
    budget_usd: UsdOption = None,
    budget_calls: CallsOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a study's examples one after the other by the k candidates that the router chooses.

    The study's scorer says who was best, and the router learns. The budget is kept as in a run.
    """
    changes = overrides(budget__usd=budget_usd, budget__calls=budget_calls)
    made = parse_settings(settings) if settings else None
    opening = Service.open(
        resolve(study, changes),
        router=router,
        settings=made,
        options=study_options(store, catalog, no_cache=False),
    )
    asyncio.run(_run(opening, k, as_json))


async def _run(opening: AbstractAsyncContextManager[Service], k: int, as_json: bool) -> None:
    totals = Totals()
    async with opening as service:
        for number, example in enumerate(service.parts.examples, start=1):
            served = await service.serve(example, k)
            if served is None:
                break
            totals.add(served)
            if as_json:
                typer.echo(json.dumps(_line(served), ensure_ascii=False))
                sys.stdout.flush()  # whoever asked is waiting
            if number % _SAVE_EVERY == 0:
                await service.router.save()
        version = await service.router.save()
        name, spent, run_id = service.router.name, service.spent, service.run_id
    if as_json:
        return
    typer.echo(
        f"{totals.served} of {len(service.parts.examples)} prompts, {spent.calls:,} calls, "
        f"{spent.tokens:,} tokens, ${usd(spent.usd_nanos):g}: mean score of the best answer "
        f"{totals.mean_best}, of the first choice {totals.mean_first}"
    )
    typer.echo(f"router {safe(name)}, version {version}: learned from {totals.learnt:,} of them")
    typer.echo(f"run {run_id}: `bestarm-agent show {run_id}` says what each candidate did and cost")
    if totals.served < len(service.parts.examples):
        typer.echo("the budget ended, or nothing can be called any more")


@dataclass(slots=True)
class Totals:
    """How the prompts so far went."""

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

    @property
    def mean_best(self) -> str:
        """Mean score of the best answer to each prompt, for people."""
        return _mean(self.best)

    @property
    def mean_first(self) -> str:
        """Mean score of the answer of the candidate chosen first, for people."""
        return _mean(self.first)


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
