"""Rules that compare texts: exact, contains, regex, json-schema; and scores that were recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeAlias

import regex
from pydantic import AfterValidator, Field, JsonValue, model_validator

from bestarm_agent.domain.values import Example, Json, Reply, Score
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Calls, Judge, excerpt, judge_failed, references, unparsable
from bestarm_agent.judges.metrics import extra
from bestarm_agent.judges.rule import (
    STANDARD,
    Normalisation,
    RuleJudge,
    RuleOptions,
    ShortRuleOptions,
    WholeTextJudge,
    contains,
)


class ExactOptions(RuleOptions):
    """Options of ``exact``; ``normalise`` applies to the answer and to the references."""

    normalise: Normalisation = STANDARD


class ExactJudge(WholeTextJudge[ExactOptions]):
    """Scores 1 if the text equals any reference after normalisation."""

    adapter = "exact"
    version = 2  # 2: _Paris_
    recognises = True
    options_type = ExactOptions


class ContainsOptions(ExactOptions):
    """Options of ``contains``."""

    words: bool = True  # whether a reference must occur as whole words; else "46" occurs in "1463"
    require: Literal["any", "all"] = "any"  # references that must occur


class ContainsJudge(WholeTextJudge[ContainsOptions]):
    """Scores 1 if the references occur in the text after normalisation."""

    adapter = "contains"
    # 2: a Korean word may have a particle; 3: -5 holds no 5, "Paris's" holds Paris; 4: _Paris_
    version = 4
    recognises = True
    options_type = ContainsOptions

    def _own_replies(self, example: Example) -> Sequence[str]:
        targets = references(example)
        # If all references must occur, no single one of them is a right reply; all of them together
        # are.
        return targets if self.options.require == "any" else ["\n".join(targets)]

    def _agrees(self, answer: str, example: Example) -> bool:
        words, said = self.options.words, "\n".join(self._forms(answer))
        combine = any if self.options.require == "any" else all
        return combine(contains(said, part, words=words) for part in self._targets(example))


Flag: TypeAlias = Literal["ignore-case", "multi-line", "dot-all", "ascii"]  # as regex.DOTALL


class RegexOptions(ShortRuleOptions):
    """Options of ``regex``; ``normalise`` applies to the group and to the references.

    If ``group`` is None nothing is compared: a reply that matches scores 1, any other 0.
    """

    pattern: str = Field(min_length=1, max_length=2000)  # in the syntax of the ``regex`` package
    flags: Annotated[tuple[Flag, ...], AfterValidator(lambda flags: tuple(sorted({*flags})))] = ()
    group: int | str | None = None  # number or name
    normalise: Normalisation = STANDARD
    timeout_seconds: float = Field(0.5, gt=0, le=10)  # of a match, CPU seconds of this process

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        compiled = self.compiled()
        if isinstance(self.group, int) and not 0 <= self.group <= compiled.groups:
            raise ValueError(
                f"`group` must be in [0, {compiled.groups}] for this `pattern`, got {self.group}"
            )
        if isinstance(self.group, str) and self.group not in compiled.groupindex:
            raise ValueError(f"`pattern` has no group named {self.group!r}")
        return self

    def compiled(self) -> regex.Pattern[str]:
        """Compile the pattern; raises ValueError if it is malformed."""
        flags = sum(getattr(regex, flag.replace("-", "").upper()) for flag in self.flags)
        try:
            return regex.compile(self.pattern, flags, cache_pattern=False)
        except regex.error as error:
            raise ValueError(f"`pattern` is malformed: {error}") from None


class RegexJudge(RuleJudge[RegexOptions, str | None]):
    """Scores 1 if the pattern matches, or if its group equals any reference."""

    adapter = "regex"
    version = 2  # 2: _Paris_
    check_option = "pattern"
    options_type = RegexOptions

    def __init__(self, name: str, options: RegexOptions) -> None:
        super().__init__(name, options)
        self.needs_reference = options.group is not None
        self._pattern = options.compiled()

    def _extract(self, text: str, example: Example) -> str | None:
        timeout, group = self.options.timeout_seconds, self.options.group
        try:
            match = self._pattern.search(text, timeout=timeout)
        except TimeoutError:
            raise judge_failed(
                f"the pattern of judge `{self.name}` took more than {timeout:g} s on a reply of "
                f"{len(text):,} characters; make its repetitions unambiguous or possessive "
                "(`a++`), or lower `max_chars`"
            ) from None
        answer = None if match is None else str(match[group or 0] or "")
        if group is not None and not answer:
            raise unparsable(f"nothing that the pattern of judge `{self.name}` catches", text)
        return answer

    def _agrees(self, answer: str | None, example: Example) -> bool:
        if answer is None or self.options.group is None:
            return answer is not None
        return bool(super()._agrees(self._normalise(answer), example))

    def _text(self, answer: str | None) -> str:
        return answer or ""


# "```json\n{...}\n```": the first pattern runs from the first fence to the last, the second from
# each fence to the next, or to the end. A line of the fence's own is no JSON: "``` json title=a".
_OPENED = r"(?:`{3,}|~{3,})(?:[^\n`{\[]*\n|\w*\s*)"
_FENCE_OF_ALL = re.compile(rf"{_OPENED}(.*)(?:```|~~~)", re.DOTALL)
_FENCE = re.compile(rf"{_OPENED}(.*?)(?:```|~~~|\Z)", re.DOTALL)


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
    check_option = "json_schema"
    # 2: a byte order mark, and fences within strings; 3: other fences, and NaN is no JSON
    version = 3
    options_type = JsonSchemaOptions

    def __init__(self, name: str, options: JsonSchemaOptions) -> None:
        super().__init__(name, options)
        self.needs_reference = False
        self._library: Any = extra("jsonschema", name)
        self._registry: Any = extra("referencing", name).Registry()  # which fetches nothing
        self._unresolvable = extra("referencing.exceptions", name).Unresolvable
        # A schema is checked when its validator is built. Rows often share one schema: it is built
        # once.
        self._validator = cache(self._read_schema)
        if options.json_schema is not None:
            self._validator_of(Example("", {}))

    def check(self, example: Example) -> None:
        """Check an example's own schema; raises ConfigError."""
        self._validator_of(example)

    def _extract(self, text: str, example: Example) -> object:
        written = [text.lstrip("\ufeff")]
        if self.options.fences:
            # from the first fence to the last, since a string may hold fences; else the last block
            whole = _FENCE_OF_ALL.search(text)
            written += [*([whole[1]] if whole else []), *_FENCE.findall(text)[-1:]]
        for entry in written:
            with suppress(ValueError, RecursionError):
                return json.loads(entry, parse_constant=int)  # which refuses NaN
        raise unparsable("no JSON", text)

    def _agrees(self, answer: object, example: Example) -> bool:
        try:
            return bool(self._validator_of(example).is_valid(answer))
        except self._unresolvable as error:
            raise judge_failed(f"the schema refers to what is not in it: {error}") from None

    def _text(self, answer: object) -> str:
        return json.dumps(answer, ensure_ascii=False)

    def _validator_of(self, example: Example) -> Any:  # noqa: ANN401 - jsonschema has no type for it
        field = self.options.schema_field
        schema: Json = self.options.json_schema
        where = f"judge `{self.name}`"
        if field is not None:
            schema, where = example.inputs.get(field), f"example `{example.id}`, field `{field}`"
        try:
            return self._validator(schema if isinstance(schema, str) else json.dumps(schema))
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None

    def _read_schema(self, text: str) -> Any:  # noqa: ANN401 - as above
        """Return the validator of a schema; raises ValueError if it is none."""
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise ValueError(f"no JSON schema: {error}") from None
        if not isinstance(schema, Mapping):
            raise ValueError(f"no JSON schema, got {excerpt(text)}")
        validators = self._library.validators
        cls = validators.validator_for(schema, default=self._library.Draft202012Validator)
        try:
            cls.check_schema(schema)
        except self._library.SchemaError as error:
            raise ValueError(f"not a JSON schema: {error.message}") from None
        return cls(schema, registry=self._registry)


class RecordedJudge(Judge):
    """Returns the recorded score and ignores the text of the reply."""

    adapter = "recorded"

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return the recorded score; raise JudgeError, blame JUDGE, if there is none."""
        if reply.score is None:
            raise judge_failed(
                f"no score is recorded for example `{example.id}`; let judge `{self.name}` score "
                "only records that hold scores, or choose a judge that reads the answer"
            )
        return Score(value=reply.score)
