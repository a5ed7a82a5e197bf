"""The cost plan of a study, as tables or JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.cli.options import StudyPlace
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.setup.cost_plan import Plan, make_plan
from bestarm_agent.engine.setup.examples_needed import (
    POWER,
    Detectable,
    examples_to_detect,
    kept_back,
)
from bestarm_agent.engine.setup.open_run import store_of
from bestarm_agent.engine.setup.placed_models import PlacedModel
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import counted
from bestarm_agent.report.text import cost_text, duration, money, safe
from bestarm_agent.store.registry import StorePlace, open_store
from bestarm_agent.store.run_state import RunState, folded


def show_plan(
    parts: StudyParts, store: str | None, *, detect: float | None = None, as_json: bool
) -> None:
    """Print what a study would cost, learning from its latest run in the store.

    ``detect``: print also how many examples a difference of accuracy of that size needs.
    """
    where = store_of(parts.study, StudyPlace(store).options())
    earlier = asyncio.run(_latest_run(parts, where)) if _exists(where) else []
    plan = make_plan(parts, earlier)
    needed = None if detect is None else examples_to_detect(parts, detect)
    kept = kept_back(parts)
    if as_json:
        shown = asdict(plan) | ({} if kept is None else {"confirm": asdict(kept)})
        shown |= {} if needed is None else needed.as_json()
        typer.echo(json.dumps(shown, indent=2))
        return
    _print_plan(plan)
    if kept is not None:
        stdout_console().print(
            f"Kept back: {kept.examples:,} examples for the winner, whose mean on such will be "
            f"known to about ±{kept.half_width:.2f}"
        )
    if needed is not None:
        _print_needed(plan, needed)


def _print_needed(plan: Plan, needed: Detectable) -> None:
    console = stdout_console()
    console.print(
        f"A difference of {needed.difference:g} between two candidates, found with probability "
        f"{POWER:g} at {1 - needed.error:.0%} on common examples, scored 0 or 1; there are "
        f"{counted(plan.n_examples, 'example')}:"
    )
    table = plain_table(
        right=("one of the two is right on", "McNemar's test, once", "a run, at all times")
    )
    for share, once in needed.once.items():
        table.add_row(f"{float(share):.0%}", f"{once:,}", f"{needed.at_all_times[share]:,}")
    console.print(table)
    console.print(
        f"A run may look after every answer, and is right for all {plan.n_candidates} candidates "
        f"together; of the {needed.n_examples:,} examples to choose by it needs all at most."
    )


def _exists(where: StorePlace) -> bool:
    return "://" in str(where) or not isinstance(where, str | Path) or Path(where).exists()


async def _latest_run(parts: StudyParts, where: StorePlace) -> list[RunState]:
    async with open_store(where, create=False) as store:
        runs = [info for info in await store.runs() if info.name == parts.config.name]
        return [await folded(store, info.id) for info in runs[-1:]]


def _print_plan(plan: Plan) -> None:
    console = stdout_console()
    grid = plan.n_candidates * plan.n_examples
    share = f"; the budget allows {plan.pulls:,} ({plan.pulls / grid:.1%})"
    console.print(
        f"{counted(plan.n_candidates, 'candidate')} x {counted(plan.n_examples, 'example')} = "
        f"{counted(grid, 'pair')}{share if plan.pulls < grid else ''}"
    )
    console.print(_cost_table(plan))
    if plan.sure_pulls < plan.pulls:
        console.print(
            f"The caps pay for {plan.sure_pulls:,} pairs even at the most that each costs"
        )
    console.print(_price_table(plan))
    if plan.placed:
        console.print(_placement_table(plan.placed))
        for line in _turns(plan.placed):
            console.print(line, markup=False)
    if plan.minutes is None:
        console.print("Time: not known before a first run of this study")
    else:
        console.print(
            f"Time: about {duration(60 * plan.minutes)}, by the last run and the rate limits"
        )
    for notice in plan.notices:
        console.print(f"notice: {safe(notice)}", markup=False)


def _cost_table(plan: Plan) -> Table:
    table = plain_table("", right=("calls", "tokens", "dollars"))
    expected = "expected" if plan.learned else "expected, at most"
    table.add_row(expected, *_cells(plan.expected, plan))
    table.add_row("worst case", *_cells(plan.worst, plan))
    return table


def _price_table(plan: Plan) -> Table:
    table = plain_table("model", "price from", right=("one call, at most",))
    for price in plan.prices:
        most = "unknown" if price.most_usd_nanos is None else money(price.most_usd_nanos)
        judge = " (judge)" if price.role == "judge" else ""
        table.add_row(safe(price.model) + judge, safe(price.source or "unknown"), most)
    return table


def _placement_table(placed: Sequence[PlacedModel]) -> Table:
    table = plain_table("model", "devices", "loaded", right=("memory of each",))
    for one in placed:
        servers = "; ".join(",".join(map(str, server)) for server in one.devices)
        loaded = "in turns" if one.turns_with else "always"
        memory = f"{one.n_bytes / 1e9:.3g} of {one.of_bytes / 1e9:.3g} GB"
        table.add_row(safe(one.model), servers, loaded, memory)
    return table


def _turns(placed: Sequence[PlacedModel]) -> list[str]:
    """Return a sentence for every set of models that take turns."""
    groups = {
        frozenset((one.model, *one.turns_with)): (one.model, *one.turns_with)
        for one in reversed(placed)
        if one.turns_with
    }
    return [
        f"{', '.join(map(safe, models))} take turns: they do not fit onto their devices together"
        for models in reversed(groups.values())
    ]


def _cells(spend: Spend, plan: Plan) -> list[str]:
    dollars = cost_text(spend.usd_nanos, priced=not plan.unpriced)
    return [f"{spend.calls:,}", f"{spend.tokens:,}", dollars]
