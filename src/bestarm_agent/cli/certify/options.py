"""Options of ``certify``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.option_groups import Keyed
from bestarm_agent.cli.options import Count, Number, Text, UsdOption


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """Values of the section ``certify``: the target and how it is tested."""

    risk: Annotated[
        Number, Keyed("certify.risk", "Largest mean loss that is good enough; 0.1.")
    ] = None
    confidence: Annotated[
        Number, Keyed("certify.confidence", "Probability that no bad candidate is certified; 0.9.")
    ] = None
    order: Annotated[
        Text,
        Keyed(
            "certify.order",
            "Try candidates from large to small: cost (the default), prompt, any array of "
            "the table such as size; or given.",
        ),
    ] = None
    method: Annotated[
        Text, Keyed("certify.method", "r-eval, r-autoeval, r-autoeval+ (the default).")
    ] = None
    betting: Annotated[Text, Keyed("certify.betting", "portfolio (the default), plug-in.")] = None
    factors: Annotated[
        Count, Keyed("certify.factors", "Reliance factors of r-autoeval+; 10.", min=2)
    ] = None
    max_labels: Annotated[
        Count, Keyed("certify.max_labels", "Most labels that may be used.", min=1)
    ] = None
    per_label: Annotated[
        Count, Keyed("certify.per_label", "Unlabelled examples per label.", min=1)
    ] = None
    correction: Annotated[
        Text,
        Keyed(
            "certify.correction", "For many candidates: sequence (the default), bonferroni, e-bh."
        ),
    ] = None
    pool: Annotated[
        bool, typer.Option("--pool", help="Ask for the mean loss over exactly these examples.")
    ] = False


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Certification from a stored table."""

    losses: Annotated[
        Path | None, typer.Option(help="Certify from a stored table, .npz; no call is made.")
    ] = None
    true: Annotated[str, typer.Option(help="Array of true losses in the table.")] = "losses"
    guess: Annotated[
        list[str] | None,
        typer.Option(help="Array of an autoevaluator's losses in the table; repeatable."),
    ] = None
    choose_labels: Annotated[
        bool, typer.Option("--choose-labels", help="Choose what to label next; implies --pool.")
    ] = False


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Certification with real calls."""

    judge: Annotated[
        list[str] | None,
        typer.Option(help="An autoevaluator of real calls, such as rubric; repeatable."),
    ] = None
    labels: Annotated[
        Path | None, typer.Option(help="Labels for real calls, .jsonl: id and target.")
    ] = None
    budget_usd: UsdOption = None
