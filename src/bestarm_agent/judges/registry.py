"""Create judges by name; a catalogue entry states the adapter and its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from pydantic import Field

from bestarm_agent.config.catalog import Catalog, CatalogEntry
from bestarm_agent.config.fields import KeyPath, StrictModel
from bestarm_agent.config.files import shown_path
from bestarm_agent.config.functions import load_object
from bestarm_agent.domain.values import Example, Json
from bestarm_agent.errors import ConfigError, PluginError, counted
from bestarm_agent.judges.base import Judge, JudgeSetup
from bestarm_agent.plugins import Registry, is_path

_MOST_UNRECOGNISED = 0.05  # share of targets that a scorer may fail to recognise
_NAMED = 5  # of those, in messages
_HERE = "bestarm_agent.judges"
JUDGES: Final = Registry[type[Judge[Any]]](
    "judge adapter",
    "judges",
    {
        "bleu": f"{_HERE}.metrics:BleuJudge",
        "checks": f"{_HERE}.checks:ChecksJudge",
        "chrf": f"{_HERE}.metrics:ChrfJudge",
        "contains": f"{_HERE}.text:ContainsJudge",
        "criteria": f"{_HERE}.grading:CriteriaJudge",
        "ensemble": f"{_HERE}.groups:EnsembleJudge",
        "exact": f"{_HERE}.text:ExactJudge",
        "g-eval": f"{_HERE}.grading:GEvalJudge",
        "json-schema": f"{_HERE}.text:JsonSchemaJudge",
        "math": f"{_HERE}.math:MathJudge",
        "multiple-choice": f"{_HERE}.choice:MultipleChoiceJudge",
        "numeric": f"{_HERE}.numbers:NumericJudge",
        "pairwise": f"{_HERE}.pairwise:PairwiseJudge",
        "people": f"{_HERE}.people:PeopleJudge",
        "python": f"{_HERE}.python:PythonJudge",
        "recorded": f"{_HERE}.text:RecordedJudge",
        "reference-graded": f"{_HERE}.grading:ReferenceGradedJudge",
        "regex": f"{_HERE}.text:RegexJudge",
        "rouge": f"{_HERE}.metrics:RougeJudge",
        "rubric": f"{_HERE}.grading:RubricJudge",
        "squad-exact": f"{_HERE}.metrics:SquadExactJudge",
        "token-f1": f"{_HERE}.metrics:TokenF1Judge",
        "tool-call": f"{_HERE}.tools:ToolCallJudge",
    },
    lambda adapter: isinstance(adapter, type) and issubclass(adapter, Judge),
    "a subclass of bestarm_agent.judges.Judge",
)


class JudgeEntry(StrictModel):
    """A file of a ``judges/`` folder; ``options`` are those that differ from the adapter's."""

    name: str = ""
    description: str = ""
    adapter: str
    options: dict[str, Any] = Field(default_factory=dict)


def create_judge(name: str, options: Mapping[str, Json], catalog: Catalog) -> Judge:
    """Build the judge of that name: a catalogue entry, a plug-in or a dotted path ``module:Class``.

    Options are taken from ``options``, then from the catalogue entry, then from the shipped entry
    of its adapter (prompts), then from the defaults in the code.

    Raises:
        ConfigError: there is no such judge or adapter, or an option is unknown, missing or wrong.

    Example:
        >>> create_judge("exact", {"normalise": ["strip"]}, Catalog()).name
        'exact'
    """
    given = catalog.objects.get(("judges", name))
    if given is not None:
        return cast(Judge, given)
    entry, declared, adapter = _declared(name, catalog)
    # From the weakest to the strongest: the shipped prompts of the adapter, the user's catalogue
    # entry, the options given here. So an entry of one's own may change one option and keep the
    # rest.
    is_built_in = declared.adapter in JUDGES.built_in
    shipped = catalog.shipped("judges", declared.adapter) if is_built_in else None
    prompts = shipped.parse(JudgeEntry).options if shipped else {}
    # Lines of a shipped file would help nobody: the user did not write it.
    is_own = bool(entry.lines) and (shipped is None or entry.path != shipped.path)
    subject = f"judge `{name}`" + (f" ({shown_path(entry.path)})" if is_own else "")
    setup = JudgeSetup(
        catalog.user_dir or Path(),
        lambda member, given: create_judge(member, given, catalog),
        partial(_named, catalog),
        subject,
        _option_lines(entry, options) if is_own else None,
    )
    return adapter.create(name, {**prompts, **declared.options, **options}, setup)


def check_examples(judge: Judge, examples: Iterable[Example]) -> None:
    """Raise ConfigError, with its place, if replies to an example cannot be scored by a judge."""
    for example in examples:
        try:
            judge.check(example)
        except ConfigError as error:
            raise type(error)(": ".join(filter(None, (example.position, str(error))))) from None


def check_targets(judge: Judge, examples: Sequence[Example]) -> list[str]:
    """Score each target as if it were the reply, free; return a notice on those that get less.

    Raises:
        ConfigError: they are more than 5 % of the examples.
    """
    # A few odd targets are told and tolerated, since datasets have them. More than a share of 5 %
    # says that the scorer does not fit the dataset, and every answer would be scored wrong for
    # that.
    rejected = [(example.id, why) for example in examples if (why := judge.unrecognised(example))]
    if not rejected:
        return []
    named = "; ".join(f"example `{name}`: {why}" for name, why in rejected[:_NAMED])
    others = f"; and {len(rejected) - _NAMED:,} more" if len(rejected) > _NAMED else ""
    text = (
        f"the right answer itself would not score 1 for {len(rejected):,} of "
        f"{counted(len(examples), 'example')} ({named}{others}); "
    )
    if len(rejected) > _MOST_UNRECOGNISED * len(examples):
        raise ConfigError(
            f"{text}correct these targets in the dataset, set the scorer's options for the form in "
            "which they are written, or take a scorer that reads it (`exact` and `contains` "
            "compare any text)"
        )
    return [f"{text}no answer to {'it' if len(rejected) == 1 else 'them'} can be right"]


def _declared(name: str, catalog: Catalog) -> tuple[CatalogEntry, JudgeEntry, type[Judge[Any]]]:
    entry = catalog.get("judges", name)
    declared = entry.parse(JudgeEntry)
    return entry, declared, _adapter(declared.adapter, entry, catalog.user_dir or Path())


def _named(catalog: Catalog, name: str) -> tuple[type[Judge[Any]], Mapping[str, Json]] | None:
    if not is_path(name) and name not in catalog.names("judges"):
        return None
    _, declared, adapter = _declared(name, catalog)
    return adapter, {} if name == declared.adapter else declared.options


def _adapter(name: str, entry: CatalogEntry, base_dir: Path) -> type[Judge[Any]]:
    try:
        return JUDGES.load(name, imported=partial(load_object, base_dir=base_dir))
    except PluginError as error:
        if is_path(name):
            function = name.rpartition("/")[2]
            raise PluginError(
                f"{error}; a function is named by {{name: python, function: {function}}}"
            ) from error
        raise
    except ConfigError as error:
        line = entry.lines["adapter",]
        raise ConfigError(f"{shown_path(entry.path)}, line {line}: {error}") from None


def _option_lines(entry: CatalogEntry, overridden: Mapping[str, Json]) -> dict[KeyPath, int]:
    return {
        path[1:]: line
        for path, line in entry.lines.items()
        if path[0] == "options" and len(path) > 1 and path[1] not in overridden
    }
