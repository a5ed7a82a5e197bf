"""``preselect``: learn which candidates to run for which prompt, and choose them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.option_groups import expanded
from bestarm_agent.cli.options import (
    CallsOption,
    CatalogOption,
    JsonOption,
    StoreOption,
    UsdOption,
)

_STREAM = Path("-")

RouterOption = Annotated[str, typer.Option("--router", "-r", help="Name of the router.")]
KOption = Annotated[int, typer.Option("-k", "--k", help="Candidates to run per prompt.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Setting of a new router, such as rule=thompson; repeatable."),
]
NamesOption = Annotated[
    Path | None,
    typer.Option("--candidates", "-c", help="JSON: names, or name, usd, size, family."),
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
    for command in (train, choose, add, run, simulate):
        group.command()(expanded(command))
    app.add_typer(group, name="preselect")


def train(
    history: Annotated[
        Path,
        typer.Argument(help='Records: .jsonl, .csv or .npz, or "-" for JSON lines on stdin.'),
    ] = _STREAM,
    router: RouterOption = "default",
    candidates: NamesOption = None,
    settings: SettingsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from records of earlier prompts, or from a live stream of them.

    A record is {"prompt": ..., "shown": [names], and "winner", "ranking" or "scores"}.
    """
    from bestarm_agent.cli.preselect.training import Training, read_candidates, train_router
    from bestarm_agent.cli.stores import default_or_new_store
    from bestarm_agent.preselection.feedback_files import read_history
    from bestarm_agent.preselection.settings import parse_settings
    from bestarm_agent.report.text import safe

    job = Training(
        name=router,
        candidates=() if candidates is None else read_candidates(candidates),
        settings=parse_settings(settings) if settings else None,
        history=None if history == _STREAM else list(read_history(history)),
    )
    done = train_router(job, default_or_new_store(store))
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(
        f"router {safe(router)}, version {done['version']}: {done['learnt']:,} records learnt, "
        f"{done['uninformative']:,} say nothing, {done['waiting']:,} wait for features"
    )


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
    from bestarm_agent.cli.preselect.choices import choose_for, prompts_on_stdin
    from bestarm_agent.cli.stores import default_store

    asked = prompts_on_stdin() if prompt is None else iter([{"prompt": prompt}])
    as_lines = as_json or prompt is None
    choose_for(asked, router, default_store(store), k, as_lines=as_lines)


def add(
    names: Annotated[list[str] | None, typer.Argument(help="Names of the candidates.")] = None,
    candidates: NamesOption = None,
    router: RouterOption = "default",
    store: StoreOption = None,
) -> None:
    """Let candidates join a router; what it has learnt about the others stays."""
    from bestarm_agent.cli.preselect.training import add_candidates, read_candidates
    from bestarm_agent.cli.stores import default_store
    from bestarm_agent.errors import ConfigError
    from bestarm_agent.preselection.settings import RoutedCandidate
    from bestarm_agent.report.text import safe

    joining = tuple(RoutedCandidate(name) for name in names or ())
    joining += () if candidates is None else read_candidates(candidates)
    if not joining:
        raise ConfigError("name the candidates that join, or give them by --candidates FILE")
    version, count = add_candidates(router, default_store(store), joining)
    typer.echo(f"router {safe(router)}, version {version}: {count} candidates")


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
    from bestarm_agent.cli.option_groups import overrides
    from bestarm_agent.cli.options import StudyPlace
    from bestarm_agent.cli.preselect.serve import serve_study
    from bestarm_agent.config.environment_settings import resolve
    from bestarm_agent.preselection.serving import Service
    from bestarm_agent.preselection.settings import parse_settings

    opening = Service.open(
        resolve(study, overrides(limits)),
        router=router,
        settings=parse_settings(settings) if settings else None,
        options=StudyPlace(store, limits.catalog).options(),
    )
    serve_study(opening, k, as_json=as_json)


def simulate(
    matrix: Annotated[
        Path,
        typer.Argument(help="All scores: .npz, .csv or .jsonl, as for `preselect train`."),
    ],
    rules: Annotated[
        str, typer.Option(help="Rules, such as linucb,linucb[ties=1].")
    ] = "random,mm,max-theta,cppl,linucb,thompson",
    k: KOption = 2,
    repetitions: Annotated[
        int, typer.Option("--repetitions", "-n", min=1, help="Random orders of the prompts.")
    ] = 3,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of all routers, such as cost_weight=0.1; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay routers on prompts whose every score is known; compare with fixed choices."""
    from bestarm_agent.cli.preselect.simulate import simulate_routers

    simulate_routers(matrix, rules, k, repetitions, settings or [], as_json=as_json)
