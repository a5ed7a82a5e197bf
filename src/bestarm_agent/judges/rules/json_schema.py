"""Score 1 if the reply is JSON that follows a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, JsonValue, model_validator

from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.rules.base import RuleJudge, RuleOptions, judge_failed, unparsable
from bestarm_agent.judges.rules.metrics import extra
from bestarm_agent.judges.rules.text_normalisation import shown

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)


class JsonSchemaOptions(RuleOptions):
    """Options of ``json-schema``."""

    json_schema: dict[str, JsonValue] | None = None
    schema_field: str | None = Field(None, min_length=1)  # input field that holds a schema
    fences: bool = True  # whether to read the last code fence if the whole reply is not JSON

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.json_schema is None) == (self.schema_field is None):
            raise ValueError("give either `json_schema` or `schema_field`")
        return self


class JsonSchemaJudge(RuleJudge[JsonSchemaOptions, object]):
    """Scores 1 if the reply is JSON that follows the schema, 0 if it is other JSON.

    A reply that is not JSON is the candidate's failure. A schema cannot refer to other documents.
    """

    adapter = "json-schema"
    options_type = JsonSchemaOptions

    def __init__(self, name: str, options: JsonSchemaOptions) -> None:
        super().__init__(name, options)
        self.needs_reference = False
        self._library: Any = extra("jsonschema", name)
        self._registry: Any = extra("referencing", name).Registry()  # which fetches nothing
        self._unresolvable = extra("referencing.exceptions", name).Unresolvable
        self._validators: dict[str, Any] = {}
        if options.json_schema is not None:
            self._fixed = self._validator(options.json_schema, f"judge `{name}`")

    def check(self, example: Example) -> None:
        """Check an example's own schema; raises ConfigError."""
        if self.options.schema_field is not None:
            self._validator_of(example)

    def _extract(self, text: str, example: Example) -> object:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            fenced = _FENCE.findall(text) if self.options.fences else []
        try:
            return json.loads(fenced[-1])
        except (IndexError, ValueError, RecursionError):
            raise unparsable("no JSON", text) from None

    def _agrees(self, answer: object, example: Example) -> bool:
        try:
            return bool(self._validator_of(example).is_valid(answer))
        except self._unresolvable as error:
            raise judge_failed(f"the schema refers to what is not in it: {error}") from None

    def _said(self, answer: object) -> str:
        return json.dumps(answer, ensure_ascii=False)

    def _validator_of(self, example: Example) -> Any:  # noqa: ANN401 - jsonschema has no type for it
        field = self.options.schema_field
        if field is None:
            return self._fixed
        schema = example.inputs.get(field)
        text = json.dumps(schema)
        if text not in self._validators:
            where = f"example `{example.id}`, field `{field}`"
            try:
                schema = json.loads(schema) if isinstance(schema, str) else schema
            except ValueError as error:
                raise ConfigError(f"{where}: no JSON schema: {error}") from None
            if not isinstance(schema, Mapping):
                raise ConfigError(f"{where}: no JSON schema, got {shown(text)}")
            self._validators[text] = self._validator(schema, where)
        return self._validators[text]

    def _validator(self, schema: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401 - as above
        cls = self._library.validators.validator_for(
            schema, default=self._library.Draft202012Validator
        )
        try:
            cls.check_schema(schema)
        except self._library.SchemaError as error:
            raise ConfigError(f"{where}: not a JSON schema: {error.message}") from None
        return cls(schema, registry=self._registry)
