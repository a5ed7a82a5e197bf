"""The cost plan of a study, as tables or JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace

import typer
from rich.table import Table

from bestarm_agent.cli.options import StudyPlace
from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.setup.history import learn_from_history
from bestarm_agent.engine.setup.open_run import store_of
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.engine.setup.plan import (
    POWER,
    Detectable,
    Plan,
    examples_to_detect,
    kept_back,
    make_plan,
)
from bestarm_agent.errors import counted
from bestarm_agent.report.words import cost_text, money, safe


def show_plan(
    parts: StudyParts, store: str | None, *, detect: float | None = None, as_json: bool
) -> None:
    """Print what a study would cost, and what its history teaches.

    ``detect``: print also how many examples a difference of accuracy of that size needs.
    """
    plan = make_plan(parts)
    where = store_of(parts.study, StudyPlace(store).options())
    _, said = asyncio.run(learn_from_history(parts, where, keeps=False))
    plan = replace(plan, notices=(*plan.notices, *said))
    needed = None if detect is None else examples_to_detect(parts, detect)
    kept = kept_back(parts)
    if as_json:
        shown = asdict(plan) | ({} if kept is None else {"confirm": asdict(kept)})
        if needed is not None:
            shown |= {"detect": needed.once, "detect_at_all_times": needed.at_all_times}
        typer.echo(json.dumps(shown, indent=2))
        return
    _print_plan(plan, parts.judge.name)
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


def _print_plan(plan: Plan, judge: str) -> None:
    console = stdout_console()
    grid = plan.n_candidates * plan.n_examples
    share = f"; the budget allows {plan.pulls:,} ({plan.pulls / grid:.1%})"
    console.print(
        f"{counted(plan.n_candidates, 'candidate')} x {counted(plan.n_examples, 'example')} = "
        f"{counted(grid, 'pair')}{share if plan.pulls < grid else ''}; scorer {judge}"
    )
    console.print(_cost_table(plan))
    if plan.sure_pulls < plan.pulls:
        console.print(
            f"The caps pay for {plan.sure_pulls:,} pairs even at the most that each costs"
        )
    console.print(_price_table(plan))
    for notice in plan.notices:
        console.print(f"notice: {safe(notice)}", markup=False)


def _cost_table(plan: Plan) -> Table:
    table = plain_table("", right=("calls", "tokens", "dollars"))
    table.add_row("expected, at most", *_cells(plan.expected, plan))
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
