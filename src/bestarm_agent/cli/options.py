"""The options that several commands share, and how they become overrides of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.config.settings import Settings
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.opening import STORE_FILE, Options

_DEPTH = 4  # how many levels of folders, this one included, are searched for a store
_MOST_STORES = 5


class Display(StrEnum):
    """How progress is shown, on stderr."""

    AUTO = "auto"
    FULL = "full"
    PLAIN = "plain"
    NONE = "none"


CandidatesOption = Annotated[
    Path,
    typer.Option("--candidates", "-c", help="The study file: what is compared, and how."),
]
RunArgument = Annotated[
    str, typer.Argument(help='Id of the run, start of an id, name of the study, or "latest".')
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Run store: an SQLite file or a PostgreSQL URL."),
]
CatalogOption = Annotated[
    list[Path] | None,
    typer.Option("--catalog", help="Folder with providers/, judges/ or prompts/; may be repeated."),
]
OutputOption = Annotated[
    str | None, typer.Option("--output-dir", "-o", help="Folder of the run store and the reports.")
]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Do not use replies that earlier runs bought.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
DisplayOption = Annotated[Display, typer.Option("--display", help="How progress is shown.")]
ShareOption = Annotated[
    str | None, typer.Option("--budget-share", help='Share of the grid, such as 0.1 or "10%".')
]
UsdOption = Annotated[str | None, typer.Option("--budget-usd", help='Dollars, such as 5 or "$5".')]
PullsOption = Annotated[
    int | None, typer.Option("--budget-pulls", help="(candidate, example) pairs.")
]
CallsOption = Annotated[
    int | None, typer.Option("--budget-calls", help="Requests sent, retries included.")
]
TokensOption = Annotated[int | None, typer.Option("--budget-tokens", help="Tokens.")]
MinutesOption = Annotated[
    float | None, typer.Option("--budget-minutes", help="Wall-clock minutes.")
]


SelectorOption = Annotated[
    str | None, typer.Option("--selector", "-s", help="Selection rule, such as ucb-e.")
]
HistoryOption = Annotated[
    list[str] | None,
    typer.Option("--history", help="Earlier run or score file to learn from; may be repeated."),
]
PerOption = Annotated[
    str | None, typer.Option("--per", help="Make the most of calls, or of dollars: call, dollar.")
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="What to find: best, best-under-usd, cheapest-within-epsilon, pareto.",
    ),
]
EpsilonOption = Annotated[
    float | None,
    typer.Option("--epsilon", help="How far below the best is good enough, in (0, 1)."),
]
UsdPer1kOption = Annotated[
    str | None,
    typer.Option("--usd-per-1k-calls", help="Dollars that 1,000 calls of the winner may cost."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Seed of all random choices.")]
ConfidenceOption = Annotated[
    float | None, typer.Option("--confidence", help="Stop once the best is this certain.")
]
InFlightOption = Annotated[
    int | None, typer.Option("--in-flight", "--max-connections", help="Calls at once.")
]


def overrides(**values: object) -> dict[str, Json]:
    """Keep the options that were given, under their dotted keys ("selector__seed")."""
    return {
        key.replace("__", "."): value  # type: ignore[misc]
        for key, value in values.items()
        if value is not None
    }


def study_options(
    store: str | Path | None, catalog: list[Path] | None, *, no_cache: bool = False
) -> Options:
    """How to open a study, from flags and the environment."""
    return Options(
        store=store or Settings().store,
        catalog_dirs=default_catalogs(catalog),
        use_cache=not no_cache,
    )


def default_catalogs(catalog: list[Path] | None) -> tuple[Path, ...]:
    """Catalogue folders, from flags or the environment."""
    return tuple(catalog or Settings().catalog_dirs)


def default_store(store: str | None) -> str | Path:
    """Where runs are stored: the flag, the environment, or the only usual file near this folder.

    Raises:
        ConfigError: none is given, and not exactly one store lies below this folder.
    """
    given = store or Settings().store
    if given:
        return given
    found = [path for i in range(_DEPTH) for path in Path().glob("*/" * i + STORE_FILE)]
    if len(found) == 1:
        return found[0]
    raise ConfigError(_which_store(found))


def _which_store(found: Sequence[Path]) -> str:
    """Ask for one store where there are several, the one that was last written to first."""
    if not found:
        return (
            f"no run store ({STORE_FILE}) lies in this folder or up to {_DEPTH - 1} folders below; "
            f"`bestarm-agent select` and `preselect train` make one; name yours with --store PATH"
        )
    latest = sorted(found, key=lambda path: (-path.stat().st_mtime, path))
    more = len(found) - _MOST_STORES
    listed = ", ".join(map(str, latest[:_MOST_STORES])) + (f" and {more} more" if more > 0 else "")
    return (
        f"{len(found)} run stores lie here, the last written to first: {listed}; choose one with "
        f"--store {latest[0]} or BESTARM_STORE, or call from the folder of the study"
    )
