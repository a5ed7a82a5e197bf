"""Options of ``bestarm-agent certify``, and how they are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from bestarm_agent.certification.evidence import BETTING, Goal, Method
from bestarm_agent.certification.multiple import CORRECTIONS
from bestarm_agent.certification.reliance import DEFAULT_FACTORS, METHODS
from bestarm_agent.errors import ConfigError, nearest

_DEFAULT_RISK = 0.1
_DEFAULT_CONFIDENCE = 0.9

LossesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--losses", help="Certify from a stored table, .npz; no call is made."),
]
StudyOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--candidates", "-c", help="Certify with real calls: the study file."),
]
RiskOption: TypeAlias = Annotated[
    float | None, typer.Option("--risk", help="Largest mean loss that is good enough; 0.1.")
]
SureOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--confidence", help="Probability that no bad candidate is certified; 0.9."),
]
OrderOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--order",
        help="Try candidates from large to small: cost (the default), prompt, any array of the "
        "table such as size; or given.",
    ),
]
MethodOption: TypeAlias = Annotated[
    str | None, typer.Option("--method", help=f"{', '.join(METHODS)} (the default).")
]
BettingOption: TypeAlias = Annotated[
    str | None, typer.Option("--betting", help=f"{' (the default), '.join(BETTING)}.")
]
FactorsOption: TypeAlias = Annotated[
    int | None, typer.Option("--factors", min=2, help="Reliance factors of r-autoeval+; 10.")
]
CorrectionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--correction",
        help=f"For many candidates: {' (the default), '.join(CORRECTIONS[:2])}, {CORRECTIONS[2]}.",
    ),
]
TrueOption: TypeAlias = Annotated[
    str, typer.Option("--true", help="Array of true losses in the table.")
]
GuessOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--guess", help="Array of an autoevaluator's losses in the table; repeatable."),
]
JudgeOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--judge", help="An autoevaluator of real calls, such as rubric; repeatable."),
]
LabelsOption: TypeAlias = Annotated[
    Path | None, typer.Option("--labels", help="Labels for real calls, .jsonl: id and target.")
]
MaxLabelsOption: TypeAlias = Annotated[
    int | None, typer.Option("--max-labels", min=1, help="Most labels that may be used.")
]
RatioOption: TypeAlias = Annotated[
    int | None, typer.Option("--per-label", min=1, help="Unlabelled examples per label.")
]
PoolOption: TypeAlias = Annotated[
    bool, typer.Option("--pool", help="Ask for the mean loss over exactly these examples.")
]
ChooseOption: TypeAlias = Annotated[
    bool,
    typer.Option("--choose-labels", help="Choose what to label next; implies --pool."),
]
PlotOption: TypeAlias = Annotated[
    Path | None, typer.Option("--plot", help="Draw e-values and weights: .svg, .png or .pdf.")
]


def checked_goal(risk: float | None, confidence: float | None) -> Goal:
    """Turn options into a goal.

    Raises:
        ConfigError: one of them is out of range.
    """
    risk = _DEFAULT_RISK if risk is None else risk
    confidence = _DEFAULT_CONFIDENCE if confidence is None else confidence
    for option, value in (("--risk", risk), ("--confidence", confidence)):
        if not 0.0 < value < 1.0:
            raise ConfigError(f"{option} must be between 0 and 1, got {value}")
    return Goal(risk, 1.0 - confidence)


def checked_method(
    name: str | None, betting: str | None, factors: int | None, horizon: int | None
) -> Method:
    """Turn options into a method.

    Raises:
        ConfigError: there is no such method or betting rule.
    """
    return Method(
        known("--method", name or METHODS[-1], METHODS),
        known("--betting", betting or BETTING[0], BETTING),
        n_factors=DEFAULT_FACTORS if factors is None else factors,
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
