"""The candidates of a study: the grid of models x prompts x parameters, and the explicit ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from typing import TypeAlias

from pydantic import JsonValue

from bestarm_agent.config.fields import KeyPath, as_json
from bestarm_agent.config.file_errors import Positions, parse_row
from bestarm_agent.config.input_specs import CandidateSpec, ModelSpec, PromptSpec
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.config.value_types import axis
from bestarm_agent.domain.values import Candidate, Example, Json, PromptTemplate, canonical, digest
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
    dropped: frozenset[str] = frozenset()  # parameters left out, which the model does not support
    size: int = 1  # how many points of the grid are equal to this one once ``dropped`` is left out
    shots: int = 0  # worked examples in the prompt


def grid(config: StudyConfig, prompts: Collection[str], positions: Positions) -> list[Combination]:
    """Return models x prompts x shots x params in the order of the file, without exclusions.

    Raises ConfigError if the grid is too large, or an exclusion matches nothing.
    """
    labels = config.model_labels
    axes = [_axes(config, spec) for spec in config.models]
    shots = (0,) if config.shots is None else config.shots.k
    # Counted before anything is built: a slip in one axis may ask for billions.
    count = len(prompts) * len(shots) * sum(math.prod(map(len, own.values())) for own in axes)
    if count > _MOST_COMBINATIONS:
        raise ConfigError(
            f"{positions.subject}: the grid has {count:,} combinations, more than "
            f"{_MOST_COMBINATIONS:,}; shorten an axis of `params`, `shots`, `models` or `prompts`"
        )
    combinations = [
        Combination(spec, labels[i], prompt, params, _own(spec, params, "models", i), shots=k)
        for i, spec in enumerate(config.models)
        for prompt in prompts
        for k in shots
        for params in _points(axes[i])
    ]
    return _without_excluded(combinations, config, positions)


def _axes(config: StudyConfig, model: ModelSpec) -> dict[str, tuple[JsonValue, ...]]:
    return {name: axis(value) for name, value in {**config.params, **model.params}.items()}


def _points(axes: Mapping[str, Sequence[JsonValue]]) -> Iterator[dict[str, JsonValue]]:
    """Yield every point of the axes, the last one fastest; null leaves a parameter out."""
    for values in product(*axes.values()):
        point = zip(axes, values, strict=True)
        yield {name: value for name, value in point if value is not None}


def _own(
    spec: ModelSpec | CandidateSpec, params: Mapping[str, JsonValue], *entry: str | int
) -> dict[str, KeyPath]:
    """Return the key paths of the ``params`` that the entry at the path ``entry`` gives itself."""
    return {name: (*entry, "params", name) for name in spec.params if name in params}


def _without_excluded(
    combinations: list[Combination], config: StudyConfig, positions: Positions
) -> list[Combination]:
    excluded: set[int] = set()
    for i, rule in enumerate(config.exclude):
        matched = [
            j
            for j, combination in enumerate(combinations)
            if all(_has(combination, key, value) for key, value in rule.items())
        ]
        if not matched:
            raise _unmatched(combinations, i, rule, positions)
        excluded.update(matched)
    if combinations and len(excluded) == len(combinations) and not config.candidates:
        raise positions.error("`exclude` leaves no candidate; take a rule away", "exclude")
    return [combination for j, combination in enumerate(combinations) if j not in excluded]


def _has(combination: Combination, key: str, wanted: JsonValue) -> bool:
    # A list in an exclusion matches any of its values, and also a parameter whose value is that
    # very list; a model is matched by label, full name or short name.
    values = [canonical(value) for value in _values_of(combination, key)]
    return any(canonical(item) in values for item in (wanted, *axis(wanted)))


def _values_of(combination: Combination, key: str) -> tuple[JsonValue, ...]:
    if key == "model":
        return combination.model_label, combination.model.model, combination.model.name
    return ({"prompt": combination.prompt, **_settings(combination)}.get(key),)


def _settings(combination: Combination) -> dict[str, JsonValue]:
    """Return the number of worked examples, and the parameters."""
    return {"shots": combination.shots, **combination.params}


def _unmatched(
    combinations: Sequence[Combination], i: int, rule: Mapping[str, JsonValue], positions: Positions
) -> ConfigError:
    keys = {"model", "prompt", *(name for each in combinations for name in _settings(each))}
    for key, value in rule.items():
        name = f"`exclude[{i}].{key}`"
        path = ("exclude", i, key)
        if key not in keys:
            return positions.error(f"{name} is no axis of the grid; {nearest(key, keys)}", *path)
        if not any(_has(combination, key, value) for combination in combinations):
            known = (str(_text(_values_of(combination, key)[0])) for combination in combinations)
            return positions.error(
                f"{name} is {as_json(value)}, which the grid does not hold; "
                f"{nearest(_text(value), known)}",
                *path,
            )
    return positions.error(
        f"`exclude[{i}]` matches nothing: no combination of the grid has all of {as_json(rule)}",
        *("exclude", i),
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)


def label_all(combinations: Sequence[Combination]) -> list[str]:
    """Return a unique label for each combination, such as "sum-llama-167k/chat/t=0.5".

    A part appears if it differs between combinations. Labels given by the user are kept.
    """
    varying = _varying(combinations)
    labels: list[str] = []
    taken = {combination.label for combination in combinations if combination.label is not None}
    for combination in combinations:
        label = _label(combination, varying)
        if combination.label is None and label in taken:
            # A label that the user gave may be the one that is made here for another candidate; a
            # digest of what the candidate is tells the two apart, and does not change when others
            # are added.
            content: Json = [combination.model.model, combination.prompt, _settings(combination)]
            label = f"{label}#{digest(content, length=6)}"
        labels.append(combination.label or label)
        taken.add(labels[-1])
    return labels


def _varying(combinations: Sequence[Combination]) -> set[str]:
    """Return the names of the parts that are not the same in all combinations."""
    # A value that only some combinations have differs from its absence in the others, so None
    # stands in.
    leaves = [_leaves(_settings(combination)) for combination in combinations]
    names = {"model", "prompt", *(name for params in leaves for name in params)}
    values: dict[str, set[str | None]] = {name: set() for name in names}
    for combination, params in zip(combinations, leaves, strict=True):
        parts = {**params, "model": combination.model_label, "prompt": combination.prompt}
        for name, of_name in values.items():
            of_name.add(canonical(parts[name]) if name in parts else None)
    return {name for name, of_name in values.items() if len(of_name) > 1}


def _label(combination: Combination, varying: set[str]) -> str:
    parts = [combination.model_label] if "model" in varying else []
    if "prompt" in varying:
        parts.append(combination.prompt)
    parts += [
        f"{_SHORT_NAMES.get(name, name)}={_short(value)}"
        for name, value in _leaves(_settings(combination)).items()
        if name in varying
    ]
    return "/".join(parts) or combination.model_label


def _leaves(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return parameters by dotted name, those of mappings one by one, such as ``thinking.type``.

    Of a JSON schema only the name is taken.
    """
    leaves: dict[str, JsonValue] = {}
    for name, value in params.items():
        if name == "json_schema" and isinstance(value, Mapping) and value.get("name"):
            leaves["name"] = value["name"]
        elif isinstance(value, Mapping) and value:
            leaves |= {f"{name}.{inner}": leaf for inner, leaf in _leaves(value).items()}
        else:
            leaves[name] = value
    return leaves


