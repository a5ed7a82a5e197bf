"""The study file: a model of each of its parts, in the order of the file.

A text may stand in for a mapping where its main key says enough. The types of single values are in
``config.value_types``; broken rules become messages in ``config.file_errors``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    Strict,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from bestarm_agent.config.conversations import ToolSpec, field_of
from bestarm_agent.config.fields import StudyModel, allow_also, as_json, broken
from bestarm_agent.config.value_types import (
    FILE_PREFIX,
    Count,
    Dollars,
    Expandable,
    Flag,
    Grid,
    GridShare,
    Inside,
    Label,
    Name,
    Options,
    Params,
    Positive,
    Share,
    Shots,
    Text,
    axis,
    check_axes,
    check_model_name,
    without_secret_names,
)
from bestarm_agent.domain.spend import Budget, Resource, nanos
from bestarm_agent.domain.values import Message, Part, PromptTemplate, part_of
from bestarm_agent.errors import nearest
from bestarm_agent.plugins import is_path
from bestarm_agent.stats.keyed_random import KeyedRandom


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


_FIELDS = {
    Resource.REQUESTS: "rpm",
    Resource.TOKENS: "tpm",
    Resource.INPUT_TOKENS: "itpm",
    Resource.OUTPUT_TOKENS: "otpm",
}


class RateSpec(StudyModel):
    """Limits per minute; those left out are learned from the provider's answers."""

    rpm: Count | None = Field(None, description="Requests per minute.")
    tpm: Count | None = Field(None, description="Tokens per minute, prompt and generated together.")
    itpm: Count | None = Field(None, description="Prompt tokens per minute.")
    otpm: Count | None = Field(None, description="Generated tokens per minute.")
    shared: Flag | None = Field(
        None,
        description="Whether all models of a provider's account share these limits; default: each "
        "model has them for itself.",
    )

    def per_minute(self) -> dict[Resource, float]:
        """Return the limits that are given."""
        values = {resource: getattr(self, field) for resource, field in _FIELDS.items()}
        return {resource: float(limit) for resource, limit in values.items() if limit is not None}


_DEFAULT_LEVEL = 0.95


class BudgetSpec(StudyModel):
    """Hard caps of a run: the first one reached ends it; without any, all answers may be asked."""

    usd: Dollars | None = Field(
        None, description='Dollars, judges and retries included; 5 or "$5". Needs known prices.'
    )
    answers: Count | None = Field(
        None, description="A candidate's answers to examples, replies from the cache included."
    )
    calls: Count | None = Field(
        None, description="Requests sent to providers, retries and judges included."
    )
    tokens: Count | None = Field(None, description="Prompt plus generated tokens.")
    minutes: Positive | None = Field(
        None, description="Wall-clock minutes, resumed parts of the run included."
    )
    gpu_minutes: Positive | None = Field(
        None, description="Minutes of local workers (accelerator or CPU), summed over the workers."
    )
    share: GridShare | None = Field(
        None, description='Share of all answers, in (0, 1]; 0.1 or "10%".'
    )

    def caps(self, cells: int) -> Budget:
        """Return the caps of a run on a grid of ``cells`` (candidate, example) pairs.

        Example:
            >>> BudgetSpec(share=0.1).caps(cells=30_000).answers
            3000
        """
        answers = [] if self.answers is None else [self.answers]
        if self.share is not None:
            exact = Decimal(str(self.share)) * cells  # 0.29 * 100 is 28.99... in binary
            answers.append(max(1, int(exact.to_integral_value(rounding=ROUND_FLOOR))))
        return Budget(
            usd_nanos=None if self.usd is None else nanos(self.usd),
            answers=min(answers, default=None),
            calls=self.calls,
            tokens=self.tokens,
            gpu_seconds=self.gpu_minutes and 60 * self.gpu_minutes,
            seconds=self.minutes and 60 * self.minutes,
        )


