"""``simulate``: how much of an evaluation a selection rule would have saved."""

from __future__ import annotations

from bestarm_agent.cli.simulate.options import MatrixOptions, OutputOptions, ReplayOptions


def simulate(matrix: MatrixOptions, replay: ReplayOptions, output: OutputOptions) -> None:
    """Replay selection rules on known scores: what would be saved?"""
    from bestarm_agent.cli.simulate.replay import run_replay

    run_replay(matrix, replay, output)