def _short(value: JsonValue) -> str:
    """Return a value as a part of a label: the last part of a path, a digest of what is long."""
    text = value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else canonical(value)
    if text and len(text) <= _LONGEST_VALUE and text.isprintable() and "/" not in text:
        return text
    return digest(value, length=6)


def explicit_candidate(
    config: StudyConfig,
    content: Mapping[str, Json],
    prompts: Mapping[str, PromptTemplate],
    shots: Sequence[Example] = (),
) -> Candidate:
    """Return the candidate of an entry of ``candidates``, with the study's shared parameters.

    ``prompt`` may also be a mapping with ``name`` and ``text`` or ``messages``; ``shots`` are all
    worked examples. Raises ConfigError if it breaks a rule, or its model or prompt is unknown.
    """
    positions = Positions("the new candidate")
    prompt = content.get("prompt")
    if isinstance(prompt, Mapping):
        template = _inline_prompt(prompt, positions)
        prompts = {**prompts, template.name: template}
        content = {**content, "prompt": template.name}
    spec = parse_row(CandidateSpec, content, positions.subject)
    combination = _explicit(config, _by_label(config), spec, positions)
    named = {"model", "prompt", "shots"} if combination.shots else {"model", "prompt"}
    label = combination.label or _label(combination, named | _leaves(combination.params).keys())
    return make_candidate(combination, label, prompts, shots, config, positions)


def _by_label(config: StudyConfig) -> dict[str, ModelSpec]:
    return dict(zip(config.model_labels, config.models, strict=True))


