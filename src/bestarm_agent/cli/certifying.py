"""``certify``: the cheapest candidate that is provably good enough."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from bestarm_agent.certification.multiple import CORRECTIONS
from bestarm_agent.certifying.finding import Finding
from bestarm_agent.cli.certifying_options import (
    BettingOption,
    ChooseOption,
    CorrectionOption,
    FactorsOption,
    GuessOption,
    JudgeOption,
    LabelsOption,
    LossesOption,
    MaxLabelsOption,
    MethodOption,
    OrderOption,
    PlotOption,
    PoolOption,
    RatioOption,
    RiskOption,
    StudyOption,
    SureOption,
    TrueOption,
    checked_goal,
    checked_method,
    known,
)
from bestarm_agent.cli.certifying_results import show_finding
from bestarm_agent.cli.options import (
    CatalogOption,
    Display,
    DisplayOption,
    InFlightOption,
    JsonOption,
    NoCacheOption,
    OutputOption,
    QuietOption,
    SeedOption,
    StoreOption,
    UsdOption,
    overrides,
    study_options,
)
from bestarm_agent.cli.running import EXIT_NO_GUARANTEE, EXIT_OK, Showing, run_study
from bestarm_agent.config.settings import resolve
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.certifying import Terms, alternatives, certify_table
from bestarm_agent.simulation.figures import check_figure_path
from bestarm_agent.simulation.losses import LossTable, load_losses
from bestarm_agent.study import Study


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(certify)


def certify(  # noqa: PLR0913 - one argument per option
    candidates: StudyOption = None,
    losses: LossesOption = None,
    risk: RiskOption = None,
    confidence: SureOption = None,
    order: OrderOption = None,
    judge: JudgeOption = None,
    labels: LabelsOption = None,
    method: MethodOption = None,
    betting: BettingOption = None,
    factors: FactorsOption = None,
    max_labels: MaxLabelsOption = None,
    per_label: RatioOption = None,
    correction: CorrectionOption = None,
    true: TrueOption = "losses",
    guess: GuessOption = None,
    pool: PoolOption = False,
    choose_labels: ChooseOption = False,
    seed: SeedOption = None,
    budget_usd: UsdOption = None,
    in_flight: InFlightOption = None,
    output_dir: OutputOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    display: DisplayOption = Display.AUTO,
) -> None:
    """Find the cheapest candidate whose risk is at most a target, from few labels."""
    if plot is not None:
        check_figure_path(plot)
    section = overrides(risk=risk, confidence=confidence, order=order, method=method)
    section |= overrides(
        betting=betting, factors=factors, max_labels=max_labels, per_label=per_label
    )
    if losses is not None and candidates is None:
        _refuse("--losses", {"--judge": judge, "--labels": labels, "--budget-usd": budget_usd})
        terms = _terms(section, correction, seed or 0, pool=pool, choose=choose_labels)
        _from_table(load_losses(losses, losses=true, guesses=guess), terms, plot, as_json=as_json)
    elif candidates is not None and losses is None:
        _refuse("--candidates", {"--guess": guess, "--choose-labels": choose_labels})
        section |= _judges(judge) | overrides(labels=_seen_from(candidates, labels))
        section |= overrides(pool=pool or None, correction=correction)
        changes = {f"certify.{key}": value for key, value in section.items()}
        changes |= overrides(selector__seed=seed, budget__usd=budget_usd, output_dir=output_dir)
        study = resolve(candidates, {**changes, "limits.in_flight": in_flight})
        if study.config.certify is None:
            raise ConfigError(
                f"{candidates} has no section `certify`; write one, or say what is good enough "
                f"and who scores: --risk 0.1 --judge NAME"
            )
        opening = Study.open(
            study,
            options=study_options(store, catalog, no_cache=no_cache),
        )
        run_study(opening, None, Showing(as_json, quiet, display, plot))
    else:
        raise ConfigError("say what to certify: either --candidates STUDY or --losses TABLE.npz")


def _refuse(mode: str, given: Mapping[str, object]) -> None:
    """Refuse options that would be without effect."""
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option} does not go with {mode}; leave it out")


def _judges(names: list[str] | None) -> dict[str, Any]:
    """Autoevaluators by name; the first one keeps the options that the study gives it."""
    if not names:
        return {}
    return {"judge.name": names[0]} | ({"more_judges": names[1:]} if names[1:] else {})


def _seen_from(study: Path, labels: Path | None) -> str | None:
    """A path of the command line as a study file writes it, so that the run can be moved."""
    return None if labels is None else Path(os.path.relpath(labels, study.parent)).as_posix()


def _terms(
    section: Mapping[str, Any], correction: str | None, seed: int, *, pool: bool, choose: bool
) -> Terms:
    labels = section.get("max_labels")
    return Terms(
        goal=checked_goal(section.get("risk"), section.get("confidence")),
        method=checked_method(
            section.get("method"), section.get("betting"), section.get("factors"), labels
        ),
        order=section.get("order", "cost"),
        correction=known("--correction", correction or CORRECTIONS[0], CORRECTIONS),
        max_labels=labels,
        ratio=section.get("per_label"),
        pool=pool or choose,
        choose=choose,
        seed=seed,
    )


def _from_table(table: LossTable, terms: Terms, plot: Path | None, *, as_json: bool) -> None:
    found = Finding(
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
