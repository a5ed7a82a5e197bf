"""Load a study: read the file, apply overrides, validate; then its examples and prompts."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import BaseModel, JsonValue, ValidationError

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.fields import KeyPath, as_json, dotted, replaced
from bestarm_agent.config.file_errors import Positions, config_error, model_at, options_at
from bestarm_agent.config.files import plain_copy, read_source, read_text, shown_path
from bestarm_agent.config.input_specs import PromptSpec
from bestarm_agent.config.prompts import CompiledPrompt, catalog_prompt, file_prompt, prompt_files
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.config.value_types import Expandable, Name
from bestarm_agent.domain.redaction import secrets_in
from bestarm_agent.domain.values import Example, Json, PromptTemplate
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom


def read_prompts(
    specs: Sequence[PromptSpec], base_dir: Path, catalog: Catalog, positions: Positions
) -> dict[str, PromptTemplate]:
    """Read the prompts of a study, by name, in the order of the file.

    Raises ConfigError if one is missing or malformed, or two have one name.
    """
    prompts: dict[str, PromptTemplate] = {}
    for i, spec in enumerate(specs):
        with positions.at("prompts", i), options_at(partial(positions.describe, "prompts", i)):
            templates = list(_templates(spec, base_dir, catalog))
        for template in templates:
            if template.name in prompts:
                raise positions.error(
                    f"two prompts are called `{template.name}`; give one of them another name",
                    *("prompts", i),
                )
            prompts[template.name] = template
    return prompts


def _templates(spec: PromptSpec, base_dir: Path, catalog: Catalog) -> Iterator[PromptTemplate]:
    if spec.file is not None:
        for path in prompt_files(spec.file, base_dir):
            yield file_prompt(path, name=spec.name)
    elif spec.catalog is not None:
        template = catalog_prompt(spec.catalog, catalog)
        yield replace(template, name=spec.name or template.name)
    else:
        yield spec.template(spec.name or "")


def read_shots(
    config: StudyConfig,
    base_dir: Path,
    prompts: Mapping[str, PromptTemplate],
    examples: Sequence[Example],
    kept_back: Collection[int],
) -> tuple[Example, ...]:
    """Read the worked examples of a study, in the order in which prompts show them.

    Rows that a prompt renders identically are used once. Raises ConfigError as ``read_examples``
    does, and if one is an example of the study that may not be shown.
    """
    if (shots := config.shots) is None:
        return ()
    target, fields = shots.from_.target or config.dataset.target, config.dataset.fields
    if target is None:
        raise ConfigError("worked examples need answers; name their field as `dataset.target`")
    spec = {"target": target, "fields": shots.from_.fields or fields}
    rows = read_examples(shots.from_.model_copy(update=spec), base_dir)
    if shots.pick == "random":
        # One permutation, of which `k` shots take the first `k`: so the shots of a smaller `k` are
        # among those of a larger one, and the axis compares numbers and not choices.
        order = KeyedRandom(config.selector.seed, "shots").at(0).permutation(len(rows))
        rows = tuple(rows[row] for row in order.tolist())
    # Whether two rows look alike depends on the fields that a prompt shows; prompts with the same
    # fields need one look.
    of_fields = {prompt.fields: prompt for prompt in map(CompiledPrompt, prompts.values())}
    hidden = [examples[number] for number in kept_back] if shots.own else examples
    for prompt in of_fields.values():
        taken = {prompt.asked(example.inputs): example.id for example in hidden}
        first_of: dict[str, Example] = {}
        for row in rows:
            asked = prompt.asked(row.inputs)
            if asked not in taken:
                first_of.setdefault(asked, row)
            elif not shots.own:
                raise ConfigError(
                    f"worked example `{row.id}` asks the same as example `{taken[asked]}` of the "
                    "dataset, by which candidates are chosen; name a file of other examples, or "
                    "write `own: true` if prompts may show those of the study"
                )
        rows = tuple(first_of.values())
    return rows


_log = logging.getLogger(__name__)
ENV_FILE = ".env"


def environment(env_file: Path = Path(ENV_FILE)) -> Mapping[str, str]:
    """Return the variables of the process; those of ``.env`` are the fallback."""
    return {**in_env_file(env_file), **os.environ}


def in_env_file(path: Path = Path(ENV_FILE)) -> dict[str, str]:
    """Return the variables of a file, if there is one; raises ConfigError if it is not UTF-8."""
    return {} if path.is_dir() or not path.exists() else {**_variables_in(read_text(path), path)}


@cache  # so that a wrong line is told once
def _variables_in(text: str, path: Path) -> Mapping[str, str]:
    lines = [*parse_stream(StringIO(text))]
    for line in lines:
        if line.error:
            where = f"{shown_path(path)}, line {line.original.line}"
            _log.warning("%s: not NAME=value, or a quote without its end; passed over", where)
    sound = "".join(line.original.string for line in lines if not line.error)
    variables = dotenv_values(stream=StringIO(sound)).items()
    return {name: value for name, value in variables if value is not None}


class _NameAndFolder(BaseModel, defer_build=True):
    name: Name
    output_dir: Expandable = "runs"


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study as it was read."""

    config: StudyConfig  # the validated study; ``${VARIABLE}`` is expanded
    path: Path | None  # the file that it was read from, or None
    base_dir: Path  # folder that its relative paths start from
    positions: Positions  # finds the line of a value, for messages
    # the content, overrides included, before defaults and expansion
    source: Json = field(repr=False)
    changes: tuple[str, ...] = ()  # the overrides as KEY=VALUE, in the order of taking effect

    def record(self) -> dict[str, Json]:
        """Return the study for ``study_from``: with defaults, ``${VARIABLE}`` not expanded."""
        return StudyConfig.model_validate(self.source).model_dump(mode="json")