class StopSpec(StudyModel):
    """When a run may stop before its budget is spent."""

    within: Inside | None = Field(
        None,
        description="Stop once the leading candidate is shown to be at most this far below the "
        "best, at the confidence of `selector`. Left out: stop once those that are open "
        "are nearer to the leading one than the examples can tell apart.",
    )
    for_: Literal["seen", "new"] = Field(
        "seen",
        alias="for",
        description="For which examples it must be shown who leads, or what a `gate` asks: `seen`, "
        "those of the study, or `new`, examples like them, which takes more calls. It ends, too, "
        "when the examples cannot show it.",
    )


class SelectorSpec(StudyModel):
    """The selection rule, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Text = Field("auto", description="Name of the selection rule.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="Parameters of the rule, such as `eta: 1.0`."
    )
    history: tuple[Text, ...] = Field(
        (),
        description="Earlier runs (id or name) to learn from, for rules that can: `auto` and "
        "`pulse`. Examples are recognised by content.",
    )
    seed: Annotated[int, Strict(), Field(ge=0)] = Field(
        0, description="Seed of all random choices."
    )
    per: Literal["call", "dollar"] = Field(
        "call",
        description="Unit in which the rule saves: calls, or dollars. Per dollar, expensive "
        "candidates are pulled less (docs/costs.md); needs known prices.",
    )
    confidence: Inside | None = Field(
        None,
        description="Confidence that the answer must have; a run that ends less sure "
        "exits with code 3. Left out: none is asked for, intervals are stated at 0.95.",
    )
    stop_when_separated: Flag = Field(
        True,
        description="Whether to stop before the budget is spent, once what was asked for is shown.",
    )

    @property
    def level(self) -> float:
        """Return the confidence of intervals, in (0, 1)."""
        return _DEFAULT_LEVEL if self.confidence is None else self.confidence


class ProviderLimits(RateSpec):
    """Limits of one provider, of each of its `endpoints`; those left out are its own."""

    in_flight: Count | None = Field(
        None,
        description="Calls in flight at once, at each of its `endpoints`. Left out: found by trial "
        "for providers over the network.",
    )


class LimitsSpec(StudyModel):
    """Concurrency, timeouts and retries."""

    in_flight: Count = Field(64, description="Calls in flight at once, over all providers.")
    timeout_seconds: Positive = Field(120.0, description="Seconds that one attempt may take.")
    max_attempts: Count = Field(
        5, description="Attempts at one call before its answer counts as missing."
    )
    failed_score: Share = Field(
        0.0,
        description="Score in [0, 1] of a reply on which the candidate itself failed (refusal, "
        "nothing to read in it, too long).",
    )
    max_failed_share: Share = Field(
        0.5, description="Share of missing answers above which the run stops."
    )
    providers: dict[str, ProviderLimits] = Field(
        default_factory=dict, description="Limits by name of provider."
    )
    models: dict[str, RateSpec] = Field(
        default_factory=dict,
        description="Limits by `provider/model`; they come before those of the provider.",
    )

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: dict[str, RateSpec]) -> dict[str, RateSpec]:
        for name, limits in models.items():
            check_model_name(name, name)
            if limits.shared is not None:
                broken("is of a provider's limits; write it in `limits.providers`", name, "shared")
        return models


SCORE = "mean score"  # no measure's name: the score that candidates are compared by
PRICE, SECONDS, LENGTH = QUANTITIES = ("usd_per_1k_calls", "seconds_mean", "output_tokens_mean")
_TEXT = re.compile(r"\s*(<=|>=)\s*\$?(\d+(?:\.\d*)?|\.\d+)\s*")
_SCORES = 2  # statements about scores: before and after a candidate is found to break a limit


class Objective(StrEnum):
    """Kinds of objective."""

    BEST = "best"
    BEST_UNDER_USD = "best-under-usd"
    CHEAPEST = "cheapest-within-epsilon"
    AT_LEAST = "cheapest-at-least"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of a mean."""

    name: str  # as the study has it: one of ``QUANTITIES``, or a measure
    at_most: bool  # else at least
    limit: float

    @property
    def text(self) -> str:
        """The constraint as the study has it."""
        return f"{self.name} {'<=' if self.at_most else '>='} {self.limit:g}"


