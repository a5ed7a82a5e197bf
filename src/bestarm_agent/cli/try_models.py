"""``try``: one call to each model and to the judge, before a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from bestarm_agent.cli.options import JsonOption, StudyFile, StudyPlace

if TYPE_CHECKING:
    from bestarm_agent.domain.digest import Json
    from bestarm_agent.domain.request_reply import Request
    from bestarm_agent.engine.setup.calls_outside_runs import FirstCall

_SHOWN_LINES = 12
_INDENT = 10


def try_models(file: StudyFile, place: StudyPlace, as_json: JsonOption = False) -> None:
    """Make one call to each model, and let it be judged.

    Shows prompt, reply, score and seconds.
    """
    import asyncio

    from rich.console import Console

    from bestarm_agent.cli.progress import busy
    from bestarm_agent.cli.run_command import EXIT_FAILURES, print_notices
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.engine.setup.calls_outside_runs import make_first_calls
    from bestarm_agent.engine.setup.open_run import catalog_of
    from bestarm_agent.engine.setup.parts import assemble
    from bestarm_agent.study import open_mode

    options, study, console = place.options(), resolve(file.path), Console(stderr=True, emoji=False)
    parts = assemble(study, catalog_of(study, options), open_mode)
    print_notices(console, parts.notices)
    with busy(console, "calling each model once", wanted=not as_json) as waiting:
        calls = asyncio.run(make_first_calls(parts, options, waiting))
    if as_json:
        typer.echo(json.dumps([_as_json(call) for call in calls], indent=2, ensure_ascii=False))
    else:
        for line in _lines(calls):
            typer.echo(line)
    if any(call.score is None for call in calls):
        raise typer.Exit(EXIT_FAILURES)


def _as_json(call: FirstCall) -> Json:
    return {
        "model": f"{call.candidate.provider}/{call.candidate.model}",
        "candidate": call.candidate.label,
        "example": call.example.id,
        "prompt": _prompt(call.request),
        "reply": None if call.reply is None else call.reply.text,
        "target": call.example.target,
        "parsed": None if call.score is None else call.score.answer,
        "score": None if call.score is None else call.score.value,
        "problem": call.problem or None,
        "seconds": None if call.reply is None else call.reply.seconds,
        "cached": call.cached,
        "calls": call.spend.calls,
        "tokens": call.spend.tokens,
        "usd_nanos": call.spend.usd_nanos,
    }


def _lines(calls: Sequence[FirstCall]) -> Iterator[str]:
    from bestarm_agent.domain.spend import Spend
    from bestarm_agent.errors import counted
    from bestarm_agent.report.words import cost_text

    for call in calls:
        yield from _lines_of(call)
        yield ""
    spent = sum((call.spend for call in calls), Spend())
    scored = sum(call.score is not None for call in calls)
    priced = all(call.reply is None or call.reply.usd_nanos is not None for call in calls)
    yield (
        f"{scored} of {counted(len(calls), 'model')} answered and scored: "
        f"{counted(spent.calls, 'call')}, {spent.tokens:,} tokens, "
        f"cost {cost_text(spent.usd_nanos, priced=priced)}"
    )


def _lines_of(call: FirstCall) -> Iterator[str]:
    from bestarm_agent.engine.results.pairs import verdicts
    from bestarm_agent.report.words import safe

    name = f"{call.candidate.provider}/{call.candidate.model}"
    yield safe(f"{name} ({call.candidate.label}) on example {call.example.id}{_result(call)}")
    yield from _block("prompt", _prompt(call.request))
    if call.reply is not None:
        yield from _block("reply", call.reply.text)
    if call.score is not None and call.score.answer is not None:
        yield from _block("parsed", call.score.answer)
    if call.example.target is not None:
        yield from _block("target", call.example.target)
    if call.score is not None and (said := verdicts(call.score.votes)):
        yield from _block("judge", said)
    if call.problem:
        yield from _block("problem", call.problem)


def _result(call: FirstCall) -> str:
    from bestarm_agent.report.words import seconds_text

    score = "FAILED" if call.score is None else f"score {call.score.value:.2f}"
    if call.reply is None:
        return f": {score}"
    took = seconds_text(call.reply.seconds)
    return f": {score}, {took}" + (", from the reply cache" * call.cached)


def _prompt(request: Request) -> str:
    if request.text is not None:
        return request.text
    return "\n".join(f"{message.role}: {message.content}" for message in request.messages)


def _block(name: str, text: str) -> Iterator[str]:
    """Indent a text under its name, a long one cut."""
    from bestarm_agent.report.words import safe

    lines = text.splitlines() or [""]
    more = len(lines) - _SHOWN_LINES
    shown = [*lines[:_SHOWN_LINES], *([f"... {more} more lines"] if more > 0 else [])]
    for i, line in enumerate(shown):
        yield f"  {name if i == 0 else '':<{_INDENT - 2}}{safe(line)}"
