"""``demo``: a real selection in seconds, from answers that were recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bestarm_agent.cli.options import Showing

_FILES = ("study.yaml", "dataset.jsonl", "answers.jsonl.gz")
_Folder = Annotated[Path, typer.Argument(help="Folder to write the study and the report to.")]


def demo(showing: Showing, folder: _Folder = Path("bestarm-demo")) -> None:
    """See a selection in ten seconds: no key, no model, no network.

    Writes a study of 60 candidates and the recorded answers of five small models into a folder,
    and runs it. Everything but the models is real.
    """
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.study import Study

    study = write_demo(folder)
    try:
        run_study(Study.open(study), None, showing)
    except typer.Exit as done:
        if done.exit_code == 0:
            typer.echo(_next_steps(study), err=showing.as_json)
        raise


def write_demo(folder: Path) -> Path:
    """Write the files of the demo into ``folder``; return the path of the study."""
    from importlib.resources import files

    folder.mkdir(parents=True, exist_ok=True)
    source = files("bestarm_agent.cli") / "demo_files"
    for name in _FILES:
        (folder / name).write_bytes((source / name).read_bytes())
    return folder / _FILES[0]


def _next_steps(study: Path) -> str:
    return (
        f"\nThe study:  {study}\nYour own:   bestarm-agent init     (writes a commented study.yaml)"
    )
