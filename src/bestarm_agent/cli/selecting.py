"""``select`` and ``resume``: find the best candidate of a study."""

from __future__ import annotations

import typer

from bestarm_agent.cli.options import (
    CallsOption,
    CandidatesOption,
    CatalogOption,
    ConfidenceOption,
    Display,
    DisplayOption,
    EpsilonOption,
    HistoryOption,
    InFlightOption,
    JsonOption,
    MinutesOption,
    NoCacheOption,
    ObjectiveOption,
    OutputOption,
    PerOption,
    PullsOption,
    QuietOption,
    RunArgument,
    SeedOption,
    SelectorOption,
    ShareOption,
    StoreOption,
    TokensOption,
    UsdOption,
    UsdPer1kOption,
    default_store,
    overrides,
    study_options,
)
from bestarm_agent.cli.running import Showing, run_study
from bestarm_agent.config.settings import more_budget, resolve
from bestarm_agent.domain.spend import Budget
from bestarm_agent.study import Study


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command()(select)
    app.command()(resume)


def select(  # noqa: PLR0913 - one argument per option
    candidates: CandidatesOption,
    selector: SelectorOption = None,
    history: HistoryOption = None,
    per: PerOption = None,
    objective: ObjectiveOption = None,
    epsilon: EpsilonOption = None,
    usd_per_1k: UsdPer1kOption = None,
    seed: SeedOption = None,
    confidence: ConfidenceOption = None,
    budget_share: ShareOption = None,
    budget_usd: UsdOption = None,
    budget_pulls: PullsOption = None,
    budget_calls: CallsOption = None,
    budget_tokens: TokensOption = None,
    budget_minutes: MinutesOption = None,
    in_flight: InFlightOption = None,
    output_dir: OutputOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    display: DisplayOption = Display.AUTO,
) -> None:
    """Find the best candidate from a small part of the calls."""
    changes = overrides(
        selector__name=selector,
        selector__history=history,
        selector__per=per,
        objective__name=objective,
        objective__epsilon=epsilon,
        objective__usd_per_1k_calls=usd_per_1k,
        selector__seed=seed,
        selector__confidence=confidence,
        budget__share=budget_share,
        budget__usd=budget_usd,
        budget__pulls=budget_pulls,
        budget__calls=budget_calls,
        budget__tokens=budget_tokens,
        budget__minutes=budget_minutes,
        limits__in_flight=in_flight,
        output_dir=output_dir,
    )
    options = study_options(store, catalog, no_cache=no_cache)
    opening = Study.open(resolve(candidates, changes), options=options)
    run_study(opening, None, Showing(as_json=as_json, quiet=quiet, display=display))


def resume(  # noqa: PLR0913 - one argument per option
    run: RunArgument = "latest",
    budget_usd: UsdOption = None,
    budget_pulls: PullsOption = None,
    budget_calls: CallsOption = None,
    budget_tokens: TokensOption = None,
    budget_minutes: MinutesOption = None,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    no_cache: NoCacheOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    display: DisplayOption = Display.AUTO,
) -> None:
    """Go on with a run after an interruption or a crash, or with more budget.

    A --budget-... given here is what may be spent beyond what the run has spent already.
    """
    more = more_budget(
        usd=budget_usd,
        pulls=budget_pulls,
        calls=budget_calls,
        tokens=budget_tokens,
        minutes=budget_minutes,
    )
    options = study_options(default_store(store), catalog, no_cache=no_cache)
    showing = Showing(as_json=as_json, quiet=quiet, display=display)
    run_study(Study.resume(run, options=options), None if more == Budget() else more, showing)
