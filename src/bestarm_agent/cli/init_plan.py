"""``init`` and ``plan``: everything before the first call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import (
    CatalogOption,
    JsonOption,
    StoreOption,
    StudyFile,
    default_catalogs,
)

if TYPE_CHECKING:
    from bestarm_agent.engine.setup.parts import StudyParts


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("study.yaml"),
    config: Annotated[
        Path | None, typer.Option("--from", help="A promptfoo config to write the study from.")
    ] = None,
) -> None:
    """Write a commented study file to start from. An existing file is never overwritten."""
    from bestarm_agent.config.starter import write_starter
    from bestarm_agent.interop.promptfoo_study import write_study

    written = write_starter(path) if config is None else write_study(config, path)
    typer.echo(f"written: {', '.join(map(str, written))}")
    if config is None:
        typer.echo(f"it runs as it is: bestarm-agent select {path}")
    else:
        typer.echo(f"check it, and see what it would cost: bestarm-agent plan {path}")


def plan(
    file: StudyFile,
    store: StoreOption = None,
    catalog: CatalogOption = None,
    detect: Annotated[
        float | None,
        typer.Option(help="Say how many examples a difference of accuracy needs, such as 0.03."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a study and all that it names, and say what it can cost. No call is made."""
    from bestarm_agent.cli.plan_output import show_plan
    from bestarm_agent.errors import ConfigError

    if detect is not None and not 0 < detect < 1:
        raise ConfigError(f"--detect must be between 0 and 1, got {detect}")
    show_plan(_parts(file.path, catalog), store, detect=detect, as_json=as_json)


def _parts(path: Path, catalogs: list[Path] | None) -> StudyParts:
    from bestarm_agent.config.catalog import Catalog
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.engine.setup.parts import assemble
    from bestarm_agent.study import open_mode

    study = resolve(path)
    return assemble(study, Catalog(study.base_dir, default_catalogs(catalogs)), open_mode)
