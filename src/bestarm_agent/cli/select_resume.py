"""``select``, ``optimize`` and ``resume``: find the best candidate of a study."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import (
    BudgetOptions,
    Count,
    Keyed,
    Number,
    RunArgument,
    RunOptions,
    Showing,
    StudyFile,
    StudyPlace,
    Text,
    overrides,
)

if TYPE_CHECKING:
    from bestarm_agent.domain.candidate import PromptTemplate
    from bestarm_agent.engine.results.standing import Standing
    from bestarm_agent.study import Study

ShareOption = Annotated[Text, Keyed("budget.share", 'Share of the grid, such as 0.1 or "10%".')]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The selection rule and what it is to find."""

    selector: Annotated[
        Text, Keyed("selector.name", "Selection rule, such as ucb-e.", "--selector", "-s")
    ] = None
    history: Annotated[
        list[str] | None,
        Keyed("selector.history", "Earlier run or score file to learn from; may be repeated."),
    ] = None
    per: Annotated[
        Text, Keyed("selector.per", "Make the most of calls, or of dollars: call, dollar.")
    ] = None
    objective: Annotated[
        Text,
        Keyed("objective.name", "What to find: best, best-under-usd, cheapest-within-epsilon."),
    ] = None
    epsilon: Annotated[
        Number, Keyed("objective.epsilon", "How far below the best is good enough, in (0, 1).")
    ] = None
    usd_per_1k: Annotated[
        Text,
        Keyed(
            "objective.usd_per_1k_calls",
            "Dollars that 1,000 calls of the winner may cost.",
            "--usd-per-1k-calls",
        ),
    ] = None
    confidence: Annotated[
        Number, Keyed("selector.confidence", "Stop once the best is this certain.")
    ] = None
    confirm: Annotated[
        Text,
        Keyed(
            "confirm.share",
            'Keep this share of the examples back for the winner, such as 0.2 or "20%".',
        ),
    ] = None
    baseline: Annotated[
        Text, Keyed("confirm.baseline", "Candidate that answers the examples kept back, too.")
    ] = None
    within: Annotated[
        Number, Keyed("stop.within", "Stop once the leader is shown to be this near the best.")
    ] = None
    budget_share: ShareOption = None


@dataclass(frozen=True, slots=True)
class ProposerOptions:
    """The function that proposes prompts, and what becomes of them."""

    proposer: Annotated[
        Text,
        Keyed("optimize.proposer", "Function that proposes prompts, as module:function, or gepa."),
    ] = None
    rounds: Annotated[
        Count, Keyed("optimize.rounds", "Times that it is asked at most; 4 if not given.", min=1)
    ] = None
    proposer_model: Annotated[
        Text,
        Keyed("optimize.model", "Model that it asks, as provider/model; else the leader's own."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="File for the winner's prompt, to be read by studies.")
    ] = None


def select(
    file: StudyFile,
    rule: RuleOptions,
    budget: BudgetOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
) -> None:
    """Find the best candidate from a small part of the calls."""
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.optimization.rounds import run_as_configured
    from bestarm_agent.study import Study

    study = resolve(file.path, overrides(rule, budget, run))
    run_study(Study.open(study, options=place.options()), None, showing, drive=run_as_configured)


def optimize(
    file: StudyFile,
    proposing: ProposerOptions,
    rule: RuleOptions,
    budget: BudgetOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
) -> None:
    """Find the best candidate, and let a function propose better prompts meanwhile.

    The budget is divided among the rounds. After each, the function is given the leading candidate
    with its wrong answers, and what it returns joins the run. `resume` goes on with the rounds.
    """
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.optimization.rounds import load_proposer, run_as_configured
    from bestarm_agent.study import Study

    study = resolve(file.path, overrides(proposing, rule, budget, run))
    if study.config.optimize is None:
        raise ConfigError("who proposes prompts is not said; name a function by --proposer")
    load_proposer(study.config.optimize.proposer, study.base_dir)  # fails before a run begins

    async def drive(study: Study) -> Standing:
        standing = await run_as_configured(study)
        if proposing.out is not None and standing.winner is not None:
            _write_prompt(standing.winner.candidate.prompt, proposing.out)
        return standing

    run_study(Study.open(study, options=place.options()), None, showing, drive=drive)


def resume(
    budget: BudgetOptions,
    place: StudyPlace,
    showing: Showing,
    budget_share: ShareOption = None,
    run: RunArgument = None,
) -> None:
    """Go on with a run, with more budget, or after an interruption or a crash.

    A --budget-... given here is what may be spent beyond what the run has spent already. The run
    goes on as it began: after an edit of the study, `select` it again; that reuses all answers.
    """
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.config.settings import more_budget
    from bestarm_agent.optimization.rounds import run_as_configured
    from bestarm_agent.study import Study

    caps = {name.removeprefix("budget_"): cap for name, cap in asdict(budget).items()}
    more = more_budget(**caps, share=budget_share)
    where, found = find_run(run, place.store)
    run_study(
        Study.resume(found, options=place.options(where)), more, showing, drive=run_as_configured
    )


def _write_prompt(prompt: PromptTemplate, path: Path) -> None:
    """Write a text as it is, and chat messages as JSON, which is YAML: studies read both."""
    import json

    from bestarm_agent.errors import ConfigError

    text = prompt.text or json.dumps(prompt.as_json(), indent=2, ensure_ascii=False)
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the winner's prompt cannot be written to {path} ({error.strerror}); the run is kept, "
            "and its report shows the prompt"
        ) from error
