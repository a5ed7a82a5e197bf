"""Every argument and option of the command line, once; commands name those that they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

EXIT_INTERRUPTED = 130  # what shells expect of a command that Ctrl-C ended

_PATH = click.Path(path_type=Path)
_AT_LEAST_1 = click.IntRange(min=1)
_PAIR = (str, str)


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of commands, an option or an argument."""

    help: str
    type: Any = str  # of the value; bool for a flag
    key: str = ""  # of the study, as "budget.usd": the value replaces that of the file
    argument: bool = False
    default: object = None
    many: bool = False  # an option that may be repeated, or an argument of many values
    required: bool = False
    metavar: str | None = None
    forms: str = ""  # "--selector -s", where it is not named like its parameter

    def flags(self, name: str) -> list[str]:
        """Return the forms of the option of a parameter; messages name the first."""
        return self.forms.split() or [f"--{name.replace('_', '-')}"]

    def parameter(self, name: str) -> click.Parameter:
        """Return what click reads, as the command's parameter ``name``."""
        if self.argument:
            return _Argument(
                [name],
                type=self.type,
                # to click a default of None is a value: nothing would be missing
                **({} if self.required else {"default": self.default}),
                nargs=-1 if self.many else 1,
                required=self.required,
                metavar=self.metavar or name.upper(),
                about=self.help,
            )
        return click.Option(
            [name, *self.flags(name)],
            type=None if self.type is bool else self.type,
            is_flag=self.type is bool,
            default=False if self.type is bool else self.default,
            multiple=self.many,
            nargs=2 if self.type is _PAIR else 1,
            help=self.help,
            metavar=self.metavar,
            show_default=self.default is not None,
        )


