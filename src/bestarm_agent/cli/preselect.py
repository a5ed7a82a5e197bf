"""``preselect``: learn which candidates to run for which prompt, and choose them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import print_json, say
from bestarm_agent.cli.stores import default_or_new_store, default_store
from bestarm_agent.domain.text import cost_text, percent, safe
from bestarm_agent.preselection.records import (
    PromptRow,
    Record,
    RoutedCandidate,
    parse_settings,
    read_candidates,
    read_history,
    read_rows,
)
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serve import Served, Service
from bestarm_agent.preselection.worth import would_pay

_STREAM = Path("-")
_SAVE_EVERY = 50  # prompts: the most that a crash can lose of what was learnt; replies are durable
_MOST_PROMPTS = 5000  # of a history, to make features from


def train(
    given: Given, records: Path, k: int, router: str, names: Path | None, settings: Sequence[str]
) -> None:
    """Learn from records; say how many said something, and whether routing would pay."""
    known = () if names is None else read_candidates(names)
    wanted = parse_settings(settings) if settings else None
    history = None if records == _STREAM else list(read_history(records))
    names_seen = dict.fromkeys(name for record in history or () for name in record.shown)
    chosen_among = known or [RoutedCandidate(name=name) for name in names_seen]
    # candidates of a new router: as a file names them, else whoever was ever shown in the history
    opening = Router.open(router, default_or_new_store(given.store), chosen_among, wanted)
    done = asyncio.run(_train(opening, history, k))
    if given.as_json:
        print_json(done)
        return
    say(
        f"router {safe(router)}, version {done['version']}: {done['learnt']:,} records learnt, "
        f"{done['uninformative']:,} say nothing, {done['waiting']:,} wait for features"
    )
    if done["routing"] is not None:
        say(done["routing"]["says"])


def choose(given: Given, prompt: str | None, k: int, router: str) -> None:
    """Print the candidates for a prompt, or for each of a stream."""
    rows = (row.prompt for row in read_rows(PromptRow, sys.stdin, "stdin"))
    opening = Router.open(router, default_store(given.store))
    asked = rows if prompt is None else iter([prompt])
    asyncio.run(_choose(opening, asked, k, as_lines=given.as_json or prompt is None))


def run(given: Given, k: int, router: str, settings: Sequence[str]) -> None:
    """Answer the examples of a study by the candidates that a router chooses."""
    opening = Service.open(
        given.load(),
        router=router,
        settings=parse_settings(settings) if settings else None,
        options=given.options(),
    )
    asyncio.run(_serve(opening, k, as_json=given.as_json))


async def _train(
    opening: AbstractAsyncContextManager[Router], history: list[Record] | None, k: int
) -> dict[str, Any]:
    """Learn all records, those of a stream on stdin if there are none; count them."""
    async with opening as router:
        if history and not router.ready:
            router.prepare([record.prompt for record in history[:_MOST_PROMPTS]])
        count = {True: 0, False: 0}
        records = read_rows(Record, sys.stdin, "stdin") if history is None else history
        for number, record in enumerate(records, start=1):
            count[router.learn(record)] += 1
            # a stream has no end; a file is read again after a crash, and learnt as a whole
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
                click.echo("\n".join(chosen))
                continue
            answer = {"prompt": prompt, "shown": chosen, "version": router.version}
            print_json(answer, one_line=True)


async def _serve(opening: AbstractAsyncContextManager[Service], k: int, *, as_json: bool) -> None:
    """Serve every example of a study, printing JSON lines, or totals at the end."""
    answered: list[Served] = []
    async with opening as service:
        for number, example in enumerate(service.parts.examples, start=1):
            served = await service.serve(example, k)
            if served is None:
                break
            answered.append(served)
            if as_json:
                print_json(_line(served), one_line=True)
            if number % _SAVE_EVERY == 0:
                await service.router.save()
        version = await service.router.save()
    if not as_json:
        _print_totals(service, answered, version)


def _print_totals(service: Service, answered: Sequence[Served], version: int) -> None:
    spent, run_id, n_examples = service.spent, service.run_id, len(service.parts.examples)
    best = [served.winner.score for served in answered if served.winner is not None]
    first = [served.answers[0].score for served in answered]
    say(
        f"{len(answered)} of {n_examples} prompts, {spent.calls:,} calls, {spent.tokens:,} tokens, "
        f"cost {cost_text(spent.usd_nanos, priced=service.priced)}: mean score of the best answer "
        f"{_mean(best)}, of the first choice {_mean(first)}"
    )
    n_learnt = sum(served.learnt for served in answered)
    if version:
        name = safe(service.router.name)
        say(f"router {name}, version {version}: learned from {n_learnt:,} of them")
    else:  # nothing is stored of it
        why = "it learns where two answers or more have scores (-k 2)"
        say(f"nothing was learned, so no router is kept: {why}")
    say(f"run {run_id}: `bestarm-agent show {run_id}` says what each candidate did and cost")
    if len(answered) < n_examples:
        say("the budget ended, or nothing can be called any more")


def _mean(scores: Iterable[float | None]) -> str:
    known = [score for score in scores if score is not None]
    return percent(sum(known) / len(known)) if known else "unknown"


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
