"""Runs ``certify``, from a stored table of losses or with real calls."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from bestarm_agent.certification.evidence import BETTING, Goal, Method
from bestarm_agent.certification.multiple_testing import CORRECTIONS
from bestarm_agent.certification.reliance_factors import DEFAULT_FACTORS, METHODS
from bestarm_agent.certification.tables.certify_table import Terms, alternatives, certify_table
from bestarm_agent.certification.tables.loss_tables import load_losses
from bestarm_agent.cli.certificate_output import show_finding
from bestarm_agent.cli.certify.options import CallOptions, GoalOptions, TableOptions
from bestarm_agent.cli.option_groups import overrides
from bestarm_agent.cli.options import RunOptions, Showing, StudyPlace
from bestarm_agent.cli.run_command import EXIT_NO_GUARANTEE, EXIT_OK, run_study
from bestarm_agent.config.environment_settings import resolve
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.report.certificate import CertificateSummary
from bestarm_agent.study import Study

_DEFAULT_RISK = 0.1
_DEFAULT_CONFIDENCE = 0.9


def certify_losses(
    path: Path,
    arrays: TableOptions,
    goal: GoalOptions,
    seed: int,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Certify from a stored table, show the result and exit with its code."""
    table = load_losses(path, losses=arrays.true, guesses=arrays.guess)
    terms = _terms(goal, seed, choose=arrays.choose_labels)
    found = CertificateSummary(
        certificate=certify_table(table, terms),
        names=table.names,
        goal=terms.goal,
        method=terms.method,
        correction=terms.correction,
        reliance=terms.method.reliance(len(table.guesses)),
        alternatives=alternatives(table, terms),
    )
    show_finding(found, as_json=as_json, plot=plot)
    raise typer.Exit(EXIT_OK if found.certificate.chosen is not None else EXIT_NO_GUARANTEE)


def certify_calls(
    path: Path,
    calls: CallOptions,
    goal: GoalOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
    plot: Path | None,
) -> None:
    """Certify a study with real calls, show the result and exit with its code.

    Raises ConfigError if the study has no section ``certify`` and no option stands for it.
    """
    changes = overrides(goal, calls, run) | _judges(calls.judge)
    if calls.labels is not None:
        changes["certify.labels"] = _seen_from(path, calls.labels)
    if goal.pool:
        changes["certify.pool"] = True
    study = resolve(path, changes)
    if study.config.certify is None:
        raise ConfigError(
            f"{path} has no section `certify`; write one, or say what is good enough "
            f"and who scores: --risk 0.1 --judge NAME"
        )
    run_study(Study.open(study, options=place.options()), None, showing, plot)


def _judges(names: list[str] | None) -> dict[str, Json]:
    """Return the judges by name; the first one keeps the options that the study gives it."""
    if not names:
        return {}
    more: dict[str, Json] = {"certify.more_judges": names[1:]} if names[1:] else {}
    return {"certify.judge.name": names[0], **more}


def _seen_from(study: Path, labels: Path) -> str:
    """Return a path relative to the study file, so that the run can be moved."""
    return Path(os.path.relpath(labels, study.parent)).as_posix()


def _terms(options: GoalOptions, seed: int, *, choose: bool) -> Terms:
    method = Method(
        _known("--method", options.method or METHODS[-1], METHODS),
        _known("--betting", options.betting or BETTING[0], BETTING),
        n_factors=DEFAULT_FACTORS if options.factors is None else options.factors,
        horizon=options.max_labels,
    )
    return Terms(
        goal=_goal(options.risk, options.confidence),
        method=method,
        order=options.order or "cost",
        correction=_known("--correction", options.correction or CORRECTIONS[0], CORRECTIONS),
        max_labels=options.max_labels,
        ratio=options.per_label,
        pool=options.pool or choose,
        choose=choose,
        seed=seed,
    )


def _goal(risk: float | None, confidence: float | None) -> Goal:
    risk = _DEFAULT_RISK if risk is None else risk
    confidence = _DEFAULT_CONFIDENCE if confidence is None else confidence
    for option, value in (("--risk", risk), ("--confidence", confidence)):
        if not 0.0 < value < 1.0:
            raise ConfigError(f"{option} must be between 0 and 1, got {value}")
    return Goal(risk, 1.0 - confidence)


def _known(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ConfigError(f"{option}: there is no {value!r}; {nearest(value, choices)}")
    return value