class _Argument(click.Argument):
    """An argument that ``--help`` explains."""

    def __init__(self, declarations: list[str], *, about: str, **rest: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(declarations, **rest)
        self.help = about  # which click 8.5 looks at; earlier ones ask for the record alone

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the text of the line in ``--help``."""
        default = "" if self.required or self.default is None else f"  [default: {self.default}]"
        return str(self.metavar), f"{self.help}{default}"

    def make_metavar(self, *_: object) -> str:
        """Return the name for the line of usage, in brackets if it may be left out."""
        return str(self.metavar) if self.required else f"[{self.metavar}]"


# By the name of the parameter of the function that runs a command.
OPTIONS: Mapping[str, Option] = {
    # the study, and values that replace those of its file
    "study": Option(
        "The study file; study.yaml if not given.", _PATH, argument=True, metavar="STUDY"
    ),
    "candidates": Option("The study file, as an option.", _PATH, forms="--candidates -c"),
    "changes": Option(
        "Any value of the study, such as budget.minutes=5; repeatable.",
        many=True,
        metavar="KEY=VALUE",
        forms="--set",
    ),
    "selector": Option(
        "Selection rule, such as ucb-e.", key="selector.name", forms="--selector -s"
    ),
    "history": Option("Earlier run to learn from; repeatable.", key="selector.history", many=True),
    "cheapest_within": Option(
        "Take the cheapest candidate that is at most so far below the best, such as 0.02.",
        float,
        "objective.epsilon",
    ),
    "at_least": Option(
        "Take the cheapest candidate that is proved to score at least so much, such as 0.9.",
        float,
        "objective.at_least",
    ),
    "confidence": Option(
        "Confidence that the answer must reach; else the exit code is 3.  [default: 0.95]",
        float,
        "selector.confidence",
    ),
    "aim": Option(
        "What the answer must hold for: seen (this study's examples, the default) or new ones.",
        key="stop.for",
        forms="--for",
    ),
    "confirm": Option(
        'Share of the examples kept back for the winner, such as 0.2 or "20%".', key="confirm.share"
    ),
    "budget_usd": Option('Most dollars, such as 5 or "$5".', key="budget.usd"),
    "budget_share": Option('Most of all answers, such as 0.1 or "10%".', key="budget.share"),
    "budget_answers": Option(
        "Most answers; a candidate's to an example is one.", int, "budget.answers"
    ),
    "budget_calls": Option("Most requests sent, retries included.", int, "budget.calls"),
    "budget_tokens": Option("Most tokens.", int, "budget.tokens"),
    "budget_minutes": Option("Most minutes by the clock.", float, "budget.minutes"),
    "seed": Option("Seed of all random choices.", int, "selector.seed"),
    "proposer": Option(
        "Function that proposes prompts, as module:function, or gepa.", key="optimize.proposer"
    ),
    "rounds": Option("Most rounds of proposals.  [default: 4]", _AT_LEAST_1, "optimize.rounds"),
    "proposer_model": Option(
        "Model that the proposer asks; default: the leader's.", key="optimize.model"
    ),
    "baseline": Option(
        "What to compare with: a candidate's label, or a run's winner.", key="gate.baseline"
    ),
    "challenger": Option(
        "Label of a candidate to compare; repeatable; all others if not given.",
        key="gate.challengers",
        many=True,
    ),
    "margin": Option(
        "Largest drop of the mean score that still passes.  [default: 0.02]", float, "gate.margin"
    ),
    "by": Option(
        "Give a verdict for each value of this dataset field, too; repeatable.",
        key="slices.by",
        many=True,
    ),
    "improve": Option(
        "Require a challenger to be better by more than --margin (default then: 0).", bool
    ),
    "risk": Option("Largest mean loss that is good enough, such as 0.1.", float, "certify.risk"),
    "judge": Option("The autoevaluator, such as rubric.", key="certify.judge.name"),
    "max_labels": Option("Most labels that may be used.", _AT_LEAST_1, "certify.max_labels"),
    "labels": Option("File of labels, .jsonl: id and target of each example.", _PATH),
    # runs, and where they lie
    "run": Option(
        "Run id (or its beginning), study name, or `latest`; default: the newest here.",
        argument=True,
        metavar="RUN",
    ),
    "sources": Option(
        "A run and perhaps another, as `show` names them; or files of results: Inspect, lm-eval, "
        "promptfoo, tables.",
        argument=True,
        many=True,
        metavar="RUN|FILE...",
    ),
    "store": Option("Run store: an SQLite file or a PostgreSQL URL; else BESTARM_STORE."),
    "stores": Option(
        "Run store: an SQLite file or a PostgreSQL URL; repeatable.", many=True, forms="--store"
    ),
    "no_cache": Option("Ignore replies in the cache.", bool),
    # what is shown
    "as_json": Option("Print JSON.", bool, forms="--json"),
    "quiet": Option("Show no progress.", bool, forms="--quiet -q"),
    "everything": Option("Show all, not only the first.", bool, forms="--all"),
    "candidate": Option("Only this candidate, by label or id."),
    "example": Option("Only this example, in full: prompt, reply, verdicts."),
    "wrong": Option("Only scores below one half.", bool),
    "failed": Option("Only answers that failed.", bool),
    "between": Option(
        "The two candidates, by label or id; left out: the winners of two runs, all of files.",
        _PAIR,
        metavar="A B",
    ),
    "detect": Option("Say how many examples a difference of accuracy needs, such as 0.03.", float),
    # labels
    "contenders": Option(
        "Candidate that takes part in any case, by label; repeatable.",
        many=True,
        forms="--contender",
    ),
    "top": Option("Candidates that take part at most.", click.IntRange(min=2), default=6),
    "complete": Option("Let those who take part answer all examples first.", bool),
    "raters": Option("People who score each example.", _AT_LEAST_1, default=1),
    "count": Option("Examples of a table.", _AT_LEAST_1, forms="--next"),
    "filled": Option("The table, filled in: .csv or .jsonl.", _PATH, forms="--in"),
    # files to read and to write
    "folder": Option("Folder to write to.", _PATH, argument=True, default="bestarm-demo"),
    "out": Option("File or folder to write.", _PATH, forms="--out -o"),
    "report_format": Option(
        "json is that of `show --json`.", click.Choice(["html", "md", "json"]), forms="--format"
    ),
    "export_format": Option(
        "Format; else by the ending of --out.",
        click.Choice(["csv", "jsonl", "parquet", "inspect"]),
        forms="--format",
    ),
    "texts": Option("With prompts, targets, replies, answers, verdicts, messages.", bool),
    "markdown": Option("File for a summary in Markdown.", _PATH),
    "junit": Option("File for a summary as JUnit XML.", _PATH),
    "config": Option("A promptfoo config to write the study from.", _PATH, forms="--from"),
    "base_url": Option("Address of the models, as http://localhost:8000/v1."),
    "data": Option("Examples to write the study for: .jsonl, .json or .csv.", _PATH),
    "models": Option("Its models, as openai/gpt-6-luna,ollama/qwen3:4b."),
    "price": Option("Their price per million tokens, prompt and answer: 0.15/0.60 dollars."),
    "path": Option("File to write.", _PATH, argument=True, default="study.yaml"),
    "paths": Option(
        "Logs; the format shows in each file.",
        argument=True,
        many=True,
        required=True,
        metavar="LOG...",
    ),
    "metrics": Option(
        "Score to compare; repeatable; `score`, or all that both have, if not given.",
        many=True,
        forms="--metric",
    ),
    "cluster": Option("Field or column of the examples: those of one value count as one."),
    "metric": Option("The score to take, if logs hold several."),
    "study_folder": Option(
        "Folder for a study that replays the logs.", _PATH, metavar="FOLDER", forms="--study"
    ),
    # rules on known scores
    "matrix": Option(
        "FILE.npz or FILE.npz:NAME, FILE.csv, FILE.parquet, a run, or logs of other tools.",
        argument=True,
        many=True,
        required=True,
        metavar="SCORES...",
    ),
    "selectors": Option(
        "Rules separated by commas, each perhaps with [OPTION=VALUE,...].",
        default="auto,ucb-e,sysrs,uniform",
    ),
    "budget": Option(
        "LO:HI or LO:HI:POINTS, shares of all calls: 0.01:0.30 or 1%:30%.", default="0.01:0.30"
    ),
    "seeds": Option("Repetitions, each with the matrix shuffled again.", _AT_LEAST_1, default=50),
    "jobs": Option("Parallel processes; one per core if not given.", _AT_LEAST_1),
    "plot": Option("Draw the curves: FILE.svg, FILE.png or FILE.pdf.", _PATH),
    # a router
    "records": Option(
        'Records: a .jsonl file, or "-" for JSON lines on stdin.',
        _PATH,
        argument=True,
        default="-",
        metavar="RECORDS",
    ),
    "prompt": Option('The prompt; without it, JSON lines {"prompt": ...} on stdin.', argument=True),
    "k": Option("Candidates to run per prompt.", int, default=2, forms="-k"),
    "router": Option("Name of the router.", default="default", forms="--router -r"),
    "names": Option("JSON file of the candidates: names, or name and usd.", _PATH),
    "settings": Option(
        "Setting of a new router, such as rule=cppl; repeatable.",
        many=True,
        metavar="KEY=VALUE",
        forms="--setting",
    ),
    # the rest
    "source": Option(
        "A stored run (no call is made), or a study file, whose judge is asked.",
        argument=True,
        required=True,
    ),
    "gold": Option(
        "File of gold scores (example, score, candidate or answer); default: those of `view`.",
        _PATH,
        argument=True,
        metavar="LABELS",
    ),
    "name": Option("One provider; all if not given.", argument=True, metavar="PROVIDER"),
    "check": Option("Ask those with a key for their list of models.", bool),
    "port": Option("On 127.0.0.1; 0 for any.", click.IntRange(0, 65535), default=0),
}
