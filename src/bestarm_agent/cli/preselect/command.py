"""``preselect``: learn which candidates to run for which prompt, and choose them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.options import (
    CallsOption,
    CatalogOption,
    JsonOption,
    StoreOption,
    UsdOption,
    expanded,
)

_STREAM = Path("-")

RouterOption = Annotated[str, typer.Option("--router", "-r", help="Name of the router.")]
KOption = Annotated[int, typer.Option("-k", "--k", help="Candidates to run per prompt.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of a new router, such as rule=cppl; repeatable."),
]
NamesOption = Annotated[
    Path | None,
    typer.Option("--candidates", "-c", help="JSON: names, or name and usd."),
]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The caps of ``preselect run``, and where it finds its parts."""

    budget_usd: UsdOption = None
    budget_calls: CallsOption = None
    catalog: CatalogOption = None


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    group = typer.Typer(
        help="Choose which candidates to run for a prompt. Learns which of them win.",
        no_args_is_help=True,
    )
    for command in (train, choose, run):
        group.command()(expanded(command))
    app.add_typer(group, name="preselect")


def train(
    history: Annotated[
        Path,
        typer.Argument(help='Records: a .jsonl file, or "-" for JSON lines on stdin.'),
    ] = _STREAM,
    k: KOption = 2,
    router: RouterOption = "default",
    candidates: NamesOption = None,
    settings: SettingsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from records of earlier prompts, or from a live stream of them.

    A record is {"prompt": ..., "shown": [names], and "winner", "ranking" or "scores"}. Where a file
    has scores of all candidates on all prompts, it is said whether routing would pay.
    """
    from bestarm_agent.cli.preselect.work import Training, train_router
    from bestarm_agent.cli.stores import default_or_new_store
    from bestarm_agent.preselection.records import (
        parse_settings,
        read_candidates,
        read_history,
    )

    job = Training(
        name=router,
        candidates=() if candidates is None else read_candidates(candidates),
        settings=parse_settings(settings) if settings else None,
        history=None if history == _STREAM else list(read_history(history)),
        k=k,
    )
    train_router(job, default_or_new_store(store), as_json=as_json)


def choose(
    prompt: Annotated[
        str | None,
        typer.Argument(help='The prompt; without it, JSON lines {"prompt": ...} on stdin.'),
    ] = None,
    k: KOption = 2,
    router: RouterOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the candidates to run for a prompt, the most promising first."""
    from bestarm_agent.cli.preselect.work import choose_for
    from bestarm_agent.cli.stores import default_store

    choose_for(prompt, router, default_store(store), k, as_json=as_json)


def run(
    study: Annotated[Path, typer.Argument(help="Study file: candidates, prompts, scorer, budget.")],
    limits: ServiceOptions,
    k: KOption = 2,
    router: RouterOption = "default",
    settings: SettingsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a study's examples one after the other by the k candidates that the router chooses.

    The study's scorer says who was best, and the router learns. The budget is kept as in a run.
    """
    from bestarm_agent.cli.options import StudyPlace, overrides
    from bestarm_agent.cli.preselect.work import serve_study
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.preselection.records import parse_settings
    from bestarm_agent.preselection.serve import Service

    opening = Service.open(
        resolve(study, overrides(limits)),
        router=router,
        settings=parse_settings(settings) if settings else None,
        options=StudyPlace(store, limits.catalog).options(),
    )
    serve_study(opening, k, as_json=as_json)