def constraint_of(name: str, text: str) -> Constraint:
    """Read an entry of ``subject_to``; a name that is no quantity of calls is a measure's.

    Example:
        >>> constraint_of("seconds_mean", "<= 2").limit
        2.0
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        broken(f'must be a limit such as "<= 2" or ">= 0.9", got {as_json(text)}', name)
    at_most, limit = match[1] == "<=", float(match[2])
    if name in QUANTITIES and not at_most:
        broken('limits from above: write "<="', name)
    if name not in QUANTITIES and limit > 1:
        broken(f"limits a mean of scores, at most 1, got {limit:g}", name)
    return Constraint(name, at_most, limit)


class ObjectiveSpec(StudyModel):
    """The goal of the study, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Annotated[Objective, WithJsonSchema({"type": "string", "enum": [*Objective]})] = Field(
        Objective.BEST,
        description="`best`: the candidate of the highest mean. `best-under-usd`: the best of "
        "those whose price is at most `usd_per_1k_calls`. `cheapest-within-epsilon`: the cheapest "
        "of those that are probably (9 in 10) at most `epsilon` below the best; meant where only "
        "that is given. `cheapest-at-least`: the cheapest of those that are proved to score "
        "`at_least`; meant where only that is given. All but `best` need known prices.",
    )
    epsilon: Inside = Field(
        0.02,
        description="How far below the highest mean is good enough; for `cheapest-within-epsilon`.",
    )
    at_least: Inside | None = Field(
        None,
        description="Mean score over the study's examples that is good enough; for "
        "`cheapest-at-least`, which needs it.",
    )
    usd_per_1k_calls: Dollars | None = Field(
        None, description="Dollars that 1,000 calls may cost; for `best-under-usd`, which needs it."
    )

    subject_to: dict[str, Annotated[str, Strict()]] = Field(
        default_factory=dict,
        description="Limits of means that the winner of `best` must keep: `usd_per_1k_calls`, "
        "`seconds_mean`, `output_tokens_mean`, or the name of one of `measures`; each a text such "
        "as '<= 2' or '>= 0.9'.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_bound(cls, given: Any) -> Any:  # noqa: ANN401 - of any kind yet
        """Name the objective by its bound: ``epsilon`` and ``at_least`` each belong to one."""
        keys = {"epsilon": Objective.CHEAPEST, "at_least": Objective.AT_LEAST}
        if isinstance(given, Mapping) and "name" not in given:
            names = [name.value for key, name in keys.items() if key in given]
            if len(names) > 1:
                broken("and `epsilon` are two objectives; leave one out", "at_least")
            return {"name": names[0], **given} if names else given
        return given

    @model_validator(mode="after")
    def _check_at_least(self) -> Self:
        if (self.name is Objective.AT_LEAST) != (self.at_least is not None):
            broken(
                "is what `cheapest-at-least` needs, and no other objective has; write `objective: "
                f"{{at_least: 0.9}}`, or leave it out: the objective is `{self.name}`",
                "at_least",
            )
        return self

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.subject_to and self.name not in (Objective.BEST, Objective.BEST_UNDER_USD):
            broken(
                f"belongs to `best`, and the objective is `{self.name}`; name that one, or leave "
                f"the limits out",
                "subject_to",
            )
        if PRICE in self.subject_to and self.usd_per_1k_calls is not None:
            broken("is given twice; leave one out", "subject_to", PRICE)
        for name, text in self.subject_to.items():
            constraint_of(name, text)
        return self

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        needed = self.name is Objective.BEST_UNDER_USD
        if needed and self.usd_per_1k_calls is None:
            broken(
                "is missing: `best-under-usd` needs to know what 1,000 calls may cost; write "
                "`objective: {name: best-under-usd, usd_per_1k_calls: 2}`, or give "
                "--set objective.usd_per_1k_calls=2",
                "usd_per_1k_calls",
            )
        if not needed and self.usd_per_1k_calls is not None:
            broken(
                f"belongs to `best-under-usd`, and the objective is `{self.name}`; name that one, "
                f"or leave the price out",
                "usd_per_1k_calls",
            )
        return self

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits that the winner must keep; `best-under-usd` is one of them by itself."""
        limits = [constraint_of(name, text) for name, text in self.subject_to.items()]
        if self.usd_per_1k_calls is not None:
            limits.insert(0, constraint_of(PRICE, f"<= {self.usd_per_1k_calls!r}"))
        if self.at_least is not None:
            limits.append(Constraint(SCORE, at_most=False, limit=self.at_least))
        return tuple(limits)

    @property
    def by_price(self) -> bool:
        """Return whether the answer depends on prices."""
        return self.name is not Objective.BEST or PRICE in self.subject_to

    @property
    def is_plain(self) -> bool:
        """Return whether simply the best is asked for."""
        return self.name is Objective.BEST and not self.subject_to

    def level(self, confidence: float) -> float:
        """Return the confidence of each part of the statement, so that all hold at ``confidence``.

        Example:
            >>> spec = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls=1.0)
            >>> round(spec.level(0.9), 4), ObjectiveSpec().level(0.9)
            (0.9667, 0.9)
        """
        # a score that is good enough is the whole statement: no other candidate is compared
        # Bonferroni: the statement holds if each limit, and each of the two statements about
        # scores, does.
        parts = len(self.constraints) + _SCORES if self.constraints and not self.at_least else 1
        return 1 - (1 - confidence) / parts


_MOST = 0.5


class ConfirmSpec(StudyModel):
    """Keeps examples back, which only the winner answers, after it was chosen."""

    share: GridShare = Field(
        0.2,
        description=f'Share of the examples kept back, in (0, {_MOST}]; 0.2 or "20%". The '
        "selection does not see them.",
    )

    @field_validator("share")
    @classmethod
    def _check_share(cls, share: float) -> float:
        if share > _MOST:
            broken(f"must be at most {_MOST}, or too few examples are left to choose by")
        return share

    def drawn(self, groups: Sequence[int], seed: int) -> tuple[int, ...]:
        """Draw the rows of a dataset that are kept back, in a random order.

        Rows of one group stay together: what the selection saw of a row would tell of its copy.
        """
        rows: dict[int, list[int]] = {}
        for row, group in enumerate(groups):
            rows.setdefault(group, []).append(row)
        # Groups are drawn rather than rows, in an order of their own stream of the seed: keeping
        # more back adds groups to those kept before and changes none.
        order = KeyedRandom(seed, "confirm-order").at(0).permutation(len(rows))
        kept = order[: max(1, round(self.share * len(rows)))].tolist()
        members = list(rows.values())
        return tuple(row for number in kept for row in members[number])


GEPA = "gepa"


class OptimizeSpec(StudyModel):
    """Lets a function propose prompts by what went wrong, in rounds."""

    proposer: Text = Field(
        description="Function that proposes prompts, as `module:function`, or `gepa`."
    )
    rounds: Annotated[int, Field(ge=1)] = Field(4, description="Times that it is asked at most.")
    model: Annotated[str, Strict(), Field(pattern="^[^/]+/.+$")] | None = Field(
        None,
        description="Model that it asks, as `provider/model`; left out: that of the leading "
        "candidate.",
    )


class CertifySpec(StudyModel):
    """Asks for the cheapest candidate that is good enough instead of the best one.

    The study's `scorer` is the trusted judge, which scores replies to labelled examples. A loss is
    one minus a score.
    """

    risk: Inside = Field(description="Largest mean loss that is good enough.")
    confidence: Inside = Field(0.9, description="Probability that no bad candidate is certified.")
    judge: ScorerSpec = Field(
        description="The autoevaluator, which scores every reply, or just its name."
    )
    labels: Expandable | None = Field(
        None,
        description="JSON lines with `id` and `target`: the labels, in the place of the answers "
        "that the dataset holds. Left out: examples with an answer are the labelled ones. "
        "`${VARIABLE}` is expanded.",
    )
    order: Literal["cost", "prompt", "given"] = Field(
        "cost",
        description="How candidates are tried: from the dearest to the cheapest, from the longest "
        "to the shortest prompt, or as they are given.",
    )
    method: Literal["r-eval", "r-autoeval", "r-autoeval+"] = Field(
        "r-autoeval+", description="How evidence is gathered (docs/certification.md)."
    )
    betting: Literal["portfolio", "plug-in"] = Field("portfolio", description="How bets are made.")
    factors: Annotated[int, Strict(), Field(ge=2)] = Field(
        10, description="Reliance factors of `r-autoeval+`."
    )
    per_label: Count | None = Field(
        None,
        description="Unlabelled examples per label. Left out: as many as there are; 3 if all "
        "examples are labelled.",
    )
    max_labels: Count | None = Field(None, description="Most labels that may be used.")
    correction: Literal["sequence", "bonferroni"] = Field(
        "sequence",
        description="For many candidates: `sequence` tries them in order and stops at the first "
        "that fails; `bonferroni` splits the error evenly and goes from the last to the first that "
        "passes.",
    )
    people: bool = Field(
        False,
        description="Whether scores that people gave to single answers (the study's `labels`) take "
        "the place of the trusted scorer's.",
    )


_MARGIN = 0.02


class GateSpec(StudyModel):
    """Asks whether challengers are not worse than a baseline instead of for the best candidate."""

    baseline: Text = Field(description="Label of the candidate that the others are compared with.")
    challengers: tuple[Annotated[str, Strict()], ...] = Field(
        (), description="Labels of the candidates to be compared. Left out: all others."
    )
    margin: Annotated[float, Strict(), Field(ge=0, lt=1)] | None = Field(
        None,
        description="By how much the mean score may be lower, in [0, 1); with `improve`, by how "
        f"much it must be exceeded. Left out: {_MARGIN}; 0 with `improve`.",
    )
    slice_margin: Annotated[float, Strict(), Field(ge=0, lt=1)] | None = Field(
        None,
        description="By how much the mean score of a slice may be lower, in [0, 1), where the "
        f"study has `slices`. Left out: the margin; {_MARGIN} with `improve`.",
    )
    improve: bool = Field(False, description="Ask for challengers that are better.")
    confidence: Inside = Field(
        0.95, description="Probability that all verdicts together are right."
    )

    @property
    def margin_used(self) -> float:
        """The margin, given or by default."""
        if self.margin is None:
            return 0.0 if self.improve else _MARGIN
        return self.margin

    @property
    def slice_margin_used(self) -> float:
        """The margin of slices, given or by default."""
        if self.slice_margin is not None:
            return self.slice_margin
        return _MARGIN if self.improve else self.margin_used


class SlicesSpec(StudyModel):
    """Groups the examples by fields of the dataset: a slice for each value of each field."""

    by: tuple[Text, ...] = Field(
        (),
        description="Fields of the dataset whose values group the examples. `length_bucket`, where "
        "no field is called so: a quarter of the examples each, by the length of their texts.",
    )


class StudyConfig(StudyModel):
    """A study: finds the best of the candidates on a dataset."""

    name: Name = Field("study", description="Name of the study; default: the file's stem.")
    models: tuple[ModelSpec, ...] = Field((), description="Models to combine.")
    prompts: tuple[PromptSpec, ...] = Field((), description="Prompts to combine.")
    params: Grid = Field(
        default_factory=dict,
        description="Sampling parameters to combine: a list is an axis, anything else is the same "
        "for all, `null` leaves the parameter out. A value that is itself a list stands in a list: "
        '`stop: [["\\n"]]`.',
    )
    exclude: tuple[Params, ...] = Field(
        (),
        description="Combinations to leave out: those that match all keys of one of "
        "these mappings. Keys: `model` (label or name), `prompt`, `shots`, and sampling "
        "parameters; a list matches any of its values.",
    )
    candidates: tuple[CandidateSpec, ...] = Field(
        (), description="Explicit candidates, next to the combinations or in their place."
    )
    shots: ShotsSpec | None = Field(None, description="Worked examples in the prompts.")
    dataset: DatasetSpec = Field(description="The examples, or just the path of their file.")
    scorer: ScorerSpec = Field(description="How a reply is scored, or just the scorer's name.")
    measures: dict[Name, ScorerSpec] = Field(
        default_factory=dict,
        description="Further scorers by name: each scores every reply in [0, 1], beside `scorer`. "
        "Their means are shown; `objective.subject_to` may limit them.",
    )
    repeats: Annotated[int, Strict(), Field(ge=1, le=100)] = Field(
        1,
        description="Draws of every example, where replies vary: each is an example of "
        "its own, and a mean is over all draws.",
    )
    labels: Expandable | None = Field(
        None,
        description="File of gold scores that people gave to answers, relative to the study file; "
        "the report compares the scorer with them. `${VARIABLE}` is expanded.",
    )
    budget: BudgetSpec = Field(
        default_factory=BudgetSpec, description="Hard caps; left out: all answers may be asked for."
    )
    objective: ObjectiveSpec = Field(
        default_factory=ObjectiveSpec, description="The goal, or just its name."
    )
    selector: SelectorSpec = Field(
        default_factory=SelectorSpec, description="The selection rule, or just its name."
    )
    confirm: ConfirmSpec | None = Field(
        None,
        description="Keep examples back, which the winner answers once it is chosen: its number "
        "there is not too high. Left out: every example may be used to choose by.",
    )
    optimize: OptimizeSpec | None = Field(
        None, description="Let better prompts be proposed while the study runs, which join it."
    )
    stop: StopSpec = Field(
        default_factory=StopSpec, description="When a run may stop before its budget is spent."
    )
    certify: CertifySpec | None = Field(
        None,
        description="Ask for the cheapest candidate that is good enough instead of the best one; "
        "only the seed of `selector` is then used.",
    )
    slices: SlicesSpec = Field(
        default_factory=SlicesSpec,
        description="Groups of examples on which `gate` has verdicts; `view` shows their answers.",
    )
    gate: GateSpec | None = Field(
        None,
        description="Settings of `bestarm-agent gate`, which compares candidates with a baseline; "
        "other commands do not heed them.",
    )
    limits: LimitsSpec = Field(
        default_factory=LimitsSpec, description="Concurrency, timeouts and retries."
    )
    providers: dict[str, Options] = Field(
        default_factory=dict,
        description="Options by name of provider (`base_url`, `endpoints`, ...). `${VARIABLE}` is "
        "expanded.",
    )
    output_dir: Expandable = Field(
        "runs",
        description="Folder of the run store and the reports, relative to the study file. "
        "`${VARIABLE}` is expanded.",
    )

    @cached_property
    def model_labels(self) -> tuple[str, ...]:
        """Return the label of each of ``models``."""
        return model_labels(self.models)

    def model_options(self) -> dict[tuple[str, str], dict[str, JsonValue]]:
        """Return the provider options of every (provider, model) that a candidate may use."""
        options = {(spec.provider, spec.name): dict(spec.options) for spec in self.models}
        labels = set(self.model_labels)
        for candidate in self.candidates:
            if candidate.model not in labels:
                provider, _, model = candidate.model.partition("/")
                options.setdefault((provider, model), dict(candidate.options))
        return options

    @cached_property
    def param_names(self) -> frozenset[str]:
        """The names of all sampling parameters, of whatever model."""
        own = [*(spec.params for spec in self.models), *(spec.params for spec in self.candidates)]
        return frozenset(self.params).union(*own)

    @model_validator(mode="after")
    def _check_something_to_compare(self) -> Self:
        if self.candidates or (self.models and self.prompts):
            return self
        if self.models:
            broken("is missing: `models` need at least one prompt to make candidates", "prompts")
        if self.prompts:
            broken("is missing: `prompts` need at least one model to make candidates", "models")
        broken("has nothing to compare; give `models` and `prompts`, or `candidates`")

    @model_validator(mode="after")
    def _check_stop(self) -> Self:
        for key, is_asked in (
            ("within", self.stop.within is not None),
            ("for", self.stop.for_ == "new" and self.gate is None),  # a verdict ends a gate
        ):
            if is_asked and not self.objective.is_plain:
                limited = " with `subject_to`" if self.objective.subject_to else ""
                broken(
                    f"belongs to the objective `best`, not to `{self.objective.name}`{limited}; "
                    "leave it out, or ask for `cheapest-within-epsilon` with an `epsilon`",
                    *("stop", key),
                )
            if is_asked and not self.selector.stop_when_separated:
                broken(
                    "contradicts `selector.stop_when_separated: false`, which goes on until the "
                    "budget is spent; leave one of them out",
                    *("stop", key),
                )
        return self

    @model_validator(mode="after")
    def _check_dependent_examples(self) -> Self:
        if self.certify is not None and self.repeats > 1:
            broken(
                "does not go with `certify`, which certifies single replies; leave one of them out",
                "repeats",
            )
        for key, section in (("certify", self.certify), ("confirm", self.confirm)):
            if self.dataset.cluster is not None and section is not None:
                broken(
                    f"does not go with `{key}`, whose statement supposes that no example depends "
                    "on another; leave one of them out",
                    *("dataset", "cluster"),
                )
        return self

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        _check_unique(self.model_labels, "models", "model")
        _check_unique([spec.label for spec in self.prompts], "prompts", "prompt")
        _check_unique([spec.label for spec in self.candidates], "candidates", "candidate")
        return self

    @model_validator(mode="after")
    def _check_measures(self) -> Self:
        for name in self.measures:
            if name in QUANTITIES:
                broken("is the name of a quantity of calls; choose another", "measures", name)
        return self

    @model_validator(mode="after")
    def _check_model_options(self) -> Self:
        """Refuse different options for one model: candidates refer to it by name only."""
        first: dict[str, ModelSpec] = {}
        for i, spec in enumerate(self.models):
            if first.setdefault(spec.model, spec).options != spec.options:
                broken(
                    f"differ from those of another entry of {spec.model}; they must be the same",
                    *("models", i, "options"),
                )
        return self

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        prompts = {spec.label for spec in self.prompts}
        labels, models = self.model_labels, {spec.model for spec in self.models}
        for i, candidate in enumerate(self.candidates):
            if candidate.model in labels or candidate.model in models:
                if candidate.options:
                    broken("belong to this model's entry in `models`", "candidates", i, "options")
            else:
                if "/" not in candidate.model:
                    broken(
                        f"{as_json(candidate.model)} is neither `provider/model` nor the label of "
                        f"one of `models`; {nearest(candidate.model, labels)}",
                        *("candidates", i, "model"),
                    )
                check_model_name(candidate.model, "candidates", i, "model")
            # A pattern of files has no label here, and any prompt may be one of its files. The name
            # is then checked when the files are read.
            if candidate.prompt not in prompts and None not in prompts:
                names = [name for name in prompts if name is not None]
                broken(
                    f"{as_json(candidate.prompt)} is not one of `prompts`; "
                    f"{nearest(candidate.prompt, names)}",
                    *("candidates", i, "prompt"),
                )
        return self

    @model_validator(mode="after")
    def _check_exclusions(self) -> Self:
        for i, rule in enumerate(self.exclude):
            if not rule:
                broken("is empty and would leave out everything; name a key", "exclude", i)
        return self


def _check_unique(labels: list[str | None] | tuple[str, ...], key: str, what: str) -> None:
    first: dict[str, int] = {}
    for i, label in enumerate(labels):
        if label is not None and first.setdefault(label, i) != i:
            broken(
                f"is the second {what} called {as_json(label)}, after {key}[{first[label]}]; "
                "give it another label or name",
                *(key, i),
            )
