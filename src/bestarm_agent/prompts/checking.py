"""Prompts are tried on the dataset before any call is paid for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.prompts.rendering import CompiledPrompt


def check_prompt(prompt: CompiledPrompt, examples: Sequence[Example]) -> None:
    """Check that a prompt can be filled in for every example.

    One example is rendered for every set of fields that occurs, nulls told apart: the others of
    that shape render alike, unless the template calculates with what the fields hold.

    Raises:
        ConfigError: a field is missing or null, or the template fails; names the prompt, its file,
            the field, the nearest one, and the example.
    """
    for example in _one_of_each_shape(examples):
        try:
            prompt.render(example.inputs)
        except ConfigError as error:
            known = {field for one in examples for field in one.inputs}
            absent = sorted(prompt.fields - known)
            if not absent:
                raise ConfigError(f"{error} (example `{example.id}`)") from None
            raise ConfigError(
                f"{prompt.called}: no example has the field `{absent[0]}`; "
                f"{nearest(absent[0], known)}"
            ) from None


def _one_of_each_shape(examples: Iterable[Example]) -> Iterable[Example]:
    shapes: dict[frozenset[tuple[str, bool]], Example] = {}
    for example in examples:
        shape = frozenset((field, value is None) for field, value in example.inputs.items())
        shapes.setdefault(shape, example)
    return shapes.values()
