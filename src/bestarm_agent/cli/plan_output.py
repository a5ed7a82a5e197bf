"""The cost plan of a study, as tables or JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.cli.options import StudyPlace
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.setup.cost_plan import Plan, make_plan
from bestarm_agent.engine.setup.open_run import store_of
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import counted
from bestarm_agent.report.text import cost_text, duration, money, safe
from bestarm_agent.stats.mcnemar import examples_needed
from bestarm_agent.store.registry import StorePlace, open_store
from bestarm_agent.store.run_state import RunState, fold

_SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of examples on which one of two candidates is right
_POWER = 0.8


def show_plan(
    parts: StudyParts, store: str | None, *, detect: float | None = None, as_json: bool
) -> None:
    """Print what a study would cost, learning from its latest run in the store.

    ``detect``: print also how many examples a difference of accuracy of that size needs.
    """
    where = store_of(parts.study, StudyPlace(store).options())
    earlier = asyncio.run(_latest_run(parts, where)) if _exists(where) else []
    plan = make_plan(parts, earlier)
    level = 1 - parts.config.selector.level
    needed = {} if detect is None else _examples_needed(detect, level)
    if as_json:
        shown = asdict(plan) | ({"detect": needed} if needed else {})
        typer.echo(json.dumps(shown, indent=2))
        return
    _print_plan(plan)
    if detect is not None:
        _print_needed(plan, detect, level, needed)


def _examples_needed(detect: float, level: float) -> dict[str, int]:
    """Return the examples needed by the share on which exactly one of two candidates is right."""
    shares = [share for share in (*_SHARES, 1.0) if share >= detect]
    return {
        f"{share:g}": examples_needed(detect, share, level=level, power=_POWER)
        for share in shares[: len(_SHARES)]
    }


def _print_needed(plan: Plan, detect: float, level: float, needed: dict[str, int]) -> None:
    console = stdout_console()
    console.print(
        f"A difference of {detect:g} between two candidates, found with probability {_POWER:g} by "
        f"McNemar's test at {1 - level:.0%} on common examples, scored 0 or 1; there are "
        f"{counted(plan.n_examples, 'example')}:"
    )
    table = plain_table(right=("one of the two is right on", "examples needed"))
    for share, count in needed.items():
        table.add_row(f"{float(share):.0%}", f"{count:,}")
    console.print(table)
    console.print("A run's intervals hold at all times and for all candidates, and need more.")


def _exists(where: StorePlace) -> bool:
    return "://" in str(where) or not isinstance(where, str | Path) or Path(where).exists()


async def _latest_run(parts: StudyParts, where: StorePlace) -> list[RunState]:
    async with open_store(where, create=False) as store:
        runs = [info for info in await store.runs() if info.name == parts.config.name]
        return [fold(await store.events_of(info.id)) for info in runs[-1:]]


def _print_plan(plan: Plan) -> None:
    console = stdout_console()
    grid = plan.n_candidates * plan.n_examples
    console.print(
        f"{counted(plan.n_candidates, 'candidate')} x {counted(plan.n_examples, 'example')} = "
        f"{counted(grid, 'pair')}; the budget allows {plan.pulls:,} ({plan.pulls / grid:.1%})"
    )
    console.print(_cost_table(plan))
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


def _cells(spend: Spend, plan: Plan) -> list[str]:
    dollars = cost_text(spend.usd_nanos, priced=not plan.unpriced)
    return [f"{spend.calls:,}", f"{spend.tokens:,}", dollars]
