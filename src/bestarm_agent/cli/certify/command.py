"""``certify``: the cheapest candidate that is provably good enough."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.certify.options import CallOptions, GoalOptions, TableOptions
from bestarm_agent.cli.options import STUDY_FILE, RunOptions, Showing, StudyFile, StudyPlace


def certify(
    file: StudyFile,
    goal: GoalOptions,
    table: TableOptions,
    calls: CallOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
    plot: Annotated[
        Path | None, typer.Option(help="Draw e-values and weights: .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Find the cheapest candidate whose risk is at most a target.

    From few labels, with the calls of a study, or from a stored table (--losses).
    """
    from bestarm_agent.cli.certify.sources import certify_calls, certify_losses
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.simulation.figures import check_figure_path

    if plot is not None:
        check_figure_path(plot)
    named = file.study or file.candidates
    study = named or (table.losses is None and Path(STUDY_FILE).exists())
    if (table.losses is None) != bool(study):
        raise ConfigError("say what to certify: either a study or --losses TABLE.npz")
    if table.losses is not None:
        _refuse(
            "--losses",
            {"--judge": calls.judge, "--labels": calls.labels, "--budget-usd": calls.budget_usd},
        )
        certify_losses(table.losses, table, goal, run.seed or 0, plot, as_json=showing.as_json)
    else:
        _refuse("a study", {"--guess": table.guess, "--choose-labels": table.choose_labels})
        certify_calls(file.path, calls, goal, run, place, showing, plot)


def _refuse(mode: str, given: dict[str, object]) -> None:
    from bestarm_agent.errors import ConfigError

    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} does not go with {mode}; leave it out")
