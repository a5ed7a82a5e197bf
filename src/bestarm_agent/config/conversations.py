"""Conversations and tools in OpenAI's form, as studies and fields of examples hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from bestarm_agent.config.fields import StrictModel, StudyModel, as_json, broken
from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.domain.values import Json, Message, arguments_of, content_of

TOOL_CHOICES = ("auto", "none", "required")
# a whole value, read from the example: {{ name }} or {{ row["any name"] }}
_FIELD = re.compile(r"""\{\{\s*(?:([A-Za-z_]\w*)|row\[(["'])(.+?)\2\])\s*\}\}""")


def field_of(source: str) -> str | None:
    """Return the name of the field that is all of a template; None if it holds anything else.

    Example:
        >>> field_of("{{ tools }}"), field_of('{{ row["My tools"] }}'), field_of("{{ a }}!")
        ('tools', 'My tools', None)
    """
    match = _FIELD.fullmatch(source)
    return match and (match[1] or match[3])


class ToolSpec(StudyModel):
    """A function that a model may call, by itself or in OpenAI's form around it.

    A text `{{ field }}` stands for the functions in a field of the example.
    """

    short_form: ClassVar[str | None] = "name"

    name: str = Field(min_length=1, description="Name of the function.")
    description: str | None = Field(None, description="What it does, for the model.")
    parameters: dict[str, JsonValue] = Field(
        {"type": "object", "properties": {}}, description="JSON schema of its arguments."
    )
    strict: bool | None = Field(None, description="Whether arguments are made to follow it.")

    @model_validator(mode="before")
    @classmethod
    def _unwrap(cls, value: object) -> object:
        if isinstance(value, str) and field_of(value) is None:
            got = as_json(value)
            broken(f'must be a function, or a field such as "{{{{ tools }}}}", got {got}')
        # OpenAI's form wraps a function as {"type": "function", "function": {...}}; its newer API
        # writes the same keys side by side with the type.
        if isinstance(value, dict) and value.get("type", "function") == "function":
            return value.get("function") or {k: v for k, v in value.items() if k != "type"}
        return value

    @property
    def tool(self) -> dict[str, Json] | str:
        """The function as a request has it, or the text that stands for a field."""
        return self.name if field_of(self.name) else self.model_dump(exclude_none=True)


def read_tools(value: Json) -> tuple[Mapping[str, Json], ...]:
    """Return the functions of an example; raises ValueError or ConfigError if it is malformed."""
    tools = [parse_row(ToolSpec, item, f"tool {n}") for n, item in numbered(value)]
    return tuple(tool.model_dump(exclude_none=True) for tool in tools)


class FunctionCall(StrictModel):
    """A call of a function by its name."""

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("arguments", mode="before")
    @classmethod
    def _parse(cls, given: Any) -> object:  # noqa: ANN401 - checked next
        return arguments_of(given)


class _Call(StrictModel):
    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: FunctionCall


class _Turn(StrictModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | tuple[dict[str, JsonValue], ...] = ""
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None  # of a tool; the id of the call says it, too

    @property
    def message(self) -> Message:
        """The turn as a message; texts in parts are one text."""
        content, calls = self.content, tuple(call.model_dump() for call in self.tool_calls)
        if not isinstance(content, str):
            content = "\n".join(map(content_of, content))
        return Message(self.role, content, calls, self.tool_call_id)


def read_conversation(value: Json) -> tuple[Message, ...]:
    """Return the messages in a field; raises ValueError or ConfigError if it is malformed.

    Each call of a tool is answered before anything else is said, as all APIs demand.

    Example:
        >>> read_conversation([{"role": "user", "content": "Hi"}])[0].content
        'Hi'
    """
    messages: list[Message] = []
    # Calls that still need an answer. APIs refuse a conversation in which anything else comes
    # first, and they do so one call at a time; here it is found before any is paid for.
    waiting: list[str] = []  # ids of calls
    for n, item in numbered(value):
        turn = parse_row(_Turn, {k: v for k, v in item.items() if v}, f"message {n}")
        if turn.role == "tool":
            if turn.tool_call_id not in waiting:
                raise ValueError(f"message {n} answers no open call: {turn.tool_call_id!r}")
            waiting.remove(turn.tool_call_id)
        elif waiting:
            raise ValueError(f"message {n} comes before an answer to the call {waiting[0]!r}")
        elif turn.tool_calls and turn.role != "assistant":
            raise ValueError(f"message {n} calls tools, and its role is {turn.role!r}")
        elif not (turn.content or turn.tool_calls):
            raise ValueError(f"message {n} is empty")
        kinds = [part.get("type") for part in turn.content if not isinstance(part, str)]
        if not {"text"}.issuperset(kinds):
            raise ValueError(
                f"message {n} holds parts other than texts, which are not sent: {kinds}"
            )
        waiting += [call.id for call in turn.tool_calls]
        messages.append(turn.message)
    if waiting or not messages:
        lacks = f"an answer to the call {waiting[0]!r}" if waiting else "messages"
        raise ValueError(f"the conversation lacks {lacks}")
    return tuple(messages)


def numbered(value: Json) -> enumerate[Mapping[str, Any]]:
    """Number the objects of a list, or of the JSON text of one, as in a CSV file."""
    items = arguments_of(value)
    if not isinstance(items, list | tuple) or not all(isinstance(item, Mapping) for item in items):
        raise ValueError(f"must be a list of objects, got {items!r:.60}")
    return enumerate(items, start=1)
