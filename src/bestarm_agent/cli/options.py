"""Every argument and option of the command line, once; commands name those that they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_PATH = click.Path(path_type=Path)
_AT_LEAST_1 = click.IntRange(min=1)
_PAIR = (str, str)


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of commands: an option if its forms have dashes, else an argument."""

    forms: str  # "--selector -s", or "study"
    help: str
    type: Any = str  # of the value; bool for a flag
    key: str = ""  # of the study, as "budget.usd": the value replaces that of the file
    default: object = None
    many: bool = False  # an option that may be repeated, or an argument of many values
    required: bool = False
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """The form that messages name."""
        return self.forms.split()[0]

    def parameter(self, name: str) -> click.Parameter:
        """Return what click reads, as the command's parameter ``name``."""
        forms = self.forms.split()
        if not self.flag.startswith("-"):
            return _Argument(
                [name],
                type=self.type,
                default=self.default,
                nargs=-1 if self.many else 1,
                required=self.required,
                metavar=self.metavar or name.upper(),
                about=self.help,
            )
        return click.Option(
            [name, *forms],
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
        self._about = about

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the text of the line in ``--help``."""
        shown = "" if self.default is None else f"  [default: {self.default}]"
        return str(self.metavar), self._about + shown

    def make_metavar(self, *_: object) -> str:
        """Return the name for the line of usage, in brackets if it may be left out."""
        return str(self.metavar) if self.required else f"[{self.metavar}]"


# By the name of the parameter of the function that runs a command.
OPTIONS: Mapping[str, Option] = {
    # the study, and values that replace those of its file
    "study": Option("study", "The study file; study.yaml if not given.", _PATH, metavar="STUDY"),
    "candidates": Option("--candidates -c", "The study file, as an option.", _PATH),
    "changes": Option(
        "--set",
        "Any value of the study, such as budget.minutes=5; repeatable.",
        many=True,
        metavar="KEY=VALUE",
    ),
    "selector": Option("--selector -s", "Selection rule, such as ucb-e.", key="selector.name"),
    "history": Option(
        "--history",
        "Earlier run or score file to learn from; repeatable.",
        key="selector.history",
        many=True,
    ),
    "confidence": Option(
        "--confidence",
        "Confidence of all that is shown; if it is not shown, the exit code is 3.",
        float,
        "selector.confidence",
    ),
    "aim": Option(
        "--for",
        "Examples for which it must be shown who leads: seen (of the study) or new.",
        key="stop.for",
    ),
    "confirm": Option(
        "--confirm",
        'Share of the examples kept back for the winner, such as 0.2 or "20%".',
        key="confirm.share",
    ),
    "budget_usd": Option("--budget-usd", 'Dollars, such as 5 or "$5".', key="budget.usd"),
    "budget_share": Option(
        "--budget-share", 'Share of the grid, such as 0.1 or "10%".', key="budget.share"
    ),
    "budget_pulls": Option(
        "--budget-pulls", "Pairs of a candidate and an example.", int, "budget.pulls"
    ),
    "budget_calls": Option(
        "--budget-calls", "Requests sent, retries included.", int, "budget.calls"
    ),
    "budget_tokens": Option("--budget-tokens", "Tokens.", int, "budget.tokens"),
    "budget_minutes": Option("--budget-minutes", "Wall-clock minutes.", float, "budget.minutes"),
    "seed": Option("--seed", "Seed of all random choices.", int, "selector.seed"),
    "in_flight": Option("--in-flight", "Calls at once.", int, "limits.in_flight"),
    "proposer": Option(
        "--proposer",
        "Function that proposes prompts, as module:function, or gepa.",
        key="optimize.proposer",
    ),
    "rounds": Option(
        "--rounds",
        "Times that it is asked at most; 4 if not given.",
        _AT_LEAST_1,
        "optimize.rounds",
    ),
    "proposer_model": Option(
        "--proposer-model",
        "Model that it asks, as provider/model; else the leader's own.",
        key="optimize.model",
    ),
    "baseline": Option(
        "--baseline",
        "What to compare with: a candidate's label, or a run's winner.",
        key="gate.baseline",
    ),
    "challenger": Option(
        "--challenger",
        "Label of a candidate to compare; repeatable; all others if not given.",
        key="gate.challengers",
        many=True,
    ),
    "margin": Option(
        "--margin", "How much lower the mean score may be; 0.02.", float, "gate.margin"
    ),
    "by": Option(
        "--by",
        "Field whose values' examples get verdicts of their own; repeatable.",
        key="slices.by",
        many=True,
    ),
    "improve": Option("--improve", "Ask for better ones, by more than the margin; 0.", bool),
    "risk": Option("--risk", "Largest mean loss that is good enough; 0.1.", float, "certify.risk"),
    "judge": Option("--judge", "The autoevaluator, such as rubric.", key="certify.judge.name"),
    "max_labels": Option(
        "--max-labels", "Most labels that may be used.", _AT_LEAST_1, "certify.max_labels"
    ),
    "labels": Option("--labels", "Labels, .jsonl: id and target.", _PATH),
    # runs, and where they lie
    "run": Option(
        "run",
        'Id of a run, start of an id, name of a study, or "latest". If not given: the newest of '
        "this folder's studies, else the latest.",
        metavar="RUN",
    ),
    "other": Option("other", "The run of B, if it is another.", metavar="OTHER_RUN"),
    "store": Option(
        "--store", "Run store: an SQLite file or a PostgreSQL URL; else BESTARM_STORE."
    ),
    "stores": Option(
        "--store", "Run store: an SQLite file or a PostgreSQL URL; repeatable.", many=True
    ),
    "no_cache": Option("--no-cache", "Do not use replies that earlier runs bought.", bool),
    # what is shown
    "as_json": Option("--json", "Print JSON.", bool),
    "quiet": Option("--quiet -q", "Show no progress.", bool),
    "everything": Option("--all", "Show all, not only the first.", bool),
    "candidate": Option("--candidate", "Only this candidate, by label or id."),
    "example": Option("--example", "Only this example, in full: prompt, reply, verdicts."),
    "wrong": Option("--wrong", "Only scores below one half.", bool),
    "failed": Option("--failed", "Only pairs that failed.", bool),
    "between": Option(
        "--between",
        "The two candidates, by label or id; of two runs, by default the best of each.",
        _PAIR,
        metavar="A B",
    ),
    "detect": Option(
        "--detect", "Say how many examples a difference of accuracy needs, such as 0.03.", float
    ),
    # files to read and to write
    "folder": Option("folder", "Folder to write to.", _PATH, default="bestarm-demo"),
    "out": Option("--out -o", "File or folder to write.", _PATH),
    "report_format": Option(
        "--format", "json is that of `show --json`.", click.Choice(["html", "md", "json"])
    ),
    "export_format": Option(
        "--format",
        "Format; else by the ending of --out.",
        click.Choice(["csv", "json", "parquet", "npz", "inspect"]),
    ),
    "form": Option(
        "--form",
        "One row per pair, or per candidate.",
        click.Choice(["long", "matrix"]),
        default="long",
    ),
    "texts": Option(
        "--texts", "With prompts, targets, replies, answers, verdicts, messages.", bool
    ),
    "markdown": Option("--markdown", "File for a summary in Markdown.", _PATH),
    "junit": Option("--junit", "File for a summary as JUnit XML.", _PATH),
    "config": Option("--from", "A promptfoo config to write the study from.", _PATH),
    "data": Option("--data", "Examples to write the study for: .jsonl, .json or .csv.", _PATH),
    "models": Option("--models", "Its models, as openai/gpt-5-mini,ollama/qwen3:4b."),
    "path": Option("path", "File to write.", _PATH, default="study.yaml"),
    "paths": Option(
        "paths",
        "Logs; the format shows in each file.",
        many=True,
        required=True,
        metavar="LOG...",
    ),
    "metric": Option("--metric", "The score to take, if logs hold several."),
    "study_folder": Option(
        "--study", "Folder for a study that replays the logs.", _PATH, metavar="FOLDER"
    ),
    # rules on known scores
    "matrix": Option(
        "matrix",
        "FILE.npz or FILE.npz:NAME, FILE.csv, FILE.parquet, a run, or logs of other tools.",
        many=True,
        required=True,
        metavar="SCORES...",
    ),
    "selectors": Option(
        "--selectors",
        "Rules separated by commas, each perhaps with [OPTION=VALUE,...].",
        default="auto,ucb-e,sysrs,uniform",
    ),
    "budget": Option(
        "--budget",
        "LO:HI or LO:HI:POINTS, shares of all calls: 0.01:0.30 or 1%:30%.",
        default="0.01:0.30",
    ),
    "seeds": Option(
        "--seeds", "Repetitions, each with the matrix shuffled again.", _AT_LEAST_1, default=50
    ),
    "jobs": Option("--jobs", "Parallel processes; one per core if not given.", _AT_LEAST_1),
    "plot": Option("--plot", "Draw the curves: FILE.svg, FILE.png or FILE.pdf.", _PATH),
    # a router
    "records": Option(
        "history",
        'Records: a .jsonl file, or "-" for JSON lines on stdin.',
        _PATH,
        default="-",
        metavar="RECORDS",
    ),
    "prompt": Option("prompt", 'The prompt; without it, JSON lines {"prompt": ...} on stdin.'),
    "k": Option("-k", "Candidates to run per prompt.", int, default=2),
    "router": Option("--router -r", "Name of the router.", default="default"),
    "names": Option("--names", "JSON file of the candidates: names, or name and usd.", _PATH),
    "settings": Option(
        "--setting",
        "Setting of a new router, such as rule=cppl; repeatable.",
        many=True,
        metavar="KEY=VALUE",
    ),
    # the rest
    "source": Option(
        "source",
        "A stored run (no call is made), or a study file, whose judge is asked.",
        required=True,
    ),
    "gold": Option(
        "gold",
        "Gold scores: example, score, and candidate or answer. If not given: those given to the "
        "run in `bestarm-agent view`.",
        _PATH,
        metavar="LABELS",
    ),
    "name": Option("name", "One provider; all if not given.", metavar="PROVIDER"),
    "check": Option("--check", "Ask those with a key for their list of models.", bool),
    "port": Option("--port", "On 127.0.0.1; 0 for any.", click.IntRange(0, 65535), default=0),
}


def parameters(names: Iterable[str]) -> list[click.Parameter]:
    """Return what click reads for a command that takes these options."""
    return [OPTIONS[name].parameter(name) for name in names]
