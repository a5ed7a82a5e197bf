"""Make explicit candidates, from the study file or added to a running study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from bestarm_agent.config.fields import StudyModel, shown
from bestarm_agent.config.study.combinations import Combination, full_label, shared_params
from bestarm_agent.config.study.models_and_prompts import CandidateSpec, ModelSpec, PromptSpec
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.config.yaml.validation_messages import config_error
from bestarm_agent.domain.candidate import Candidate, Message, PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import nearest

_Spec = TypeVar("_Spec", bound=StudyModel)


def explicit_candidate(
    config: StudyConfig, content: Mapping[str, Json], prompts: Mapping[str, PromptTemplate]
) -> Candidate:
    """Return the candidate of an entry of ``candidates``, with the study's shared parameters.

    ``prompt`` may also be a mapping with ``name`` and ``text`` or ``messages``. Raises ConfigError
    if it breaks a rule, or its model or prompt is unknown.
    """
    places = Places("the new candidate")
    prompt = content.get("prompt")
    if isinstance(prompt, Mapping):
        template = _inline_prompt(prompt, places)
        prompts = {**prompts, template.name: template}
        content = {**content, "prompt": template.name}
    spec = _validated(CandidateSpec, content, places)
    found = explicit_combination(config, spec, places)
    return make_candidate(found, full_label(found), prompts, places)


def explicit_combination(
    config: StudyConfig, spec: CandidateSpec, places: Places, entry: int | None = None
) -> Combination:
    """Return the combination of an explicit candidate, with the shared parameters.

    ``entry`` is its index in the study file, if any. Raises ConfigError if there is no such model.
    """
    at = () if entry is None else ("candidates", entry)
    model, label = _model_of(config, spec, places)
    given = {**shared_params(config, model), **spec.params}
    params = {name: value for name, value in given.items() if value is not None}
    own = {name: (*at, "params", name) for name in spec.params if name in params}
    return Combination(model, label, spec.prompt, params, own, spec.label, at)


def make_candidate(
    found: Combination, label: str, prompts: Mapping[str, PromptTemplate], places: Places
) -> Candidate:
    """Return the candidate of a combination; raise ConfigError if its prompt is unknown."""
    template = prompts.get(found.prompt)
    if template is None:
        raise places.error(
            f"prompt {shown(found.prompt)} is unknown; {nearest(found.prompt, prompts)}",
            *found.at,
        )
    model = found.model
    return Candidate(model.provider, model.name, template, dict(found.params), label)


def _model_of(config: StudyConfig, spec: CandidateSpec, places: Places) -> tuple[ModelSpec, str]:
    by_label = dict(zip(config.model_labels, config.models, strict=True))
    if spec.model in by_label:
        return by_label[spec.model], spec.model
    if "/" not in spec.model:
        raise places.error(f"model {shown(spec.model)} is unknown; {nearest(spec.model, by_label)}")
    named = [(model, label) for label, model in by_label.items() if model.model == spec.model]
    if len(named) == 1:
        return named[0]
    short = spec.model.rstrip("/").rpartition("/")[2]
    label = spec.model if short in by_label else short
    return _validated(ModelSpec, {"model": spec.model}, places), label


def _inline_prompt(prompt: Mapping[str, Json], places: Places) -> PromptTemplate:
    spec = _validated(PromptSpec, prompt, places)
    if spec.name is None or (spec.text is None and spec.messages is None):
        raise places.error("`prompt` must hold a `name`, and a `text` or `messages`")
    messages = tuple(Message(item.role, item.content) for item in spec.messages or ())
    return PromptTemplate(spec.name, spec.text, messages)


def _validated(model: type[_Spec], content: Mapping[str, Json], places: Places) -> _Spec:
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        raise config_error(error, model, places) from None
