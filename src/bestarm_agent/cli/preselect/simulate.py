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
from bestarm_agent.preselection.settings import parse_settings
from bestarm_agent.preselection.table_replay import Line, simulate, table_of, verdict
from bestarm_agent.report.text import safe
from bestarm_agent.simulation.rule_specs import Contender, parse_contenders


def simulate_routers(
    path: Path, rules: str, k: int, repetitions: int, settings: Sequence[str], *, as_json: bool
) -> None:
    """Replay routers of several rules on a table of all scores, and print what they gained."""
    shared = parse_settings(settings)
    by_rule = {
        one.label: parse_settings([*settings, f"rule={one.name}", *_options(one)])
        for one in parse_contenders(rules)
    }
    table, names = table_of(list(read_history(path)), shared)
    lines = simulate(table, names, by_rule, k, repetitions)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=1))
        return
    console = stdout_console()
    console.print(_table(lines, k))
    console.print(safe(verdict(lines, k, table.scores.shape[1])), markup=False)


def _options(rule: Contender) -> list[str]:
    return [f"{key}={value}" for key, value in rule.options]


def _table(lines: Sequence[Line], k: int) -> Table:
    columns = (f"best of {k}", "2nd half", "gain", "95 % interval", "first named", "cost")
    table = plain_table("policy", right=columns)
    for line in lines:
        gain = line.gain
        rule = gain if line.kind == "rule" else None
        table.add_row(
            safe(line.policy),
            f"{line.quality:.4f}",
            f"{line.late:.4f}",
            f"{gain.value:+.4f}" if gain else "",
            f"{rule.low:+.4f} to {rule.high:+.4f}" if rule else "",
            f"{line.first:.4f}",
            f"{line.usd:.4g}",
        )
    return table
