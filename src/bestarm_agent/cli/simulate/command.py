"""``simulate``: how much of an evaluation a selection rule would have saved."""

from __future__ import annotations

import typer

from bestarm_agent.cli.option_groups import expanded
from bestarm_agent.cli.simulate.options import MatrixOptions, OutputOptions, ReplayOptions


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(expanded(simulate))


def simulate(matrix: MatrixOptions, replay: ReplayOptions, output: OutputOptions) -> None:
    """Replay selection rules on known scores: what would be saved?"""
    from bestarm_agent.cli.simulate.replay import run_replay

    run_replay(matrix, replay, output)
