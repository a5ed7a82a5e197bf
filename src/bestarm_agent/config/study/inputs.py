"""Read the examples and the prompts of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets.load import load_examples, load_huggingface_examples
from bestarm_agent.config.datasets.rows import Columns
from bestarm_agent.config.prompts.load import catalog_prompt, file_prompt, prompt_files
from bestarm_agent.config.prompts.templates import CompiledPrompt
from bestarm_agent.config.study.dataset_and_scorer import DatasetSpec
from bestarm_agent.config.study.models_and_prompts import PromptSpec
from bestarm_agent.config.yaml.documents import locating, placing
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError


def read_examples(spec: DatasetSpec, base_dir: Path) -> tuple[Example, ...]:
    """Read the dataset of a study; raise ConfigError if it is missing or breaks a rule."""
    columns = Columns(spec.id, spec.target, spec.fields)
    if spec.huggingface is not None:
        source = spec.huggingface.model_dump()
        name = source.pop("name")
        return load_huggingface_examples(name, columns, **source, limit=spec.limit)
    path = base_dir / (spec.path or "")
    return load_examples(path, columns, format=spec.format, limit=spec.limit, base_dir=base_dir)


def read_prompts(
    specs: Sequence[PromptSpec], base_dir: Path, catalog: Catalog, places: Places
) -> dict[str, PromptTemplate]:
    """Read the prompts of a study, by name, in the order of the file.

    Raises ConfigError if one is missing or malformed, or two have one name.
    """
    prompts: dict[str, PromptTemplate] = {}
    for i, spec in enumerate(specs):
        with (
            locating(partial(places.located, ("prompts", i))),
            placing(partial(places.where, "prompts", i)),
        ):
            templates = list(_templates(spec, base_dir, catalog))
        for template in templates:
            if template.name in prompts:
                raise places.error(
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
        found = catalog_prompt(spec.catalog, catalog)
        yield PromptTemplate(spec.name or found.name, found.text, found.messages)
    else:
        messages = tuple(Message(item.role, item.content) for item in spec.messages or ())
        yield PromptTemplate(spec.name or "", spec.text, messages)


def check_fields(
    prompts: Mapping[str, PromptTemplate], spec: DatasetSpec, examples: Sequence[Example]
) -> list[str]:
    """Return the names of prompts that use no field; raise ConfigError if one uses the target."""
    fields = {name: CompiledPrompt(template).fields for name, template in prompts.items()}
    known = {field for example in examples for field in example.inputs}
    for name, used in fields.items():
        if spec.target in used - known:
            raise ConfigError(
                f"prompt `{name}` uses the field `{spec.target}`, which is the dataset's target: "
                "the expected answer is not shown to candidates; use another field, or list it in "
                "`dataset.fields` if it may be shown"
            )
    return [name for name, used in fields.items() if not used & known]
