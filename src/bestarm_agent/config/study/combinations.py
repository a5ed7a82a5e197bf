"""Expand the grid of a study, models x prompts x parameters, and label its combinations."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pydantic import JsonValue

from bestarm_agent.config.fields import shown
from bestarm_agent.config.study.models_and_prompts import ModelSpec, model_labels
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.study.value_types import axis
from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.digest import canonical, digest
from bestarm_agent.errors import ConfigError, nearest

_MOST_COMBINATIONS = 100_000
_SHORT_NAMES = {"temperature": "t", "top_p": "p", "top_k": "k", "max_tokens": "max"}
_LONGEST_VALUE = 24


@dataclass(frozen=True, slots=True)
class Combination:
    """One model with one prompt and one sampling configuration."""

    model: ModelSpec  # the model
    model_label: str  # label of the model
    prompt: str  # name of the prompt
    params: Mapping[str, JsonValue]  # sampling parameters
    # those of ``params`` given for this model or candidate only, with their key paths
    own: Mapping[str, KeyPath]
    label: str | None = None  # label given by the user, or None
    at: KeyPath = ()  # key path of an explicit candidate; empty for a point of the grid

    @property
    def names(self) -> tuple[str, str, str]:
        """Return the names by which an exclusion may refer to the model."""
        return self.model_label, self.model.model, self.model.name


def grid(config: StudyConfig, prompts: Collection[str], places: Places) -> list[Combination]:
    """Return models x prompts x params in the order of the file, without exclusions.

    Raises ConfigError if the grid is too large, or an exclusion matches nothing.
    """
    labels = model_labels(config.models)
    axes = [_axes(config.params, spec.params) for spec in config.models]
    count = len(prompts) * sum(math.prod(map(len, own.values())) for own in axes)
    if count > _MOST_COMBINATIONS:
        raise ConfigError(
            f"{places.subject}: the grid has {count:,} combinations, more than "
            f"{_MOST_COMBINATIONS:,}; shorten an axis of `params`, `models` or `prompts`"
        )
    combinations = [
        Combination(spec, labels[i], prompt, params, _places_of_own(i, spec, params))
        for i, spec in enumerate(config.models)
        for prompt in prompts
        for params in _points(axes[i])
    ]
    return _without_excluded(combinations, config, places)


def _axes(
    shared: Mapping[str, JsonValue], own: Mapping[str, JsonValue]
) -> dict[str, tuple[JsonValue, ...]]:
    return {name: axis(value) for name, value in {**shared, **own}.items()}


def _points(axes: Mapping[str, Sequence[JsonValue]]) -> Iterator[dict[str, JsonValue]]:
    """Yield every point of the axes, the last one fastest; null leaves a parameter out."""
    for values in product(*axes.values()):
        point = zip(axes, values, strict=True)
        yield {name: value for name, value in point if value is not None}


def _places_of_own(i: int, spec: ModelSpec, params: Mapping[str, JsonValue]) -> dict[str, KeyPath]:
    return {name: ("models", i, "params", name) for name in spec.params if name in params}


def shared_params(config: StudyConfig, spec: ModelSpec) -> dict[str, JsonValue]:
    """Return the parameters with a single value, which explicit candidates share."""
    axes = _axes(config.params, spec.params)
    return {name: values[0] for name, values in axes.items() if len(values) == 1}


def _without_excluded(
    combinations: list[Combination], config: StudyConfig, places: Places
) -> list[Combination]:
    excluded: set[int] = set()
    for i, rule in enumerate(config.exclude):
        matched = [j for j, found in enumerate(combinations) if _matches(found, rule)]
        if not matched:
            raise _unmatched(combinations, i, rule, places)
        excluded.update(matched)
    if combinations and len(excluded) == len(combinations) and not config.candidates:
        raise places.error("`exclude` leaves no candidate; take a rule away", "exclude")
    return [found for j, found in enumerate(combinations) if j not in excluded]


def _matches(combination: Combination, rule: Mapping[str, JsonValue]) -> bool:
    return all(_has(combination, key, value) for key, value in rule.items())


def _has(combination: Combination, key: str, wanted: JsonValue) -> bool:
    values = [canonical(value) for value in _values_of(combination, key)]
    return any(canonical(item) in values for item in (wanted, *axis(wanted)))


def _values_of(combination: Combination, key: str) -> tuple[JsonValue, ...]:
    if key == "model":
        return combination.names
    return (combination.prompt if key == "prompt" else combination.params.get(key),)


def _unmatched(
    combinations: Sequence[Combination], i: int, rule: Mapping[str, JsonValue], places: Places
) -> ConfigError:
    keys = {"model", "prompt", *(name for found in combinations for name in found.params)}
    for key, value in rule.items():
        name = f"`exclude[{i}].{key}`"
        at = ("exclude", i, key)
        if key not in keys:
            return places.error(f"{name} is no axis of the grid; {nearest(key, keys)}", *at)
        if not any(_has(found, key, value) for found in combinations):
            known = (str(_text(_values_of(found, key)[0])) for found in combinations)
            return places.error(
                f"{name} is {shown(value)}, which the grid does not hold; "
                f"{nearest(_text(value), known)}",
                *at,
            )
    return places.error(
        f"`exclude[{i}]` matches nothing: no combination of the grid has all of {shown(rule)}",
        *("exclude", i),
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)


def label_all(combinations: Sequence[Combination]) -> list[str]:
    """Return a unique label for each combination, such as "sum-llama-167k/chat/t=0.5".

    A part appears if it differs between combinations. Labels given by the user are kept.
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
    """Return the label of a combination that joins a running study: all its parts."""
    return combination.label or _label(combination, {"model", "prompt", *combination.params})


def _varying(combinations: Sequence[Combination]) -> set[str]:
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
    """Return a value as a part of a label: the last part of a path, a digest of what is long."""
    text = value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else canonical(value)
    if text and len(text) <= _LONGEST_VALUE and text.isprintable() and "/" not in text:
        return text
    return digest(value, length=6)


def _fingerprint(combination: Combination) -> str:
    params = dict(combination.params)
    return digest([combination.model.model, combination.prompt, params], length=6)
