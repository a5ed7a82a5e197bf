"""The options that commands share: fields of dataclasses, so that each is stated once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from bestarm_agent.domain.digest import Json
    from bestarm_agent.engine.setup.open_run import Options


class Keyed(OptionInfo):
    """An option that replaces the value of a study file at a dotted key ("budget.usd").

    ``help`` is its text in ``--help``; ``names`` are flags, where they are not the field's name.
    """

    def __init__(self, key: str, help: str, *names: str, min: int | None = None) -> None:
        vars(self).update(vars(typer.Option(*names, help=help, min=min)))
        self.key = key


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options of its own.

    The result takes keyword arguments, one per option, and builds the dataclasses from them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type)}
    groups = {name: hint for name, hint in groups.items() if is_dataclass(hint)}

    @wraps(command)
    def call(**values: object) -> None:
        _apply_settings()
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    parameters = list(_parameters(command, hints))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def overrides(*groups: object) -> dict[str, Json]:
    """Collect the ``Keyed`` options that were given, under their dotted keys."""
    return {
        mark.key: value
        for group in groups
        for name, hint in get_type_hints(type(group), include_extras=True).items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Keyed) and (value := getattr(group, name)) is not None
    }


def _parameters(command: Callable[..., None], hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not is_dataclass(hint):
            yield _option(parameter.name, hint, parameter.default)
            continue
        field_hints = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield _option(field.name, field_hints[field.name], default)


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY  # typer passes keywords; any order of defaults is allowed
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _apply_settings() -> None:
    from bestarm_agent.cli.environment import apply_settings

    apply_settings()


Text: TypeAlias = str | None
Count: TypeAlias = int | None
Number: TypeAlias = float | None

STUDY_FILE = "study.yaml"


class Display(StrEnum):
    """Form of the progress on stderr."""

    AUTO = "auto"
    FULL = "full"
    PLAIN = "plain"
    NONE = "none"


RunArgument = Annotated[
    Text,
    typer.Argument(
        help='Id of the run, start of an id, name of the study, or "latest".',
        show_default="newest of this folder's studies, else latest",
    ),
]
StoreOption = Annotated[Text, typer.Option(help="Run store: an SQLite file or a PostgreSQL URL.")]
CatalogOption = Annotated[
    list[Path] | None,
    typer.Option(help="Folder with providers/, judges/ or prompts/; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
UsdOption = Annotated[Text, Keyed("budget.usd", 'Dollars, such as 5 or "$5".')]
CallsOption = Annotated[Count, Keyed("budget.calls", "Requests sent, retries included.")]


@dataclass(frozen=True, slots=True)
class StudyFile:
    """The study file of a command, as an argument or as an option."""

    study: Annotated[
        Path | None,
        typer.Argument(help="The study file.", show_default=STUDY_FILE),
    ] = None
    candidates: Annotated[
        Path | None, typer.Option("--candidates", "-c", help="The study file, as an option.")
    ] = None

    @property
    def path(self) -> Path:
        """The file named, or ``study.yaml`` of the working directory; ConfigError if neither."""
        from bestarm_agent.errors import ConfigError

        if self.study is not None and self.candidates is not None:
            raise ConfigError(
                f"two study files are named, {self.study} and --candidates {self.candidates}; "
                f"name one"
            )
        named = self.study or self.candidates
        if named is None and not Path(STUDY_FILE).exists():
            raise ConfigError(
                f"no study file is named, and there is no {STUDY_FILE} in this folder; name one, "
                f"or write one with `bestarm-agent init`"
            )
        return named or Path(STUDY_FILE)


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """Hard caps, in the units of the study file."""

    budget_usd: UsdOption = None
    budget_pulls: Annotated[Count, Keyed("budget.pulls", "(candidate, example) pairs.")] = None
    budget_calls: CallsOption = None
    budget_tokens: Annotated[Count, Keyed("budget.tokens", "Tokens.")] = None
    budget_minutes: Annotated[Number, Keyed("budget.minutes", "Wall-clock minutes.")] = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Values of the study file that every command with real calls can replace."""

    seed: Annotated[Count, Keyed("selector.seed", "Seed of all random choices.")] = None
    in_flight: Annotated[
        Count, Keyed("limits.in_flight", "Calls at once.", "--in-flight", "--max-connections")
    ] = None
    output_dir: Annotated[
        Text, Keyed("output_dir", "Folder of the run store and the reports.", "--output-dir", "-o")
    ] = None


def default_catalogs(given: Sequence[Path] | None) -> tuple[Path, ...]:
    """Return the catalogue folders, from flags or the environment."""
    from bestarm_agent.config.settings import Settings

    return tuple(given or Settings().catalog_dirs)


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """Places of runs and catalogue entries, and the use of stored replies."""

    store: StoreOption = None
    catalog: CatalogOption = None
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not use replies that earlier runs bought.")
    ] = False

    def options(self, store: str | Path | None = None) -> Options:
        """Return the options to open a study with; ``store``, a path or URL, wins."""
        from bestarm_agent.config.settings import Settings
        from bestarm_agent.engine.setup.open_run import Options

        return Options(
            store=store or self.store or Settings().store,
            catalog_dirs=default_catalogs(self.catalog),
            use_cache=not self.no_cache,
        )


@dataclass(frozen=True, slots=True)
class Showing:
    """Form of a run's progress and result."""

    as_json: JsonOption = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False
    display: Annotated[
        Display | None, typer.Option(help="How progress is shown.", show_default="auto")
    ] = None

    @property
    def progress(self) -> Display:
        """Form of the progress, by the flags or by BESTARM_DISPLAY."""
        from bestarm_agent.config.settings import Settings

        if self.quiet:
            return Display.NONE
        return self.display or Display(Settings().display)
