"""``demo``, ``plan`` and ``try``: what comes before a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import (
    Column,
    numbers,
    print_json,
    print_line,
    print_table,
    say,
    score_text,
    stderr_console,
    stdout_console,
)
from bestarm_agent.cli.progress import busy
from bestarm_agent.cli.run import EXIT_FAILURES, EXIT_OK, print_notices, run_study
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.text import cost_text, money, percent, points, safe
from bestarm_agent.domain.values import Json, Request
from bestarm_agent.engine.scorer_signs import ScorerSigns, SignCount, fault_of
from bestarm_agent.engine.setup.history import learn_from_history
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.engine.setup.plan import (
    Plan,
    examples_to_detect,
    make_plan,
    n_independent,
    resolution_of,
)
from bestarm_agent.engine.single_calls import FirstCall, make_first_calls
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.words import seconds_text
from bestarm_agent.stats.new_examples import FEWEST_EXAMPLES
from bestarm_agent.store.export import verdicts
from bestarm_agent.study import Archive, Study, open_mode

_DEMO = ("study.yaml", "dataset.jsonl", "answers.jsonl.gz")
_LEAST_DETECTED = 1e-6  # a difference that no dataset shows
_SHOWN_LINES = 12
_INDENT = 10


def demo(given: Given, folder: Path) -> int:
    """Write the demo into a folder, and run it."""
    study = write_demo(folder)
    code = run_study(Study.open(study), given)
    if code == EXIT_OK:
        own = "Your own:   bestarm-agent init     (writes a commented study.yaml)"
        console = stderr_console() if given.as_json else stdout_console()
        print_line(console, f"\nThe study:  {study}\n{own}", indent=len("The study:  "))
    return code


def write_demo(folder: Path) -> Path:
    """Write the files of the demo into ``folder``; return the path of the study.

    Raises ConfigError if a file of the folder would be replaced.
    """
    source = files("bestarm_agent.cli") / "demo_files"
    contents = {folder / name: (source / name).read_bytes() for name in _DEMO}
    # all are looked at before any is written; a demo that lies there already may run again
    for path, content in contents.items():
        if path.exists() and not (path.is_file() and path.read_bytes() == content):
            raise ConfigError(
                f"{path} is there already, and not the demo's; it is not overwritten: name "
                "another folder, such as `bestarm-agent demo bestarm-demo`"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            path.write_bytes(content)
    except OSError as error:
        raise ConfigError(
            f"the demo cannot be written into {folder} ({error.strerror}); name another folder"
        ) from None
    return folder / _DEMO[0]


def plan(given: Given, detect: float | None) -> None:
    """Print what a study would cost, and what its history teaches.

    ``detect``: print also how many examples a difference of accuracy of that size needs.
    """
    if detect is not None and not _LEAST_DETECTED <= detect < 1:
        raise ConfigError(
            f"--detect must be between 0 and 1, got {detect}, and no number of examples shows less "
            f"than {_LEAST_DETECTED:f}"
        )
    parts = _parts(given)
    where = given.options().store_of(parts.study)
    made = make_plan(parts, where)
    if parts.config.gate is not None:
        from bestarm_agent.gate.mode import gate_parts

        try:
            asyncio.run(gate_parts(parts, Archive(where).result_of))
        except ConfigError as error:  # a notice: `select` leaves the section out
            made = replace(made, notices=(*made.notices, str(error)))
    if parts.config.selector.history:
        history = asyncio.run(learn_from_history(parts, where))
        made = replace(made, notices=(*made.notices, *history.notices))
    needed = None if detect is None else examples_to_detect(parts, detect)
    if given.as_json:
        record = asdict(made)
        if needed is not None:
            record |= {"detect": {f"{share:g}": count for share, count in needed.items()}}
        print_json(record)
        return
    _print_plan(made, parts.judge.name)
    if made.kept_back:
        say(
            f"Kept back: {counted(made.kept_back, 'example')} for the winner, whose mean on such "
            f"will be known to about {points(made.half_width)}"
        )
    if needed is not None and detect is not None:
        _print_needed(made, detect, needed)


def _parts(given: Given) -> StudyParts:
    study = given.load()
    return assemble(study, Catalog(study.base_dir, given.options().catalog_dirs), open_mode)


def _print_needed(plan: Plan, difference: float, needed: Mapping[float, int]) -> None:
    say(
        f"{plan.unit.capitalize()}s needed to detect a difference of {points(difference)} in "
        f"80 % of studies (you have {plan.n_independent:,}):"
    )
    print_table(
        [*numbers("answers that differ", f"{plan.unit}s"), Column("", "end")],
        [
            [percent(share), f"{count:,}", "" if count <= plan.n_independent else "too few here"]
            for share, count in needed.items()
        ],
    )
    if min(needed.values()) > plan.n_independent:
        say(
            f"The dataset is too small for a difference of {points(difference)}: add "
            f"{plan.unit}s, or accept that such candidates cannot be told apart."
        )


def _print_plan(plan: Plan, judge: str) -> None:
    grid = plan.n_candidates * plan.n_examples * plan.repeats
    draws = f" x {plan.repeats} draws" if plan.repeats > 1 else ""
    share = f"; the budget allows {plan.answers:,} ({percent(plan.answers / grid)})"
    say(
        f"{counted(plan.n_candidates, 'candidate')} x {counted(plan.n_examples, 'example')}{draws} "
        f"= {counted(grid, 'answer')}{share if plan.answers < grid else ''}; scorer {judge}"
    )
    say(resolution_line(plan.n_independent, plan.resolution, plan.unit))
    say(_forecast_line(plan))
    if plan.labels is not None:
        all_ = "perhaps all" if plan.labels == plan.n_examples else f"about {plan.labels:,}"
        say(
            f"By people's scores: {min(20, plan.n_examples)} examples labelled name a likely best; "
            f"a proof may take {all_} of the {plan.n_examples:,}"
        )
    if plan.cached_tokens:
        say(
            f"Of the tokens expected, about {plan.cached_tokens:,} are read from prompt caches, at "
            "their lower price"
        )
    if plan.sure_answers < plan.answers:
        say(
            f"At worst, the budget buys {counted(plan.sure_answers, 'answer')}, if each costs the "
            "most that it can; usually far more"
        )
    print_table(
        [Column("model", "middle"), Column("price from", "end"), *numbers("one call, at most")],
        [
            [
                price.model + (" (judge)" if price.role == "judge" else ""),
                price.source or "unknown",
                "unknown" if price.most_usd_nanos is None else money(price.most_usd_nanos),
            ]
            for price in plan.prices
        ],
    )
    for notice in plan.notices:
        print_line(stdout_console(), f"notice: {safe(notice)}", indent=len("notice: "))


def _forecast_line(plan: Plan) -> str:
    """Say in one line what a study will probably use, and what it cannot exceed."""
    # Four forms: "at most" where limits may end the run earlier than the simulated ones; "at least"
    # where a simulated run was cut off; the bare number where all of them took everything; else a
    # mean with its range.
    few = plan.least if plan.is_open else plan.expected.answers
    n = f"{'at least' if plan.is_open else 'about'} {counted(few, 'answer')}"
    if plan.is_most and not plan.is_open:
        n = f"at most {counted(plan.most, 'answer')}"
    elif plan.least == plan.most == plan.answers:
        n = counted(plan.answers, "answer")
    elif plan.least < plan.most and not plan.is_open:
        n += f" ({plan.least:,} to {plan.most:,} in {plan.n_simulated} simulated runs)"
    parts = [f"{plan.expected.tokens:,} tokens"]
    if not plan.unpriced:
        parts.append(money(plan.expected.usd_nanos))
    of = (
        "as the stored replies cost"
        if plan.n_replies
        else "if each costs the most that it can; `try` makes a call of each and shows the usual"
    )
    worst = money(plan.worst.usd_nanos) if not plan.unpriced else f"{plan.worst.calls:,} calls"
    return f"Expected: {n}, {' and '.join(parts)}, {of}. It cannot exceed {worst}."


def try_(given: Given) -> int:
    """Make one call to each model with each prompt, and show prompt, reply and score."""
    parts, console = _parts(given), stderr_console()
    print_notices(console, parts.notices)
    with busy(console, "calling each model with each prompt", wanted=not given.as_json):
        calls = asyncio.run(make_first_calls(parts, given.options()))
    if given.as_json:
        print_json([_as_json(call) for call in calls])
    else:
        for line in _lines(calls):
            print_line(stdout_console(), line, indent=_INDENT)
        if fault := _fault(calls, parts.judge.main):
            say(f"notice: {safe(fault)}")
        say(resolution_line(n_independent(parts), resolution_of(parts), parts.unit))
    return EXIT_FAILURES if any(call.score is None for call in calls) else EXIT_OK


def _fault(calls: Sequence[FirstCall], judge: Judge) -> str:
    """Say what is the matter with the replies, and the way out; "" if nothing is."""
    signs, counts = ScorerSigns(judge), Counter[str]()
    for call in calls:
        if call.reply is not None:
            score = None if call.score is None else call.score.value
            counts[signs.of("", call.example, call.reply, score, call.failure)] += 1
    n = counts.total()
    right = sum(call.score is not None and call.score.value > 0 for call in calls)
    count = SignCount("the first prompts", n, n - right, counts)
    fault = fault_of([count], judge.name, fewest=1)
    return "" if fault is None else f"{fault.text}; {fault.way_out}"


def _as_json(call: FirstCall) -> Json:
    return {
        "model": f"{call.candidate.provider}/{call.candidate.model}",
        "candidate": call.candidate.label,
        "example": call.example.id,
        "prompt": _prompt(call.request),
        "reply": None if call.reply is None else call.reply.said,
        "reasoning": (call.reply.reasoning or None) if call.reply is not None else None,
        "target": call.example.target,
        "parsed": None if call.score is None else call.score.answer,
        "score": None if call.score is None else call.score.value,
        "problem": call.problem or None,
        "notices": [] if call.reply is None else list(call.reply.notices),
        "seconds": None if call.reply is None else call.reply.seconds,
        "cached": call.cached,
        "calls": call.spend.calls,
        "tokens": call.spend.tokens,
        "usd_nanos": call.spend.usd_nanos,
    }


def _lines(calls: Sequence[FirstCall]) -> Iterator[str]:
    for call in calls:
        yield from _lines_of(call)
        yield ""
    spent = sum((call.spend for call in calls), Spend())
    scored = sum(call.score is not None for call in calls)
    priced = all(call.reply is None or call.reply.usd_nanos is not None for call in calls)
    yield (
        f"{scored} of {counted(len(calls), 'first call')} answered and scored: "
        f"{counted(spent.calls, 'call')}, {spent.tokens:,} tokens, "
        f"cost {cost_text(spent.usd_nanos, priced=priced)}"
    )


def _lines_of(call: FirstCall) -> Iterator[str]:
    name = f"{call.candidate.provider}/{call.candidate.model}"
    yield safe(f"{name} ({call.candidate.label}) on example {call.example.id}{_result(call)}")
    yield from _block("prompt", _prompt(call.request))
    if call.reply is not None:
        yield from _block("reply", call.reply.said)
    if call.score is not None and call.score.answer is not None:
        yield from _block("parsed", call.score.answer)
    if call.example.target is not None:
        yield from _block("target", call.example.target)
    if call.score is not None and (verdict_lines := verdicts(call.score.votes)):
        yield from _block("judge", verdict_lines)
    if call.problem:
        yield from _block("problem", call.problem)
    for notice in () if call.reply is None else call.reply.notices:
        yield from _block("notice", f"{name} {notice}")


def _result(call: FirstCall) -> str:
    score = "FAILED" if call.score is None else f"score {score_text(call.score.value)}"
    if call.reply is None:
        return f": {score}"
    took = seconds_text(call.reply.seconds)
    return f": {score}, {took}" + (", from the reply cache" * call.cached)


def _prompt(request: Request) -> str:
    if request.text is not None:
        return request.text
    return "\n".join(f"{message.role}: {message.text}" for message in request.messages)


def _block(name: str, text: str) -> Iterator[str]:
    """Indent a text under its name, a long one cut."""
    lines = text.splitlines() or [""]
    n_more = len(lines) - _SHOWN_LINES
    lines_shown = [*lines[:_SHOWN_LINES], *([f"... {n_more} more lines"] if n_more > 0 else [])]
    for i, line in enumerate(lines_shown):
        yield f"  {name if i == 0 else '':<{_INDENT - 2}}{safe(line)}"


def resolution_line(n_examples: int, resolution: float, unit: str = "example") -> str:
    """Say what the examples of a study can tell apart, before a call is made.

    Example:
        >>> print(resolution_line(60, 0.18))
        60 examples can reveal a difference of about 18 points (smaller ones usually stay hidden)
        >>> print(resolution_line(1, 1.0))
        1 example is too few to choose by; use at least 30
    """
    text = counted(n_examples, unit)
    if n_examples < FEWEST_EXAMPLES:
        verb = "is" if n_examples == 1 else "are"
        return f"{text} {verb} too few to choose by; use at least {FEWEST_EXAMPLES}"
    gap = points(resolution)
    return f"{text} can reveal a difference of about {gap} (smaller ones usually stay hidden)"
