"""The `models`, `prompts` and `candidates` parts of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from bestarm_agent.config.fields import StudyModel, allow_also, broken, shown
from bestarm_agent.config.study.value_types import Grid, Label, Name, Options, Params, Text

FILE_PREFIX = "file://"


def check_model_name(name: str, *at: str | int) -> str:
    """Check that ``name``, found ``at`` this path, is "provider/model"; else report it."""
    provider, slash, model = name.partition("/")
    if provider and slash and model and not set(name) & set(" \t\n") and ":" not in provider:
        return name
    hint = ""
    head, colon, tail = name.partition(":")
    if colon and head.isalnum() and tail:  # promptfoo's way of writing
        hint = f"; did you mean `{head}/{tail}`?"
    broken(f"must be `provider/model`, such as openai/gpt-6-luna, got {shown(name)}{hint}", *at)


class ModelSpec(StudyModel):
    """One model, or a text `provider/model`."""

    short_form: ClassVar[str | None] = "model"

    model: Text = Field(
        description="`provider/model`, split at the first slash: `openai/gpt-6-luna`, "
        "`hf/models/tiny-llama` (a folder or a name on the hub), `python/chains:answer` (a "
        "function), `replay/row` (recorded answers)."
    )
    label: Name | None = Field(
        None, description="Short name in tables; default: the last part of the model's name."
    )
    params: Grid = Field(
        default_factory=dict,
        description="Sampling parameters of this model alone; they override the study's `params`. "
        "A list is an axis, `null` leaves the parameter out.",
    )
    options: Options = Field(
        default_factory=dict,
        description="Options of the provider for this model alone (`base_url`, `price`, ...). "
        "`${VARIABLE}` is expanded.",
    )

    @field_validator("model")
    @classmethod
    def _check_model(cls, name: str) -> str:
        return check_model_name(name)

    @property
    def provider(self) -> str:
        """Return the name of the provider."""
        return self.model.partition("/")[0]

    @property
    def name(self) -> str:
        """Return the name of the model as the provider knows it."""
        return self.model.partition("/")[2]


def model_labels(models: Sequence[ModelSpec]) -> tuple[str, ...]:
    """Return the label of each model: its own, else the shortest ending of its name.

    Endings grow by one part at a time until they are unique.

    Example:
        >>> model_labels([ModelSpec(model="openai/o9"), ModelSpec(model="azure/eu/o9")])
        ('openai/o9', 'eu/o9')
    """
    labels = [spec.label or PurePosixPath(spec.model).name for spec in models]
    for length in range(2, max((len(spec.model.split("/")) for spec in models), default=0) + 1):
        count = Counter(labels)
        for i, spec in enumerate(models):
            if spec.label is None and count[labels[i]] > 1:
                labels[i] = "/".join(spec.model.split("/")[-length:])
    return tuple(labels)


class MessageSpec(StudyModel):
    """One chat message of a prompt."""

    role: Literal["system", "user", "assistant"] = Field(description="Role of the message.")
    content: str = Field(description="Jinja template of the message.")


class PromptSpec(StudyModel):
    """One prompt: a mapping `name: template`, a `file://` path, or a name of the catalogue."""

    name: Name | None = Field(
        None, description="Short name in tables; default: the file's stem or the catalogue's name."
    )
    text: Text | None = Field(None, description="Jinja template of a plain prompt.")
    messages: tuple[MessageSpec, ...] | None = Field(
        None, description="Chat messages with Jinja templates as contents.", min_length=1
    )
    file: Text | None = Field(
        None,
        description="Template file, relative to the study file; `*` and `?` match several files, "
        "each a prompt of its own.",
    )
    catalog: Text | None = Field(None, description="Name of a prompt in the prompts catalogue.")

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        if isinstance(value, str):
            return _prompt_from_text(value)
        cls._check_text_or_mapping(value)
        if isinstance(value, dict) and len(value) == 1:
            ((name, body),) = value.items()
            if name not in cls.model_fields:
                return _prompt_from_item(name, body)
        return cls._without_blanks(value)

    @model_validator(mode="after")
    def _check_form(self) -> PromptSpec:
        forms = ("text", "messages", "file", "catalog")
        given = [form for form in forms if getattr(self, form) is not None]
        if len(given) != 1:
            found = " and ".join(f"`{form}`" for form in given) or "none of them"
            broken(f"needs exactly one of `text`, `messages`, `file`, `catalog`, got {found}")
        if self.name is None and given[0] in ("text", "messages"):
            broken('needs a name; write `- my-name: "..."`, or add the key `name`')
        if self.name is not None and self.is_glob:
            broken("has a name, but its pattern may match several files; leave `name` out")
        return self

    @property
    def is_glob(self) -> bool:
        """Return whether ``file`` is a pattern that may match several files."""
        return self.file is not None and bool(set(self.file) & set("*?["))

    @property
    def label(self) -> str | None:
        """Return the name of the prompt, or None for a pattern of files."""
        if self.name is not None or self.is_glob:
            return self.name
        return PurePosixPath(self.file).stem if self.file is not None else self.catalog

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        reference = handler(core_schema)
        mapping = handler.resolve_ref_schema(reference)
        messages = mapping["properties"]["messages"]["anyOf"][0]
        named = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": {"not": {"enum": list(cls.model_fields)}},
            "additionalProperties": {"anyOf": [{"type": "string"}, messages]},
        }
        allow_also(mapping, {"type": "string", "minLength": 1}, named)
        return reference


def _prompt_from_text(text: str) -> dict[str, object]:
    if text.startswith(FILE_PREFIX):
        return {"file": text.removeprefix(FILE_PREFIX)}
    if "{{" in text or "{%" in text or "\n" in text:
        broken('is a template without a name; write `- my-name: "..."`')
    return {"catalog": text}


def _prompt_from_item(name: object, body: object) -> dict[str, object]:
    if isinstance(body, list):
        return {"name": name, "messages": body}
    if isinstance(body, str) and body.startswith(FILE_PREFIX):
        return {"name": name, "file": body.removeprefix(FILE_PREFIX)}
    return {"name": name, "text": body}


class CandidateSpec(StudyModel):
    """One explicit candidate, next to the grid or in its place."""

    model: Text = Field(description="Label of one of `models`, or `provider/model`.")
    prompt: Text = Field(description="Name of one of `prompts`.")
    params: Params = Field(
        default_factory=dict,
        description="Sampling parameters, sent as written (a list is one value). Entries of the "
        "study's and the model's `params` that have a single value are the default.",
    )
    label: Label | None = Field(None, description="Name in tables; default: made from its parts.")
    options: Options = Field(
        default_factory=dict,
        description="Options of the provider for this model, if it is not one of `models`. "
        "`${VARIABLE}` is expanded.",
    )
