"""``certify``: the cheapest candidate that is provably good enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.certification.evidence import BETTING, Goal, Method
from bestarm_agent.certification.multiple import CORRECTIONS
from bestarm_agent.certification.reliance import DEFAULT_FACTORS, METHODS
from bestarm_agent.cli.certifying_results import certificate_json, print_certificate
from bestarm_agent.cli.options import JsonOption
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.simulation.certify_figures import draw_certificate
from bestarm_agent.simulation.certifying import Terms, alternatives, certify_table
from bestarm_agent.simulation.figures import check_figure_path
from bestarm_agent.simulation.losses import load_losses

EXIT_OK = 0
EXIT_NO_GUARANTEE = 3

LossesOption = Annotated[
    Path | None, typer.Option("--losses", help="Table of losses, .npz: see docs/certification.md.")
]
RiskOption = Annotated[float, typer.Option("--risk", help="Largest mean loss that is good enough.")]
SureOption = Annotated[
    float, typer.Option("--confidence", help="Probability that no bad candidate is certified.")
]
OrderOption = Annotated[
    str,
    typer.Option("--order", help="Try candidates from large to small: cost, size, ...; or given."),
]
MethodOption = Annotated[str, typer.Option("--method", help=f"{', '.join(METHODS)}.")]
BettingOption = Annotated[str, typer.Option("--betting", help=f"{', '.join(BETTING)}.")]
FactorsOption = Annotated[
    int, typer.Option("--factors", min=2, help="Reliance factors of r-autoeval+.")
]
CorrectionOption = Annotated[
    str, typer.Option("--correction", help=f"For many candidates: {', '.join(CORRECTIONS)}.")
]
TrueOption = Annotated[str, typer.Option("--true", help="Array of true losses in the table.")]
GuessOption = Annotated[
    list[str] | None,
    typer.Option("--guess", help="Array of an autoevaluator's losses; may be repeated."),
]
MaxLabelsOption = Annotated[
    int | None, typer.Option("--max-labels", min=1, help="Most labels that may be used.")
]
RatioOption = Annotated[
    int | None, typer.Option("--per-label", min=1, help="Unlabelled examples per label.")
]
PoolOption = Annotated[
    bool, typer.Option("--pool", help="Ask for the mean loss over exactly these examples.")
]
ChooseOption = Annotated[
    bool, typer.Option("--choose-labels", help="Choose what to label next; implies --pool.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of examples.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw e-values and weights: .svg, .png or .pdf.")
]


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(certify)


def certify(  # noqa: PLR0913 - one argument per option
    losses: LossesOption = None,
    risk: RiskOption = 0.1,
    confidence: SureOption = 0.9,
    order: OrderOption = "cost",
    method: MethodOption = "r-autoeval+",
    betting: BettingOption = "portfolio",
    factors: FactorsOption = DEFAULT_FACTORS,
    correction: CorrectionOption = "sequence",
    true: TrueOption = "losses",
    guess: GuessOption = None,
    max_labels: MaxLabelsOption = None,
    per_label: RatioOption = None,
    pool: PoolOption = False,
    choose_labels: ChooseOption = False,
    seed: SeedOption = 0,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the cheapest candidate whose risk is at most a target, from few labels."""
    if losses is None:
        raise ConfigError("say what to certify from: --losses TABLE.npz")
    if plot is not None:
        check_figure_path(plot)
    terms = Terms(
        goal=checked_goal(risk, confidence),
        method=checked_method(method, betting, factors, max_labels),
        order=order,
        correction=known("--correction", correction, CORRECTIONS),
        max_labels=max_labels,
        ratio=per_label,
        pool=pool or choose_labels,
        choose=choose_labels,
        seed=seed,
    )
    table = load_losses(losses, losses=true, guesses=guess)
    found = certify_table(table, terms)
    others = alternatives(table, terms)
    if plot is not None:
        reliance = terms.method.reliance(len(table.guesses))
        draw_certificate(plot, found, table.names, terms.goal, reliance)
    if as_json:
        typer.echo(json.dumps(certificate_json(found, table, terms, others), indent=1))
    else:
        print_certificate(found, table, terms, others)
    raise typer.Exit(EXIT_NO_GUARANTEE if found.chosen is None else EXIT_OK)


def checked_goal(risk: float, confidence: float) -> Goal:
    """Turn options into a goal.

    Raises:
        ConfigError: one of them is out of range.
    """
    for option, value in (("--risk", risk), ("--confidence", confidence)):
        if not 0.0 < value < 1.0:
            raise ConfigError(f"{option} must be between 0 and 1, got {value}")
    return Goal(risk, 1.0 - confidence)


def checked_method(name: str, betting: str, factors: int, horizon: int | None) -> Method:
    """Turn options into a method.

    Raises:
        ConfigError: there is no such method or betting rule.
    """
    return Method(
        known("--method", name, METHODS),
        known("--betting", betting, BETTING),
        n_factors=factors,
        horizon=horizon,
    )


def known(option: str, value: str, choices: tuple[str, ...]) -> str:
    """Check that an option's value is one of the choices.

    Raises:
        ConfigError: it is not.
    """
    if value not in choices:
        raise ConfigError(f"{option}: there is no {value!r}; {nearest(value, choices)}")
    return value
