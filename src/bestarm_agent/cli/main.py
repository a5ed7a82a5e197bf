"""Every command of the command line: its options, its help, and the module that runs it.

A command is a function of the module named here, imported when the command is called.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from traceback import extract_tb, print_exception
from typing import TYPE_CHECKING

import click

from bestarm_agent._version import __version__
from bestarm_agent.cli.options import EXIT_INTERRUPTED, OPTIONS
from bestarm_agent.errors import BestarmError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_ERROR = 1
EXIT_USAGE = 2

_REPORT = "please report it at https://github.com/bestarm-agent/bestarm-agent/issues"
_VERSION = f"bestarm-agent {__version__}"
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_STUDY = "study candidates changes"
_CALLS = "store no_cache as_json"
_CAPS = "budget_usd budget_share budget_answers"


# A command's module is named as text ("run:select" is ``select`` of ``cli/run.py``) and imported
# when the command is called, so that ``--help`` and completion load none of them.
def _call(path: str, /, **values: object) -> None:
    """Call a command's function with the values of its options; exit with the code it returns."""
    module, _, name = path.partition(":")
    try:
        from bestarm_agent.cli.given import apply_settings, take_given

        apply_settings()
        function = getattr(import_module(f"bestarm_agent.cli.{module}"), name)
        given = take_given(values)
        sys.exit(function(given, **values))
    except KeyboardInterrupt:  # of a command without a run, which would say how it goes on
        click.echo("stopped", err=True)
        sys.exit(EXIT_INTERRUPTED)


def _command(function: str, options: str, about: str) -> click.Command:
    """Return a command that calls ``module:function`` of this package."""
    return click.Command(
        function.partition(":")[2].rstrip("_"),
        params=[OPTIONS[name].parameter(name) for name in options.split()],
        help=about,
        callback=partial(_call, function),
        context_settings=_CONTEXT,
    )


def _group(name: str, about: str, commands: Iterable[click.Command]) -> click.Group:
    return click.Group(
        name, help=about, commands=list(commands), no_args_is_help=True, context_settings=_CONTEXT
    )


