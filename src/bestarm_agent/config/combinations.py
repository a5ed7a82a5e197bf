"""The combinations of a study before they become candidates: the grid, less what is excluded."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from pydantic import JsonValue

from bestarm_agent.config.base import shown
from bestarm_agent.config.entries import ModelSpec, model_labels
from bestarm_agent.config.places import Places
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.config.values import axis
from bestarm_agent.config.yaml_text import KeyPath
from bestarm_agent.domain.digest import canonical
from bestarm_agent.errors import ConfigError, nearest

_MOST_COMBINATIONS = 100_000


@dataclass(frozen=True, slots=True)
class Combination:
    """One model with one prompt and one sampling configuration.

    Attributes:
        model: the model.
        model_label: what the model is called.
        prompt: name of the prompt.
        params: sampling parameters.
        own: those of ``params`` that were given for this model or candidate alone, with the place
            of each.
        label: what the user calls it, or None.
        at: key path of an explicit candidate; empty for a point of the grid.
    """

    model: ModelSpec
    model_label: str
    prompt: str
    params: Mapping[str, JsonValue]
    own: Mapping[str, KeyPath]
    label: str | None = None
    at: KeyPath = ()

    @property
    def names(self) -> tuple[str, str, str]:
        """What an exclusion may call the model."""
        return self.model_label, self.model.model, self.model.name


def grid(config: StudyConfig, prompts: Collection[str], places: Places) -> list[Combination]:
    """Return models x prompts x params in the order of the file, less what is excluded.

    Raises:
        ConfigError: the grid is too large, or an exclusion matches nothing.
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
    """Return what explicit candidates of a model share: the parameters with a single value."""
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
    """Say why an exclusion matches no combination."""
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
