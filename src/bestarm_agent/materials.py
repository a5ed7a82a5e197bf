"""What a study compares with and on: prompts and examples, read from where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from bestarm_agent.catalog import Catalog
from bestarm_agent.config.data import DatasetSpec
from bestarm_agent.config.documents import placing
from bestarm_agent.config.entries import PromptSpec
from bestarm_agent.config.places import Places
from bestarm_agent.datasets.loading import load_examples, load_huggingface_examples
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.prompts.loading import catalog_prompt, file_prompt, prompt_files


def read_examples(spec: DatasetSpec, base_dir: Path) -> tuple[Example, ...]:
    """Read the dataset that a study names.

    Raises:
        ConfigError: it cannot be read, or a row breaks a rule.
    """
    read: Callable[..., tuple[Example, ...]]
    if spec.huggingface is not None:
        source = spec.huggingface.model_dump()
        read = partial(load_huggingface_examples, source.pop("name"), **source)
    else:
        read = partial(load_examples, base_dir / (spec.path or ""), format=spec.format)
    return read(id_field=spec.id, target_field=spec.target, fields=spec.fields, limit=spec.limit)


def read_prompts(
    specs: Sequence[PromptSpec], base_dir: Path, catalog: Catalog, places: Places
) -> dict[str, PromptTemplate]:
    """Read the prompts that a study names, by name, in the order of the file.

    Args:
        specs: the study's ``prompts``.
        base_dir: folder that their files start from.
        catalog: where the others are looked up.
        places: of the study, for messages.

    Raises:
        ConfigError: a file or catalogue entry is missing or malformed, or two have one name.
    """
    prompts: dict[str, PromptTemplate] = {}
    for i, spec in enumerate(specs):
        with placing(partial(places.where, "prompts", i)):
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
            yield file_prompt(path, name=spec.name).template
    elif spec.catalog is not None:
        found = catalog_prompt(spec.catalog, catalog).template
        yield PromptTemplate(spec.name or found.name, found.text, found.messages)
    else:
        messages = tuple(Message(item.role, item.content) for item in spec.messages or ())
        yield PromptTemplate(spec.name or "", spec.text, messages)
