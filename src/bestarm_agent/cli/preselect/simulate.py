"""Runs ``preselect simulate``: compares routing with fixed choices on a stored table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table

from bestarm_agent.cli.result_output import plain_table, stdout_console
from bestarm_agent.preselection.feedback_files import read_history
from bestarm_agent.preselection.policy_comparison import PolicyResult, simulate, table_of, verdict
from bestarm_agent.preselection.settings import parse_settings
from bestarm_agent.report.text import safe
from bestarm_agent.simulation.rule_specs import parse_contenders


def simulate_routers(
    path: Path, rules: str, k: int, repetitions: int, settings: Sequence[str], *, as_json: bool
) -> None:
    """Replay routers of several rules on a table of all scores, and print what they gained."""
    shared = parse_settings(settings)
    by_rule = {
        one.label: parse_settings(
            [*settings, f"rule={one.name}", *(f"{key}={value}" for key, value in one.options)]
        )
        for one in parse_contenders(rules)
    }
    table, names = table_of(list(read_history(path)), shared)
    results = simulate(table, names, by_rule, k, repetitions)
    if as_json:
        typer.echo(json.dumps([asdict(result) for result in results], indent=1))
        return
    console = stdout_console()
    console.print(_table(results, k))
    console.print(safe(verdict(results, k, table.scores.shape[1])), markup=False)


def _table(results: Sequence[PolicyResult], k: int) -> Table:
    columns = (f"best of {k}", "2nd half", "gain", "95 % interval", "first named", "cost")
    table = plain_table("policy", right=columns)
    for result in results:
        gain = result.gain
        rule = gain if result.kind == "rule" else None
        table.add_row(
            safe(result.policy),
            f"{result.quality:.4f}",
            f"{result.late:.4f}",
            f"{gain.value:+.4f}" if gain else "",
            f"{rule.low:+.4f} to {rule.high:+.4f}" if rule else "",
            f"{result.first:.4f}",
            f"{result.usd:.4g}",
        )
    return table