def load_study(
    path: Path,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    given_by: Mapping[str, str] | None = None,
) -> LoadedStudy:
    """Load and validate a study file (YAML, or JSON by the ending of its name).

    Args:
        path: the file; relative paths in it start from its folder.
        overrides: values that replace those of the file, by dotted key ("selector.seed").
        environ: variables for ``${VARIABLE}``; default: those of the process and of ``.env``.
        given_by: name of each override in messages ("--seed"); default: "override KEY".

    Raises:
        ConfigError: the first ten broken rules, with line, key, value and way out.
    """
    data, positions = read_source(path)
    _check_caps(data, positions)
    data.pop("$schema", None)  # for editors, in a JSON file
    data.setdefault("name", _name_of(path))
    return _loaded(data, overrides or {}, given_by or {}, positions, environ, path, path.parent)


def _check_caps(data: Mapping[str, JsonValue], positions: Positions) -> None:
    """Refuse a cap without a value: somebody meant one, and the run would go on without."""
    budget = data.get("budget")
    for key, value in budget.items() if isinstance(budget, dict) else ():
        if value is None:
            raise positions.error(
                f"`budget.{key}` is empty, and a cap is a number; write one, or leave the key out",
                *("budget", key),
            )


def study_place(path: Path) -> tuple[str, Path]:
    """Return the name of a study and the folder of its runs; check nothing else in its file.

    Raises:
        ConfigError: the file is malformed, or one of the two breaks a rule.
    """
    data, positions = read_source(path)
    given = {key: data[key] for key in _NameAndFolder.model_fields if key in data}
    try:
        named = _NameAndFolder.model_validate(
            {"name": _name_of(path), **given}, context={"environ": environment()}
        )
    except ValidationError as error:
        raise config_error(error, StudyConfig, positions) from None
    return named.name, path.parent / named.output_dir


def study_from(
    content: Mapping[str, object],
    base_dir: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> LoadedStudy:
    """Validate the content of a study file, or the result of ``LoadedStudy.record``.

    Args:
        content: the study; it is not changed.
        base_dir: folder that relative paths start from; default: the working directory.
        overrides: values that replace those of ``content``, by dotted key.
        environ: variables for ``${VARIABLE}``; default: those of the process and of ``.env``.
    """
    positions = Positions("the study")
    data = {key: plain_copy(value, positions, key) for key, value in content.items()}
    return _loaded(data, overrides or {}, {}, positions, environ, None, base_dir or Path())


def _loaded(
    data: dict[str, JsonValue],
    overrides: Mapping[str, object],
    given_by: Mapping[str, str],
    positions: Positions,
    environ: Mapping[str, str] | None,
    path: Path | None,
    base_dir: Path,
) -> LoadedStudy:
    origins: dict[KeyPath, str] = {}
    for key, value in overrides.items():
        _override(data, key, value)
        # Messages name the option that gave a value ("--seed") rather than a line that does not
        # hold it.
        origins[tuple(key.split("."))] = given_by.get(key, f"override {key}")
    positions = replace(positions, origins=origins)
    context = {"environ": environment() if environ is None else environ}
    try:
        config = StudyConfig.model_validate(data, context=context)
    except ValidationError as error:
        raise config_error(error, StudyConfig, positions) from None
    texts = (v if isinstance(v, str) else json.dumps(v, default=str) for v in overrides.values())
    changes = tuple(map("=".join, zip(overrides, texts, strict=True)))
    study = LoadedStudy(config, path, base_dir, positions, data, changes)
    # Options were checked as they were validated. This looks at everything that the log will hold,
    # since a value that the log leaves out would be missing when the run is resumed.
    for secret in secrets_in(study.record()):
        raise positions.error(
            f"`{dotted(secret)}` is named like a secret, and the log of a run leaves its value "
            "out, so that the run could not be resumed; choose another name",
            *secret,
        )
    return study


def _name_of(path: Path) -> str:
    return re.sub(r"[^\w.+-]+", "-", path.stem).lstrip(".+-") or "study"


def _override(data: dict[str, JsonValue], key: str, value: object) -> None:
    *parents, last = key.split(".")
    # `selector.seed` on `selector: auto` first writes the short form out, as {"name": "auto"}; an
    # empty parent is made.
    here = data
    for depth in range(len(parents)):
        here = _mapping_in(here, parents[: depth + 1], key)
    here[last] = replaced(value, lambda scalar, _: scalar)


def _mapping_in(
    around: dict[str, JsonValue], path: Sequence[str], key: str
) -> dict[str, JsonValue]:
    """Return the mapping at the end of ``path``; a short form is written out first."""
    content = around.get(path[-1])
    model = model_at(StudyConfig, tuple(path))
    if isinstance(content, str) and model is not None and model.short_form is not None:
        content = {model.short_form: content}
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"cannot override `{key}`: `{'.'.join(path)}` is {as_json(content)}, not a mapping"
        )
    around[path[-1]] = content
    return content