def _explicit(
    config: StudyConfig,
    models: Mapping[str, ModelSpec],
    spec: CandidateSpec,
    positions: Positions,
    entry: int | None = None,
) -> Combination:
    """Return the combination of an explicit candidate, with the shared parameters.

    ``models`` are those of the study by label; ``entry`` is the candidate's index in the study
    file, if any. Raises ConfigError if there is no such model.
    """
    path = () if entry is None else ("candidates", entry)
    model, label = _model_of(models, spec, positions)
    shared = {name: of[0] for name, of in _axes(config, model).items() if len(of) == 1}
    given = {**shared, **spec.params}
    params = {name: value for name, value in given.items() if value is not None}
    own, k = _own(spec, params, *path), () if config.shots is None else config.shots.k
    shots = (k[0] if len(k) == 1 else 0) if spec.shots is None else spec.shots
    return Combination(model, label, spec.prompt, params, own, spec.label, path, shots=shots)


def make_candidate(
    combination: Combination,
    label: str,
    prompts: Mapping[str, PromptTemplate],
    shots: Sequence[Example],
    config: StudyConfig,
    positions: Positions,
) -> Candidate:
    """Return the candidate of a combination; raise ConfigError if prompt or shots are missing."""
    name, n_shots = combination.prompt, combination.shots
    template = prompts.get(name)
    if template is None:
        raise positions.error(
            f"prompt {as_json(name)} is unknown; {nearest(name, prompts)}", *combination.at
        )
    # One worked example to spare where they may be examples of the study: the one that is asked is
    # left out of its own prompt.
    needed = n_shots + (config.shots is not None and config.shots.own and n_shots > 0)
    if needed > len(shots):
        raise positions.error(
            f"{needed} worked examples are needed, and `shots.from` has {len(shots)}; "
            "add rows, or lower the number",
            *((*combination.at, "shots") if combination.at else ("shots", "k")),
        )
    if config.shots is not None:
        template = replace(template, n_shots=n_shots, shots=tuple(shots[:needed]))
    model = combination.model
    return Candidate(model.provider, model.name, template, dict(combination.params), label)


def _model_of(
    models: Mapping[str, ModelSpec], spec: CandidateSpec, positions: Positions
) -> tuple[ModelSpec, str]:
    if spec.model in models:
        return models[spec.model], spec.model
    if "/" not in spec.model:
        raise positions.error(
            f"model {as_json(spec.model)} is unknown; {nearest(spec.model, models)}"
        )
    named = [(model, label) for label, model in models.items() if model.model == spec.model]
    if len(named) == 1:
        return named[0]
    short = spec.model.rstrip("/").rpartition("/")[2]
    label = spec.model if short in models else short
    return parse_row(ModelSpec, {"model": spec.model}, positions.subject), label


def _inline_prompt(prompt: Mapping[str, Json], positions: Positions) -> PromptTemplate:
    spec = parse_row(PromptSpec, prompt, positions.subject)
    if spec.name is None or (spec.text is None and spec.messages is None):
        raise positions.error("`prompt` must hold a `name`, and a `text` or `messages`")
    return spec.template(spec.name)


Capabilities: TypeAlias = Callable[[str, str], frozenset[str] | None]

_MOST_NAMED = 5
_LIKE_A_TYPO = 0.75
_OTHER_NAMES = {"reasoning_effort": "write `effort`, as it is called here for all APIs"}


