"""The `dataset` and `scorer` parts of a study."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from bestarm_agent.config.fields import StudyModel, broken, shown
from bestarm_agent.config.study.value_types import Count, Expandable, Text, without_secret_names
from bestarm_agent.errors import nearest
from bestarm_agent.plugins.registry import is_path

_FORMATS = ("auto", "jsonl", "json", "csv", "tsv", "parquet")


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
        "`csv`, `tsv`, `parquet`, a plug-in, or a "
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
    limit: Count | None = Field(None, description="Read only this many rows, from the top.")
    fields: tuple[Text, ...] | None = Field(
        None,
        description="Fields that templates may use; default: all but the target.",
        min_length=1,
    )

    @field_validator("format")
    @classmethod
    def _check_format(cls, format: str) -> str:
        if format in _FORMATS or is_path(format):
            return format
        broken(f"must be the name of a format, got {shown(format)}; {nearest(format, _FORMATS)}")

    @model_validator(mode="after")
    def _check_source(self) -> DatasetSpec:
        if (self.path is None) == (self.huggingface is None):
            found = "neither" if self.path is None else "both"
            broken(f"needs either `path` or `huggingface`, got {found}")
        if self.huggingface is not None and self.format != "auto":
            broken("is the format of a file, and `huggingface` is none; leave it out", "format")
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

    @model_validator(mode="after")
    def _check_secrets(self) -> ScorerSpec:
        without_secret_names(self.options)
        return self

    @property
    def options(self) -> dict[str, JsonValue]:
        """Return all keys but `name`."""
        return dict(self.__pydantic_extra__)
