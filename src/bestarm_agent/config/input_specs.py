"""The sections of a study that say what is compared, on which examples, and how it is scored.

`models`, `prompts`, `candidates`; `dataset`, `shots`, `slices`; `scorer`. A text may stand in for a
mapping where its main key says enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from bestarm_agent.config.conversations import ToolSpec, field_of
from bestarm_agent.config.fields import StudyModel, allow_also, as_json, broken
from bestarm_agent.config.value_types import (
    FILE_PREFIX,
    Count,
    Expandable,
    Flag,
    Grid,
    Label,
    Name,
    Options,
    Params,
    Shots,
    Text,
    axis,
    check_axes,
    check_model_name,
    without_secret_names,
)
from bestarm_agent.domain.values import Message, Part, PromptTemplate, part_of
from bestarm_agent.errors import nearest
from bestarm_agent.plugins import is_path


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
    # Only the labels that are still equal grow, all of them together: of two models that end alike
    # both change, so that neither takes the short name.
    for length in range(2, max((len(spec.model.split("/")) for spec in models), default=0) + 1):
        count = Counter(labels)
        for i, spec in enumerate(models):
            if spec.label is None and count[labels[i]] > 1:
                labels[i] = "/".join(spec.model.split("/")[-length:])
    return tuple(labels)


CONVERSATION = "conversation"  # role that stands for the messages in a field


class PartSpec(StudyModel):
    """A part of a message, or its text: a text, an image or a PDF file."""

    short_form: ClassVar[str | None] = "text"

    text: str | None = Field(None, description="Jinja template of a text.")
    image: Text | None = Field(
        None,
        description="The image, as `{{ field }}`: a path from the dataset's folder, a data URL, an "
        "http(s) URL, or the bytes of a column of images.",
    )
    file: Text | None = Field(None, description="A PDF file, named like an image, but by no URL.")

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            broken("needs exactly one of `text`, `image` and `file`")
        return self

    @property
    def part(self) -> Part:
        """The part of a template."""
        [(kind, content)] = self.model_dump(exclude_none=True).items()
        return part_of("image_url" if kind == "image" else kind, content)


class MessageSpec(StudyModel):
    """One chat message of a prompt, or the field that holds a conversation: `{{ field }}`."""

    short_form: ClassVar[str | None] = "content"

    role: Literal["system", "user", "assistant"] | None = Field(
        None, description="Role of the message; left out where a field holds a conversation."
    )
    content: str | Annotated[tuple[PartSpec, ...], Field(min_length=1)] = Field(
        description="Jinja template of the message, or a list of its parts: texts, images, files."
    )

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.role is None and field_of(str(self.content)) is None:
            broken(
                "must be a message with a `role` and a `content`, or the field of a conversation "
                f'such as "{{{{ conversation }}}}", got {as_json(self.content)}'
            )
        if self.role != "user" and not isinstance(self.content, str):
            broken("has several parts, which only messages of the role `user` have", "content")
        return self

    @property
    def message(self) -> Message:
        """The message of a template."""
        if isinstance(self.content, str):
            return Message(self.role or CONVERSATION, self.content)
        return Message("user", tuple(part.part for part in self.content))


def _listed(kind: Any) -> BeforeValidator:  # noqa: ANN401 - a class
    """Return a validator for a list: a text in its place is a list of that one text."""

    def listed(value: object) -> object:
        return [value] if isinstance(value, str) else value

    return BeforeValidator(listed, json_schema_input_type=tuple[kind, ...] | str)


class PromptBody(StudyModel):
    """A prompt as it is sent, under a name."""

    name: Name | None = Field(
        None, description="Short name in tables; default: the file's stem or the catalogue's name."
    )
    text: Text | None = Field(None, description="Jinja template of a plain prompt.")
    messages: Annotated[tuple[MessageSpec, ...], _listed(MessageSpec)] | None = Field(
        None,
        description="Chat messages with Jinja templates as contents. A text `{{ field }}`, in the "
        "list or in its place, stands for the conversation in a field of the example.",
        min_length=1,
    )
    tools: Annotated[tuple[ToolSpec, ...], _listed(ToolSpec)] = Field(
        (),
        description="Functions that the model may call, in OpenAI's form. A text `{{ field }}` "
        "stands for those in a field of the example.",
    )
    tool_choice: Text | None = Field(
        None, description="`auto`, `none`, `required`, or the name of the tool to call."
    )

    def template(self, name: str) -> PromptTemplate:
        """Return the prompt under this name."""
        messages = tuple(spec.message for spec in self.messages or ())
        tools = tuple(spec.tool for spec in self.tools)
        return PromptTemplate(name, self.text, messages, tools=tools, tool_choice=self.tool_choice)

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if self.tool_choice is not None and not self.tools:
            broken("chooses among `tools`, and there are none", "tool_choice")
        return self


class PromptSpec(PromptBody):
    """One prompt: a mapping `name: template`, a `file://` path, or a name of the catalogue."""

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
        # `- my-name: "..."` is a mapping with one key, the prompt's name; unless the key is one of
        # the fields, as in `- file: prompts/a.txt`.
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
            names = " and ".join(f"`{form}`" for form in given) or "none of them"
            broken(f"needs exactly one of `text`, `messages`, `file`, `catalog`, got {names}")
        if self.tools and given[0] in ("file", "catalog"):
            broken(f"belong to a prompt's content; write them into that of `{given[0]}`", "tools")
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
    # A bare text names a prompt of the catalogue. Who writes a template there forgot its name.
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
    """One explicit candidate, next to the combinations or in their place."""

    model: Text = Field(description="Label of one of `models`, or `provider/model`.")
    prompt: Text = Field(description="Name of one of `prompts`.")
    shots: Shots | None = Field(
        None, description="Worked examples in the prompt; default: `shots.k` if it has one value."
    )
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


_FORMATS = ("auto", "jsonl", "json", "yaml", "csv", "tsv", "parquet", "traces")


class HuggingFaceSpec(StudyModel):
    """A dataset of the Hugging Face hub; needs the extra `data`."""

    short_form: ClassVar[str | None] = "name"

    name: Expandable = Field(description="Name on the hub, or a local folder.")
    subset: Text | None = Field(None, description="Configuration of the dataset.")
    split: Text = Field("test", description="Split to read.")
    revision: Text | None = Field(
        None, description="Commit, tag or branch; pin it to keep the rows from changing."
    )


class DatasetSpec(StudyModel):
    """The examples, or just their path."""

    short_form: ClassVar[str | None] = "path"

    path: Expandable | None = Field(
        None, description="File, relative to the study file. `${VARIABLE}` is expanded."
    )
    huggingface: HuggingFaceSpec | None = Field(
        None, description="A dataset of the Hugging Face hub instead of `path`."
    )
    format: Text = Field(
        "auto",
        description="Format of the file: `auto` (by the ending of its name), `jsonl`, `json`, "
        "`yaml`, "
        "`csv`, `tsv`, `parquet`, `traces` (recorded calls; `auto` knows them by the first row), "
        "a plug-in, or a "
        "reader's path `module:function`.",
    )
    id: Text | None = Field(
        None,
        description="Field with an id, unique in the dataset; default: `id` if the rows have it, "
        "else the number of the row.",
    )
    target: Text | None = Field(
        None,
        description="Field with the expected answer, or with a list of acceptable ones. "
        "Scorers that compare with an answer need it.",
    )
    cluster: Text | None = Field(
        None,
        description="Field that says which examples belong together, such as those of one document "
        "or user. Statements for new examples are then about examples of new clusters, which count "
        "alike, whatever their size. Left out: no example depends on another.",
    )
    limit: Count | None = Field(None, description="Read only this many rows, from the top.")
    links: bool = Field(
        False,
        description="Whether images and files may be symbolic links that leave the dataset's "
        "folder: a dataset of somebody else could send what lies on this machine.",
    )
    fields: tuple[Text, ...] | None = Field(
        None,
        description="Fields that templates may use; default: all but the target.",
        min_length=1,
    )
    drop: tuple[Text, ...] = Field(
        (),
        description="Names of fields that are removed at any depth, also from JSON in texts, such "
        "as secrets and personal data in traces.",
    )

    def folder(self, base_dir: Path) -> Path:
        """Return the folder of its images and files, for a study in ``base_dir``."""
        return base_dir if self.path is None else (base_dir / self.path).parent

    @field_validator("format")
    @classmethod
    def _check_format(cls, format: str) -> str:
        if format in _FORMATS or is_path(format):
            return format
        broken(f"must be the name of a format, got {as_json(format)}; {nearest(format, _FORMATS)}")

    @model_validator(mode="after")
    def _check_source(self) -> DatasetSpec:
        if (self.path is None) == (self.huggingface is None):
            which = "neither" if self.path is None else "both"
            broken(f"needs either `path` or `huggingface`, got {which}")
        if self.huggingface is not None and self.format != "auto":
            broken("is the format of a file, and `huggingface` is none; leave it out", "format")
        return self


class ShotsSpec(StudyModel):
    """Worked examples that stand in the prompts: an axis, if `k` has several values."""

    from_: DatasetSpec = Field(
        alias="from",
        description="The worked examples, or just the path of their file; `target` and `fields` "
        "are by default those of `dataset`.",
    )
    k: Annotated[
        tuple[Shots, ...], BeforeValidator(axis, json_schema_input_type=Shots | list[Shots])
    ] = Field(
        description="Worked examples in a prompt; a list is an axis. 0 leaves the prompt as it is."
    )
    pick: Literal["first", "random"] = Field(
        "first",
        description="Which of them: the first, or a random choice by the seed of `selector`, whose "
        "first ones are those of a smaller `k`.",
    )
    own: Flag = Field(
        False,
        description="Whether they may be examples of the study, shown where others are asked.",
    )

    @model_validator(mode="after")
    def _check_k(self) -> Self:
        check_axes({"k": list(self.k)})
        return self


class ScorerSpec(StudyModel):
    """The judge that turns a reply into a score in [0, 1], or just its name.

    All keys but `name` are options of the scorer.
    """

    model_config = ConfigDict(extra="allow")
    short_form: ClassVar[str | None] = "name"
    __pydantic_extra__: dict[str, JsonValue]

    name: Text = Field(
        description="Name of a scorer in the judges catalogue, such as `exact`; `python` for a "
        "function of your own, named by the key `function`."
    )
    trusted: Flag = Field(
        False,
        description="Whether the scorer means what it rejects: a winner is named although many "
        "wrong replies hold their target.",
    )

    @model_validator(mode="after")
    def _check_secrets(self) -> ScorerSpec:
        without_secret_names(self.options)
        return self

    @property
    def options(self) -> dict[str, JsonValue]:
        """Return all keys but `name`."""
        return dict(self.__pydantic_extra__)


class SlicesSpec(StudyModel):
    """Groups the examples by fields of the dataset: a slice for each value of each field."""

    by: tuple[Text, ...] = Field(
        (),
        description="Fields of the dataset whose values group the examples. `length_bucket`, where "
        "no field is called so: a quarter of the examples each, by the length of their texts.",
    )