app = _group(
    "bestarm-agent",
    "Finds the best LLM candidate from a small part of the calls.",
    [
        _command(
            "start:demo",
            "folder as_json quiet",
            """See a selection in ten seconds: no key, no model, no network.

            Writes a study of 60 candidates and the recorded answers of five small models into a
            folder, and runs it. Everything but the models is real.""",
        ),
        _command(
            "init:init",
            "path data models base_url price config",
            """Write a commented study file to start from. An existing file is never overwritten.

            With --data and --models the study is one of your own; without either, a terminal is
            asked for them, and elsewhere the study runs on recorded answers.""",
        ),
        _command(
            "start:plan",
            f"{_STUDY} detect store as_json",
            """Check a study and all that it names, and say what it can cost. No call is made.""",
        ),
        _command(
            "start:try_",
            f"{_STUDY} {_CALLS}",
            """Make one call to each model with each prompt.

            Shows prompt, reply, score and seconds.""",
        ),
        _command(
            "run:select",
            f"{_STUDY} selector history cheapest_within at_least confidence aim confirm "
            f"{_CAPS} seed {_CALLS} quiet",
            """Find the best candidate from a small part of the calls.""",
        ),
        _command(
            "run:resume",
            f"run {_CAPS} budget_calls budget_tokens budget_minutes {_CALLS} quiet",
            """Go on with a run that ended or was cut off.

            A --budget-... given here is what may be spent beyond what the run has spent already.
            The run goes on as it began: after an edit of the study, `select` it again; that reuses
            all answers.""",
        ),
        _command("stored:list_", "store as_json", "List all runs in the store, oldest first."),
        _command("stored:show", "run everything store as_json", "Show where a run stands."),
        _command(
            "stored:report",
            "run out report_format store",
            """Write a run as one HTML file that opens offline.

            Or a summary as Markdown or JSON. Without --out, it lies next to the store.""",
        ),
        _command(
            "stored:view", "stores port", "Look at runs and answers in the browser, and label them."
        ),
        _command(
            "label:label",
            "run contenders top raters count out filled complete budget_usd budget_answers port "
            "store as_json",
            """Let people score the answers of the best candidates.

            They decide, the judge helps. Opens a page in the browser: one example at a time,
            answers without names, until it is proved who is best. Or, with --next 20 --out todo.csv
            and --in todo.csv, by a table.""",
        ),
        _command(
            "stored:answers",
            "run candidate example wrong failed everything store as_json",
            """Show questions, answers and how they were scored.

            --json prints all of them, a line for each, with prompts, replies and verdicts.""",
        ),
        _command(
            "compare:compare",
            "sources between everything metrics cluster markdown store as_json",
            """Compare candidates on the examples that both have seen.

            Of files, all are compared with the first candidate. Exit code 0: none is worse;
            5: one is; 3: undecided.""",
        ),
        _command(
            "stored:export",
            "run out export_format texts store",
            """Export a run's scores. What was not measured stays empty.

            Without --out, to stdout. `inspect` writes a folder of logs, with prompts and
            answers.""",
        ),
        _command(
            "simulate:import_",
            "paths metric out study_folder",
            """Read logs of Inspect, lm-eval and promptfoo, and plain tables.

            `simulate` and the provider `replay` read what --out FILE.jsonl writes; `select` runs
            what --study FOLDER writes.""",
        ),
        _command(
            "simulate:simulate",
            "matrix selectors budget seeds jobs metric plot store as_json",
            "Replay selection rules on known scores: what would be saved?",
        ),
        _command(
            "run:gate",
            f"{_STUDY} baseline challenger margin by improve aim markdown junit budget_usd "
            f"budget_answers {_CALLS} quiet",
            """Tell whether candidates are not worse than a baseline.

            Exit code 0: none is worse, on all examples and each slice; 5: one is; 3: the budget
            left it open; 4: too many calls failed.""",
        ),
        _command(
            "run:certify",
            f"{_STUDY} risk judge labels max_labels budget_usd {_CALLS} quiet",
            """Find the cheapest candidate that is good enough, by few labels.

            That is proved: its mean loss on new examples is at most --risk.""",
        ),
        _group(
            "preselect",
            "Choose which candidates to run for a prompt. Learns which of them win.",
            [
                _command(
                    "preselect:train",
                    "records k router names settings store as_json",
                    """Learn from records of earlier prompts.

                    They are a file, or a live stream. A record is {"prompt": ..., "shown": [names],
                    and "winner", "ranking" or "scores"}. Where a file has scores of all candidates
                    on all prompts, it is said whether routing would pay.""",
                ),
                _command(
                    "preselect:choose",
                    "prompt k router store as_json",
                    "Choose candidates for a prompt, the most promising first.",
                ),
                _command(
                    "preselect:run",
                    f"{_STUDY} budget_usd k router settings store as_json",
                    """Answer a study's examples by k chosen candidates each.

                    One after the other: the study's scorer says who was best, and the router
                    learns. The budget is kept as in a run.""",
                ),
            ],
        ),
        _group(
            "judge",
            "Judges: how far they can be trusted.",
            [
                _command(
                    "judge:check",
                    "source gold store no_cache as_json",
                    "Compare a judge's scores with gold scores of the same answers.",
                )
            ],
        ),
        _command(
            "run:optimize",
            f"{_STUDY} proposer rounds proposer_model out confidence {_CAPS} seed {_CALLS} quiet",
            """Find the best candidate; a function proposes prompts.

            The budget is divided among the rounds. After each, the function is given the leading
            candidate with its wrong answers, and what it returns joins the run. --out is for the
            winner's prompt. `resume` goes on with the rounds.""",
        ),
        _command(
            "providers:providers", "name check", "List providers, and whether their keys are set."
        ),
    ],
)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(_VERSION)
        ctx.exit()


app.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )
)


def main() -> None:
    """Run a command; every error becomes one paragraph and an exit code."""
    # Three kinds of error, most specific first: ours, which say what to do; the operating system's,
    # such as a full disk, which name a file; and all others, which are faults of this package.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            with suppress(OSError):  # of a stream that was put in another's place
                stream.reconfigure(errors="replace")  # what a terminal cannot show becomes `?`
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where it can be said that the disk is full
    except BestarmError as error:
        _print_error(str(error))
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_ERROR)
    except OSError as error:
        named = f"{error.filename}: " if error.filename is not None else ""
        _end(f"{named}{error.strerror or error}", error)
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        _end(
            f"{type(error).__name__}: {error} ({where}); this is a fault of ours: {_REPORT}", error
        )


def _end(message: str, error: Exception) -> None:
    """Say in one line what nothing above has foreseen, and exit; with the traceback at "debug"."""
    if os.environ.get("BESTARM_LOG_LEVEL", "").lower() == "debug":
        print_exception(error)
    with suppress(OSError):
        _print_error(" ".join(message.split()))
    with suppress(OSError, ValueError):  # else Python flushes again at its end, and fails again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(EXIT_ERROR)


def _print_error(message: str) -> None:
    from rich.console import Console

    from bestarm_agent.cli.output import print_line
    from bestarm_agent.domain.text import safe_lines

    print_line(
        Console(stderr=True, emoji=False), f"error: {safe_lines(message)}", indent=len("error: ")
    )
