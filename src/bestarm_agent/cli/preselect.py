"""``preselect``: learn which candidates to run for which prompt, and choose them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bestarm_agent.cli.options import (
    CallsOption,
    CatalogOption,
    JsonOption,
    StoreOption,
    UsdOption,
    expanded,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bestarm_agent.preselection.records import Record, RouterSettings
    from bestarm_agent.preselection.router import Router
    from bestarm_agent.preselection.serve import Served, Service

_STREAM = Path("-")
_SAVE_EVERY = 50  # prompts: the most that a crash can lose of what was learnt; replies are durable
_MOST_PROMPTS = 5000  # of a history, to make features from

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
    import asyncio

    from bestarm_agent.cli.stores import default_or_new_store
    from bestarm_agent.preselection.records import RoutedCandidate, read_candidates, read_history
    from bestarm_agent.preselection.router import Router
    from bestarm_agent.report.words import safe

    known = () if candidates is None else read_candidates(candidates)
    wanted = _settings(settings)
    records = None if history == _STREAM else list(read_history(history))
    names = dict.fromkeys(name for record in records or () for name in record.shown)
    chosen_among = known or [RoutedCandidate(name=name) for name in names]
    opening = Router.open(router, default_or_new_store(store), chosen_among, wanted)
    done = asyncio.run(_train(opening, records, k))
    if as_json:
        typer.echo(json.dumps(done))
        return
    typer.echo(
        f"router {safe(router)}, version {done['version']}: {done['learnt']:,} records learnt, "
        f"{done['uninformative']:,} say nothing, {done['waiting']:,} wait for features"
    )
    if done["routing"] is not None:
        typer.echo(done["routing"]["says"])


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
    import asyncio

    from bestarm_agent.cli.stores import default_store
    from bestarm_agent.preselection.records import PromptRow, read_rows
    from bestarm_agent.preselection.router import Router

    rows = (row.prompt for row in read_rows(PromptRow, sys.stdin, "stdin"))
    opening = Router.open(router, default_store(store))
    asked = rows if prompt is None else iter([prompt])
    asyncio.run(_choose(opening, asked, k, as_lines=as_json or prompt is None))


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
    import asyncio

    from bestarm_agent.cli.options import StudyPlace, overrides
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.preselection.serve import Service

    opening = Service.open(
        resolve(study, overrides(limits)),
        router=router,
        settings=_settings(settings),
        options=StudyPlace(store, limits.catalog).options(),
    )
    asyncio.run(_serve(opening, k, as_json=as_json))


def _settings(texts: Sequence[str] | None) -> RouterSettings | None:
    from bestarm_agent.preselection.records import parse_settings

    return parse_settings(texts) if texts else None


async def _train(
    opening: AbstractAsyncContextManager[Router], history: list[Record] | None, k: int
) -> dict[str, Any]:
    """Learn all records, those of a stream on stdin if there are none; count them."""
    from bestarm_agent.preselection.records import Record, read_rows
    from bestarm_agent.preselection.worth import would_pay

    async with opening as router:
        if history and not router.ready:
            router.prepare([record.prompt for record in history[:_MOST_PROMPTS]])
        count = {True: 0, False: 0}
        records = read_rows(Record, sys.stdin, "stdin") if history is None else history
        for number, record in enumerate(records, start=1):
            count[router.learn(record)] += 1
            if history is None and number % _SAVE_EVERY == 0:
                await router.save()
        worth = would_pay(history or (), router.settings, k)
        return {
            "router": router.name,
            "version": await router.save(),
            "learnt": count[True] - router.n_waiting,
            "uninformative": count[False],
            "waiting": router.n_waiting,
            "routing": None if worth is None else {**asdict(worth), "says": str(worth)},
        }


async def _choose(
    opening: AbstractAsyncContextManager[Router], asked: Iterable[str], k: int, *, as_lines: bool
) -> None:
    """Print the candidates chosen for each prompt."""
    async with opening as router:
        for prompt in asked:
            chosen = router.choose(prompt, k)
            if not as_lines:
                typer.echo("\n".join(chosen))
                continue
            answer = {"prompt": prompt, "shown": chosen, "version": router.version}
            typer.echo(json.dumps(answer, ensure_ascii=False))
            sys.stdout.flush()  # the program that asked is waiting


async def _serve(opening: AbstractAsyncContextManager[Service], k: int, *, as_json: bool) -> None:
    """Serve every example of a study, printing JSON lines, or totals at the end."""
    found: list[Served] = []
    async with opening as service:
        for number, example in enumerate(service.parts.examples, start=1):
            served = await service.serve(example, k)
            if served is None:
                break
            found.append(served)
            if as_json:
                typer.echo(json.dumps(_line(served), ensure_ascii=False))
                sys.stdout.flush()  # the program that reads is waiting
            if number % _SAVE_EVERY == 0:
                await service.router.save()
        version = await service.router.save()
    if not as_json:
        _print_totals(service, found, version)


def _print_totals(service: Service, found: Sequence[Served], version: int) -> None:
    from bestarm_agent.report.words import cost_text, safe

    spent, run_id, n_examples = service.spent, service.run_id, len(service.parts.examples)
    best = [served.winner.score for served in found if served.winner is not None]
    first = [served.answers[0].score for served in found]
    typer.echo(
        f"{len(found)} of {n_examples} prompts, {spent.calls:,} calls, {spent.tokens:,} tokens, "
        f"cost {cost_text(spent.usd_nanos, priced=service.priced)}: mean score of the best answer "
        f"{_mean(best)}, of the first choice {_mean(first)}"
    )
    typer.echo(
        f"router {safe(service.router.name)}, version {version}: learned from "
        f"{sum(served.learnt for served in found):,} of them"
    )
    typer.echo(f"run {run_id}: `bestarm-agent show {run_id}` says what each candidate did and cost")
    if len(found) < n_examples:
        typer.echo("the budget ended, or nothing can be called any more")


def _mean(scores: Iterable[float | None]) -> str:
    known = [score for score in scores if score is not None]
    return f"{sum(known) / len(known):.3f}" if known else "unknown"


def _line(served: Served) -> dict[str, object]:
    winner = served.winner
    return {
        "example": served.example.id,
        "shown": [answer.candidate for answer in served.answers],
        "winner": None if winner is None else winner.candidate,
        "answer": None if winner is None else winner.answer,
        "scores": {a.candidate: a.score for a in served.answers},
        "usd": {a.candidate: a.usd for a in served.answers},
        "problems": {a.candidate: a.problem for a in served.answers if a.problem is not None},
        "learnt": served.learnt,
    }
