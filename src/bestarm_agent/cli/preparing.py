"""``init``, ``validate`` and ``plan``: everything before the first call."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.catalog import Catalog
from bestarm_agent.cli.options import (
    CandidatesOption,
    CatalogOption,
    JsonOption,
    StoreOption,
    default_catalogs,
    study_options,
)
from bestarm_agent.cli.results import stdout_console
from bestarm_agent.config.settings import resolve
from bestarm_agent.config.starter import write_starter
from bestarm_agent.domain.spend import Spend
from bestarm_agent.opening import store_of
from bestarm_agent.plan import Plan, make_plan, ready_entries
from bestarm_agent.store.fold import RunState, fold
from bestarm_agent.store.sql import SqlStore
from bestarm_agent.wording import duration, money, safe


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(init)
    app.command()(validate)
    app.command()(plan)


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("study.yaml"),
) -> None:
    """Write a commented study file to start from; an existing file is never overwritten."""
    written = write_starter(path)
    typer.echo(f"written: {', '.join(map(str, written))}")
    typer.echo(f"it runs as it is: bestarm-agent select --candidates {path}")


def validate(candidates: CandidatesOption, catalog: CatalogOption = None) -> None:
    """Check a study file and all that it names; no call is made."""
    parts = _parts(candidates, catalog)
    ready_entries(parts)
    for notice in parts.notices:
        Console(stderr=True).print(f"notice: {safe(notice)}", markup=False, highlight=False)
    typer.echo(
        f"{candidates} is valid: {len(parts.candidates)} candidates x "
        f"{len(parts.examples)} examples, scorer {parts.judge.name}"
    )


def plan(
    candidates: CandidatesOption,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a study would cost, expected and worst case; no call is made."""
    parts = _parts(candidates, catalog)
    where = store_of(parts.study, study_options(store, catalog))
    earlier = asyncio.run(_earlier_runs(parts, where)) if _exists(where) else []
    made = make_plan(parts, earlier)
    if as_json:
        typer.echo(json.dumps(asdict(made), indent=2))
    else:
        _print_plan(made)


def _parts(path: Path, catalogs: list[Path] | None) -> Parts:
    study = resolve(path)
    return assemble(study, Catalog(study.base_dir, default_catalogs(catalogs)))


def _exists(where: str | Path) -> bool:
    return "://" in str(where) or Path(where).exists()


async def _earlier_runs(parts: Parts, where: str | Path) -> list[RunState]:
    async with await SqlStore.connect(where, create=False) as store:
        runs = [info for info in await store.runs() if info.name == parts.config.name]
        return [fold(await store.events_of(info.id)) for info in runs[-1:]]


def _print_plan(plan: Plan) -> None:
    console = stdout_console()
    grid = plan.n_candidates * plan.n_examples
    console.print(
        f"{plan.n_candidates} candidates x {plan.n_examples} examples = {grid:,} pairs; the budget "
        f"allows {plan.pulls:,} ({plan.pulls / grid:.1%})"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("calls", "tokens", "dollars"):
        table.add_column(name, justify="right")
    expected = "expected" if plan.learned else "expected, at most"
    table.add_row(expected, *_cells(plan.expected, plan))
    table.add_row("worst case", *_cells(plan.worst, plan))
    console.print(table)
    if plan.sure_pulls < plan.pulls:
        console.print(
            f"The caps pay for {plan.sure_pulls:,} pairs even at the most that each costs"
        )
    console.print(_price_table(plan))
    if plan.minutes is None:
        console.print("Time: not known before a first run of this study")
    else:
        console.print(
            f"Time: about {duration(60 * plan.minutes)}, by the last run and the rate limits"
        )
    for notice in plan.notices:
        console.print(f"notice: {safe(notice)}", markup=False)


def _price_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("model", "price from", "one call, at most"):
        table.add_column(name, justify="right" if "call" in name else "left")
    for price in plan.prices:
        most = "unknown" if price.most_usd_nanos is None else money(price.most_usd_nanos)
        judge = " (judge)" if price.role == "judge" else ""
        table.add_row(safe(price.model) + judge, safe(price.source or "unknown"), most)
    return table


def _cells(spend: Spend, plan: Plan) -> list[str]:
    dollars = money(spend.usd_nanos) + (" + unknown prices" if plan.unpriced else "")
    return [f"{spend.calls:,}", f"{spend.tokens:,}", dollars]
