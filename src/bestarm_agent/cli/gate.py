"""``gate``: whether candidates are not worse than a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import (
    BudgetOptions,
    Keyed,
    Number,
    RunOptions,
    Showing,
    StudyFile,
    StudyPlace,
    Text,
    overrides,
)

if TYPE_CHECKING:
    from bestarm_agent.engine.mode import ModeResult


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Values of the section ``gate``: what is compared, and what is asked."""

    baseline: Annotated[
        Text,
        Keyed("gate.baseline", "What to compare with: a candidate's label, or a run's winner."),
    ] = None
    challenger: Annotated[
        list[str] | None,
        Keyed("gate.challengers", "Label of a candidate to compare; repeatable; all others."),
    ] = None
    margin: Annotated[
        Number, Keyed("gate.margin", "By how much the mean score may be lower; 0.02.")
    ] = None
    confidence: Annotated[
        Number, Keyed("gate.confidence", "Probability that all verdicts are right; 0.95.")
    ] = None
    by: Annotated[
        list[str] | None,
        Keyed("slices.by", "Field whose values' examples get verdicts of their own; repeatable."),
    ] = None
    slice_margin: Annotated[
        Number, Keyed("gate.slice_margin", "The margin of each of them; the margin.")
    ] = None
    improve: Annotated[
        bool, typer.Option("--improve", help="Ask for better ones, by more than the margin; 0.")
    ] = False
    markdown: Annotated[Path | None, typer.Option(help="Write a summary in Markdown.")] = None
    junit: Annotated[Path | None, typer.Option(help="Write a summary as JUnit XML.")] = None

    def check_folders(self) -> None:
        """Refuse files that cannot be written, before anything is paid for; with a ConfigError."""
        from bestarm_agent.errors import ConfigError

        for path in (self.markdown, self.junit):
            if path is not None and not path.parent.is_dir():
                raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}")

    def write_files(self, found: ModeResult, name: str) -> None:
        """Write the files that are named, on the verdicts of the study of this name."""
        from bestarm_agent.gate.files import junit, markdown

        for path, text in ((self.markdown, markdown), (self.junit, junit)):
            if path is not None:
                path.write_text(text(found, name), encoding="utf-8")


def gate(
    file: StudyFile,
    options: GateOptions,
    budget: BudgetOptions,
    run: RunOptions,
    place: StudyPlace,
    showing: Showing,
) -> None:
    """Tell whether candidates are not worse than a baseline.

    Exit code 0: none is worse, on all examples and each slice; 5: one is; 3: the budget left it
    open; 4: too many calls failed.
    """
    from bestarm_agent.cli.run_command import run_study
    from bestarm_agent.config.settings import resolve
    from bestarm_agent.study import Study

    options.check_folders()
    changes = overrides(options, budget, run)
    if options.improve:
        changes["gate.improve"] = True
    study = resolve(file.path, changes)
    opening = Study.gate(study, options=place.options())
    run_study(opening, None, showing, write=options.write_files)
