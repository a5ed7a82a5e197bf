"""``preselect simulate``: what routing would have been worth on a stored table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bestarm_agent.cli.options import JsonOption
from bestarm_agent.routing.history import read_history
from bestarm_agent.routing.settings import RouterSettings, parse_settings
from bestarm_agent.routing.simulating import Line, table_of, worth
from bestarm_agent.routing.simulating import simulate as run_simulation
from bestarm_agent.wording import safe

_WIDTH_WITHOUT_TERMINAL = 120


def simulate(
    matrix: Annotated[
        Path,
        typer.Argument(help="All scores: .npz, .csv or .jsonl, as for `preselect train`."),
    ],
    rules: Annotated[
        str, typer.Option("--rules", help="Rules, with commas between them.")
    ] = "random,mm,max-theta,cppl,linucb,thompson",
    k: Annotated[int, typer.Option("--k", "-k", help="Candidates run per prompt.")] = 2,
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, help="Random orders of the prompts.")
    ] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of all routers, such as cost_weight=0.1; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay routers on prompts whose every score is known; compare with fixed choices."""
    shared = parse_settings(settings or [])
    by_rule = {name: _for_rule(shared, name) for name in rules.split(",")}
    table, names = table_of(list(read_history(matrix)), shared)
    lines = run_simulation(table, names, by_rule, k, repetitions)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print(_table(lines, k))
    console.print(safe(worth(lines, k)), markup=False)


def _for_rule(settings: RouterSettings, name: str) -> RouterSettings:
    return replace(settings, rule=name.strip())


def _table(lines: Sequence[Line], k: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("policy")
    for name in (f"best of {k}", "± SE", "2nd half", "first named", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(
            safe(line.policy),
            f"{line.quality:.4f}",
            f"{line.error:.4f}" if line.error else "",
            f"{line.late:.4f}",
            f"{line.first:.4f}",
            f"{line.usd:.4g}",
        )
    return table
