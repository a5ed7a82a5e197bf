"""``certify``: the cheapest candidate that is provably good enough."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.options import (
    Count,
    Keyed,
    Number,
    RunOptions,
    Showing,
    StudyFile,
    StudyPlace,
    Text,
    UsdOption,
    overrides,
)


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """Values of the section ``certify``: the target, who scores, how it is tested."""

    risk: Annotated[
        Number, Keyed("certify.risk", "Largest mean loss that is good enough; 0.1.")
    ] = None
    confidence: Annotated[
        Number, Keyed("certify.confidence", "Probability that no bad candidate is certified; 0.9.")
    ] = None
    judge: Annotated[Text, Keyed("certify.judge.name", "The autoevaluator, such as rubric.")] = None
    labels: Annotated[Path | None, typer.Option(help="Labels, .jsonl: id and target.")] = None
    order: Annotated[
        Text,
        Keyed("certify.order", "Try candidates from large to small cost or prompt; or given."),
    ] = None
    method: Annotated[
        Text, Keyed("certify.method", "r-eval, r-autoeval, r-autoeval+ (the default).")
    ] = None
    betting: Annotated[Text, Keyed("certify.betting", "portfolio (the default), plug-in.")] = None
    max_labels: Annotated[
        Count, Keyed("certify.max_labels", "Most labels that may be used.", min=1)
    ] = None
    per_label: Annotated[
        Count, Keyed("certify.per_label", "Unlabelled examples per label.", min=1)
    ] = None
    correction: Annotated[
        Text,
        Keyed("certify.correction", "For many candidates: sequence (the default), bonferroni."),
    ] = None
    budget_usd: UsdOption = None


def certify(
    file: StudyFile,
    options: CertifyOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
) -> None:
    """Find the cheapest candidate whose risk is at most a target, from few labels."""
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.study import Study

    changes = overrides(options, run)
    if options.labels is not None:  # relative to the study, so that the run can be moved
        changes["certify.labels"] = Path(
            os.path.relpath(options.labels, file.path.parent)
        ).as_posix()
    study = resolve(file.path, changes)
    if study.config.certify is None:
        raise ConfigError(
            f"{file.path} has no section `certify`; write one, or say what is good enough "
            f"and who scores: --risk 0.1 --judge NAME"
        )
    run_study(Study.open(study, options=place.options()), None, showing)
