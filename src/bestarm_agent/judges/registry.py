"""Judges by name: an entry of the catalogue says which adapter, and with which options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict

from bestarm_agent.catalog import Catalog, CatalogEntry
from bestarm_agent.config.documents import KeyPath, parse_options, shown_path
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.functions import load_program
from bestarm_agent.judges.asking import AskingJudge
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.contains import ContainsJudge
from bestarm_agent.judges.criteria import CriteriaJudge
from bestarm_agent.judges.ensemble import EnsembleJudge, EnsembleOptions
from bestarm_agent.judges.exact import ExactJudge
from bestarm_agent.judges.grading import ReferenceGradedJudge, RubricJudge
from bestarm_agent.judges.json_schema import JsonSchemaJudge
from bestarm_agent.judges.metrics import (
    BleuJudge,
    ChrfJudge,
    RougeJudge,
    SquadExactJudge,
    TokenF1Judge,
)
from bestarm_agent.judges.multiple_choice import MultipleChoiceJudge
from bestarm_agent.judges.numeric import NumericJudge
from bestarm_agent.judges.pairwise import PairwiseJudge
from bestarm_agent.judges.python import PythonJudge, PythonOptions
from bestarm_agent.judges.recorded import RecordedJudge
from bestarm_agent.judges.regex import RegexJudge
from bestarm_agent.judges.rule import RuleJudge

Adapter: TypeAlias = (
    type[RuleJudge[Any, Any]]
    | type[RecordedJudge]
    | type[AskingJudge[Any]]
    | type[EnsembleJudge]
    | type[PythonJudge]
)

_ADAPTERS: Mapping[str, Adapter] = {
    adapter.adapter: adapter
    for adapter in (
        ExactJudge,
        ContainsJudge,
        NumericJudge,
        RegexJudge,
        MultipleChoiceJudge,
        RecordedJudge,
        TokenF1Judge,
        SquadExactJudge,
        BleuJudge,
        ChrfJudge,
        RougeJudge,
        JsonSchemaJudge,
        PythonJudge,
        RubricJudge,
        ReferenceGradedJudge,
        CriteriaJudge,
        PairwiseJudge,
        EnsembleJudge,
    )
}


class JudgeEntry(BaseModel):
    """A file of a ``judges/`` folder.

    Attributes:
        name: the file's name without its suffix.
        description: one sentence for people.
        adapter: how it is spoken: one of the shipped judges.
        options: options that differ from those of the shipped judge of that name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    description: str = ""
    adapter: str
    options: dict[str, Any] = {}


def create_judge(name: str, options: Mapping[str, Json], catalog: Catalog) -> Judge:
    """Build the judge of that name.

    Options count in this order: those given, those of the catalogue entry, those that ship with
    the adapter.

    Args:
        name: name of a catalogue entry.
        options: what the study sets.
        catalog: where to look.

    Raises:
        ConfigError: there is no such judge or adapter, or an option is unknown, missing or wrong.

    Example:
        >>> create_judge("exact", {"normalise": ["strip"]}, Catalog()).name
        'exact'
    """
    entry = catalog.get("judges", name)
    declared = entry.parse(JudgeEntry)
    adapter = _adapter(declared.adapter, entry)
    shipped = catalog.shipped("judges", declared.adapter)
    merged = {**shipped.parse(JudgeEntry).options, **declared.options, **options}
    is_own = entry.path != shipped.path
    subject = f"judge `{name}`" + (f" ({shown_path(entry.path)})" if is_own else "")
    lines = _option_lines(entry, options) if is_own else None
    if issubclass(adapter, EnsembleJudge):
        ensemble = parse_options(EnsembleOptions, merged, subject=subject, lines=lines)
        members = [create_judge(one.name, one.options, catalog) for one in ensemble.members]
        return EnsembleJudge(name, ensemble, members)
    if issubclass(adapter, PythonJudge):
        python = parse_options(PythonOptions, merged, subject=subject, lines=lines)
        program = load_program(python.function, catalog.user_dir or Path(), python.sources)
        return PythonJudge(name, python, program)
    return adapter(name, parse_options(adapter.options_type, merged, subject=subject, lines=lines))


def check_examples(judge: Judge, examples: Iterable[Example]) -> None:
    """Check, before any call is paid for, that a judge can score replies to these examples.

    Raises:
        ConfigError: one of them lacks a usable reference answer; names it.
    """
    for example in examples:
        if isinstance(judge, EnsembleJudge):
            for member in judge.members:
                check_examples(member, [example])
        elif isinstance(judge, RuleJudge | AskingJudge | PythonJudge):
            judge.check(example)
        elif judge.needs_reference and example.reference is None:
            raise ConfigError(
                f"example `{example.id}` has no reference answer, which judge `{judge.name}` "
                "needs; set the dataset's target field, or choose another judge"
            )


def _adapter(name: str, entry: CatalogEntry) -> Adapter:
    if name not in _ADAPTERS:
        raise ConfigError(
            f"{shown_path(entry.path)}, line {entry.lines['adapter',]}: there is no judge adapter "
            f"`{name}`; {nearest(name, _ADAPTERS)}"
        )
    return _ADAPTERS[name]


def _option_lines(entry: CatalogEntry, overridden: Mapping[str, Json]) -> dict[KeyPath, int]:
    return {
        path[1:]: line
        for path, line in entry.lines.items()
        if path[0] == "options" and len(path) > 1 and path[1] not in overridden
    }
