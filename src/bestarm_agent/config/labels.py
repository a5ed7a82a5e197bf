"""Short, readable and unique labels: what tells the candidates apart and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from bestarm_agent.config.combinations import Combination
from bestarm_agent.domain.digest import canonical, digest

_SHORT_NAMES = {"temperature": "t", "top_p": "p", "top_k": "k", "max_tokens": "max"}
_LONGEST_VALUE = 24


def label_all(combinations: Sequence[Combination]) -> list[str]:
    """Return a unique label for each combination, such as "sum-llama-167k/chat/t=0.5".

    A part appears if it differs between some of the combinations. Labels that the user gave stay.
    """
    varying = _varying(combinations)
    generated = [_label(combination, varying) for combination in combinations]
    labels: list[str] = []
    taken = {found.label for found in combinations if found.label is not None}
    for combination, label in zip(combinations, generated, strict=True):
        if combination.label is None and label in taken:
            label = f"{label}#{_fingerprint(combination)}"
        labels.append(combination.label or label)
        taken.add(labels[-1])
    return labels


def full_label(combination: Combination) -> str:
    """Return the label of a combination that joins others: all its parts."""
    return combination.label or _label(combination, {"model", "prompt", *combination.params})


def _varying(combinations: Sequence[Combination]) -> set[str]:
    """Names of the parts that differ: "model", "prompt" and sampling parameters."""
    first = combinations[0]
    names = {name: None for found in combinations for name in found.params}
    varying = {
        name
        for name in names
        if any(_value(found, name) != _value(first, name) for found in combinations)
    }
    if any(found.model_label != first.model_label for found in combinations):
        varying.add("model")
    if any(found.prompt != first.prompt for found in combinations):
        varying.add("prompt")
    return varying


def _value(combination: Combination, name: str) -> str | None:
    params = combination.params
    return canonical(params[name]) if name in params else None


def _label(combination: Combination, varying: set[str]) -> str:
    parts = [combination.model_label] if "model" in varying else []
    if "prompt" in varying:
        parts.append(combination.prompt)
    parts += [
        f"{_SHORT_NAMES.get(name, name)}={_short(value)}"
        for name, value in combination.params.items()
        if name in varying
    ]
    return "/".join(parts) or combination.model_label


def _short(value: JsonValue) -> str:
    text = value if isinstance(value, str) else canonical(value)
    if len(text) <= _LONGEST_VALUE and text.isprintable() and "/" not in text:
        return text
    return digest(value, length=6)


def _fingerprint(combination: Combination) -> str:
    params = dict(combination.params)
    return digest([combination.model.model, combination.prompt, params], length=6)