def expand(
    config: StudyConfig,
    prompts: Mapping[str, PromptTemplate],
    capabilities: Capabilities,
    positions: Positions | None = None,
    shots: Sequence[Example] = (),
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return the candidates of a study, and sentences about parameters left out and merged ones.

    Ids and labels are unique. The grid is ``models`` x ``prompts`` x ``shots`` x ``params`` without
    ``exclude``; the explicit ``candidates`` follow. A parameter of the whole study that a model
    does not support is left out for it; combinations that become equal are merged.

    Args:
        config: the study.
        prompts: the templates of ``config.prompts`` by name, in order.
        capabilities: returns the sampling parameters that (provider, model) supports; None if
            unknown, then all are sent.
        positions: positions in the study, for messages.
        shots: all worked examples.

    Raises:
        ConfigError: an exclusion matches nothing, a name is unknown, a model does not support a
            parameter given for it only, two candidates are the same, or none is left.
    """
    positions, models = positions or Positions("the study"), _by_label(config)
    combinations = [
        *grid(config, tuple(prompts), positions),
        *(_explicit(config, models, c, positions, i) for i, c in enumerate(config.candidates)),
    ]
    names = {(combination.model.provider, combination.model.name) for combination in combinations}
    taken = {name: capabilities(*name) for name in names}
    _check_spelling(config, taken, positions)
    merged = _merged(combinations, taken, positions)
    labels = label_all(merged)
    candidates = [
        make_candidate(combination, label, prompts, shots, config, positions)
        for combination, label in zip(merged, labels, strict=True)
    ]
    _check_distinct(candidates, merged, positions)
    return tuple(candidates), tuple(_notices(merged, labels))


_AT_LEAST = {"temperature": 0, "top_p": 0, "max_tokens": 1, "max_completion_tokens": 1}

_Taken: TypeAlias = Mapping[tuple[str, str], frozenset[str] | None]


def _check_spelling(config: StudyConfig, taken: _Taken, positions: Positions) -> None:
    """Refuse a shared parameter that no model supports if it looks like a typo."""
    known: set[str] = set()
    for names in taken.values():
        # A provider that does not say what it supports may take any parameter, so nothing is a typo
        # for sure.
        if names is None:
            return
        known |= names
    for name in config.params:
        if name not in known and (name in _OTHER_NAMES or is_like(name, known)):
            way_out = _OTHER_NAMES.get(name) or nearest(name, known)
            raise positions.error(
                f"no model takes the parameter `params.{name}`; {way_out}", *("params", name)
            )


def is_like(name: str, known: Collection[str]) -> bool:
    """Return whether a name looks like a misspelling of a known one.

    Example:
        >>> is_like("temperatur", {"temperature", "seed"}), is_like("effort", {"seed"})
        (True, False)
    """
    return bool(get_close_matches(name, known, cutoff=_LIKE_A_TYPO))


def _merged(
    combinations: Sequence[Combination], taken: _Taken, positions: Positions
) -> list[Combination]:
    """Leave out the parameters that a model does not support, and merge what becomes equal."""
    merged: dict[tuple[object, ...], Combination] = {}
    for combination in combinations:
        names = taken[combination.model.provider, combination.model.name]
        _check_numbers(combination, names or frozenset(), positions)
        # A parameter of the whole study may concern some models only, and is left out for others
        # with a notice. One written for this very model or candidate was meant for it, so it is
        # refused.
        dropped = frozenset() if names is None else frozenset(combination.params) - names
        for name in combination.own:
            if name in dropped:
                way_out = _OTHER_NAMES.get(name) or nearest(name, names or ())
                raise positions.error(
                    f"{combination.model.model} does not take the parameter `{name}`; {way_out}",
                    *combination.own[name],
                )
        params = {name: value for name, value in combination.params.items() if name not in dropped}
        # Points of the grid that became equal are one candidate; an explicit candidate is never
        # merged with them, since its path is in the key. Whether it is the same is checked later,
        # as an error.
        parts = combination.model_label, combination.prompt, combination.shots
        key = (combination.at, *parts, canonical(params))
        size = 1
        if (before := merged.get(key)) is not None:
            dropped, size = dropped | before.dropped, before.size + 1
        merged[key] = replace(combination, params=params, dropped=dropped, size=size)
    return list(merged.values())


def _check_numbers(combination: Combination, names: frozenset[str], positions: Positions) -> None:
    """Refuse a value that no model takes, before a server does; null leaves the choice to it."""
    for name in _AT_LEAST.keys() & names & combination.params.keys():
        value, least = combination.params[name], _AT_LEAST[name]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise positions.error(
                f"parameter `{name}` must be a number of at least {least}, got {as_json(value)}",
                *combination.own.get(name, ("params", name)),
            )


def _check_distinct(
    candidates: Sequence[Candidate], combinations: Sequence[Combination], positions: Positions
) -> None:
    first: dict[str, str] = {}
    for candidate, combination in zip(candidates, combinations, strict=True):
        label = first.setdefault(candidate.id, candidate.label)
        if label != candidate.label:
            raise positions.error(
                f"candidates `{label}` and `{candidate.label}` are the same: equal model, prompt "
                "text and parameters; take one of them away",
                *combination.at,
            )


def _notices(combinations: Sequence[Combination], labels: Sequence[str]) -> Iterator[str]:
    by_model: dict[tuple[str, frozenset[str]], list[int]] = {}
    for i, combination in enumerate(combinations):
        if combination.dropped:
            by_model.setdefault((combination.model_label, combination.dropped), []).append(i)
    for (model, dropped), members in by_model.items():
        names = " and ".join(f"`{name}`" for name in sorted(dropped))
        before = sum(combinations[i].size for i in members)
        if before == len(members):
            yield f"{model} does not take {names}: left out"
        else:
            named = ", ".join(labels[i] for i in members[:_MOST_NAMED])
            rest = ", ..." if len(members) > _MOST_NAMED else ""
            yield (
                f"{model} does not take {names}: {before} combinations are {len(members)} "
                f"candidate{'s' * (len(members) > 1)} ({named}{rest})"
            )
