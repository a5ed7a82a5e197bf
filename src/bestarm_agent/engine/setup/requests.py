"""The requests of a study, before any is made.

Which rows are asked alike, which prompts are sent, and what users should know about either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from unicodedata import normalize

from bestarm_agent.config.datasets import AUTOMATIC_ID
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.prompts import ROW, CompiledPrompt, equal_requests, named
from bestarm_agent.domain.values import Candidate, Example, PromptTemplate, digest
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.errors import ConfigError, counted


def rows_asked_alike(
    study: LoadedStudy,
    rows: Sequence[Example],
    prompts: Mapping[str, PromptTemplate],
    providers: ProviderSet,
) -> list[int]:
    """Group the rows for which every candidate is asked the same.

    That is what its prompt sends; of a program its inputs, but for their id; and of records that
    are played back whatever the prompt, these too. White space and the form of Unicode's letters
    make no difference: a row that was copied and pasted is no further example.
    """
    dataset = study.config.dataset
    reads_inputs = False
    for provider, model in study.config.model_options():
        with providers.at(provider, model):
            reads_inputs |= providers.of(provider, model).capabilities(model).by_inputs
    known = {field for row in rows for field in row.inputs}
    folder = dataset.folder(study.base_dir)
    compiled = [
        CompiledPrompt(template, folder=folder, links=dataset.links)
        for template in prompts.values()
    ]
    sent = [prompt for prompt in compiled if prompt.uses(known)]
    keys = [
        partial(entry.request, read=read)
        for entry in sent
        for read in (False, True)[: 1 + entry.attaches]
    ]
    if reads_inputs or not sent:
        keys.append(partial(_content, id=dataset.id or AUTOMATIC_ID))
    return equal_requests([*map(_plain, rows)], keys)


def _plain(row: Example) -> Example:
    """Return a row with its texts in composed letters (NFC), and single spaces in them."""
    texts = {name: value for name, value in row.inputs.items() if isinstance(value, str)}
    plain = {name: " ".join(normalize("NFC", text).split()) for name, text in texts.items()}
    return replace(row, inputs={**row.inputs, **plain})


def _content(row: Example, id: str) -> str:
    """Return a digest of the fields of a row, or its id if there is no other field."""
    inputs = {field: value for field, value in row.inputs.items() if field != id}
    return digest(inputs) if inputs else f"example {row.id}"


def request_notices(
    prompts: Mapping[str, PromptTemplate],
    rows: Sequence[Example],
    copies: Sequence[int],
    sent: Sequence[Candidate],
    repeats: int,
    providers: ProviderSet,
) -> Iterator[str]:
    """Tell what users should know of the requests, a sentence each.

    Args:
        prompts: the templates by name.
        rows: the dataset.
        copies: the group of each row, of those that are asked alike.
        sent: the candidates whose prompt is sent.
        repeats: draws of every example.
        providers: the study's.
    """
    yield from _alike_draws(sent, repeats)
    yield from _late_fields(sent, providers)
    yield from _hidden_rows(prompts, rows)
    yield from _copied_rows(copies, rows)


def _copied_rows(copies: Sequence[int], rows: Sequence[Example]) -> Iterator[str]:
    """Tell of rows that are asked as others are."""
    different = len(set(copies))
    if more := len(rows) - different:
        targets = {(key, row.reference) for key, row in zip(copies, rows, strict=True)}
        odd = len(targets) - different
        contrary = f"; {counted(odd, 'target')} of theirs differ from the original's" if odd else ""
        are = "is a copy of another" if more == 1 else "are copies of others"
        yield (
            f"{more:,} of {counted(len(rows), 'row')} {are} (every candidate is asked the same, "
            f"but for white space): what is said of new examples rests on the {different:,} that "
            f"differ{contrary}"
        )


def check_prompts(
    prompts: Mapping[str, PromptTemplate],
    candidates: Sequence[Candidate],
    providers: ProviderSet,
    dataset: DatasetSpec,
    examples: Sequence[Example],
) -> list[Candidate]:
    """Return those whose prompt is sent; recorded answers and programs see only the example.

    Raises:
        ConfigError: a prompt uses the target or a field in single braces, or is sent and uses none.
    """
    fixed = _check_fields(prompts, dataset, examples)
    facts = (providers.of(c.provider, c.model).capabilities(c.model) for c in candidates)
    known = zip(candidates, facts, strict=True)
    sent = [entry for entry, model in known if not (model.by_example or model.by_inputs)]
    fields = sorted({field for example in examples for field in example.inputs})
    for name in fixed:
        if any(entry.prompt.name == name for entry in sent):
            raise ConfigError(
                f"prompt `{name}` uses no field of the dataset, so that it is the same for all "
                f"examples; write what differs in double braces: "
                f"{', '.join(f'`{{{{ {named(field)} }}}}`' for field in fields[:5])}"
            )
    return sent


def _check_fields(
    prompts: Mapping[str, PromptTemplate], spec: DatasetSpec, examples: Sequence[Example]
) -> list[str]:
    """Return the names of prompts that use no field.

    Raises:
        ConfigError: a prompt uses the target, or a field's name stands in single braces.
    """
    compiled = {name: CompiledPrompt(template) for name, template in prompts.items()}
    known = {field for example in examples for field in example.inputs}
    for name, prompt in compiled.items():
        if spec.target in prompt.fields - known:
            raise ConfigError(
                f"prompt `{name}` uses the field `{spec.target}`, which is the dataset's target: "
                "the expected answer is not shown to candidates; use another field, or list it in "
                "`dataset.fields` if it may be shown"
            )
    for name, template in prompts.items():
        texts = (template.text, *(message.text for message in template.messages))
        for word in _SINGLE_BRACES.findall("\n".join(text for text in texts if text)):
            if word in known:
                raise ConfigError(
                    f"prompt `{name}` holds `{{{word}}}`, which is sent as it stands; a field has "
                    f"double braces: `{{{{ {word} }}}}` (if the braces are meant: "
                    f"`{{{{ '{{' }}}}{word}}}`)"
                )
    return [name for name, prompt in compiled.items() if not prompt.uses(known)]


# "{question}", but not "{{ question }}", whose inner brace has a brace beside it.
_SINGLE_BRACES = re.compile(r"(?<!\{)\{\s*([A-Za-z_]\w*)\s*\}(?!\})")


def _alike_draws(sent: Sequence[Candidate], repeats: int) -> Iterator[str]:
    """Warn of draws that are alike."""
    alike = sum(entry.params.get("temperature") == 0 for entry in sent)
    if repeats > 1 and alike:
        yield (
            f"repeats: {counted(alike, 'candidate')} at temperature 0, where {repeats} draws are "
            f"(nearly) alike and all paid for; raise the temperature, or leave `repeats` out"
        )


def _hidden_rows(prompts: Mapping[str, PromptTemplate], rows: Sequence[Example]) -> Iterator[str]:
    """Tell of a column that hides what templates call the row."""
    if any(ROW in row.inputs for row in rows):
        for name, template in prompts.items():
            if ROW in CompiledPrompt(template).fields:
                yield (
                    f"prompt `{name}`: `{ROW}` is the column of that name, and not all columns of "
                    f"the example; rename the column to name others as `{ROW}[...]`"
                )


def _late_fields(sent: Sequence[Candidate], providers: ProviderSet) -> Iterator[str]:
    """Warn of a field before a long constant text, which a provider's cache cannot hold then."""
    late = dict[str, tuple[int, str]]()  # tokens and field, by name of the prompt
    for entry in sent:
        capabilities = providers.of(entry.provider, entry.model).capabilities(entry.model)
        if capabilities.cache_from and entry.prompt.name not in late:
            field, tokens = CompiledPrompt(entry.prompt).constant_text_after_first_field
            if capabilities.keeps(tokens):
                late[entry.prompt.name] = tokens, field
    if late:
        name, (tokens, field) = max(late.items(), key=lambda item: item[1])
        more = (
            f" (and likewise in {counted(len(late) - 1, 'more prompt')})" if len(late) > 1 else ""
        )
        yield (
            f"prompt `{name}`: the field `{field}` stands before about {tokens:,} tokens of "
            f"constant text, which the provider's prompt cache cannot hold there{more}; write "
            f"fields last, and calls after the first pay the price of cached tokens for it"
        )
