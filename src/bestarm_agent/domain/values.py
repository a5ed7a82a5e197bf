"""Values that runs are made of: candidates, examples, requests and replies, outcomes.

Values with equal content have equal digests, on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Required, TypeAlias, TypedDict

from bestarm_agent.domain.reasoning import parted
from bestarm_agent.domain.spend import MOST, Spend, Usage, check_range
from bestarm_agent.domain.value_class import value_class
from bestarm_agent.errors import Blame, ConfigError, FailureKind

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # pydantic, which reads the hints of what is stored, cannot follow the circle

# Sorted keys and no spaces: equal values have equal digests, whatever wrote them. NaN is no JSON,
# and is unequal to itself.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


def canonical(value: Json) -> str:
    """Render ``value`` as JSON with sorted keys and no spaces; raises ValueError for NaN."""
    return _encode(value)


def digest(value: Json, *, length: int = 16) -> str:
    """Return the first ``length`` <= 64 hexadecimal digits of the SHA-256 of ``canonical``."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:length]


class DataUrl(str):
    """A data URL; what is identified by its content has the digest of that in its place.

    Attributes:
        name: what it is called, for people.
        digest: SHA-256 of the content, in hexadecimal digits.
        pages: 1 for an image; an upper bound of a PDF's.
    """

    __slots__ = ("digest", "name", "pages")

    name: str
    digest: str
    pages: int

    def __new__(cls, url: str, *, name: str, digest: str, pages: int = 1) -> DataUrl:
        """Make one of a text that is a data URL."""
        made = super().__new__(cls, url)
        made.name, made.digest, made.pages = name, digest, pages
        return made


# a part of a message in OpenAI's form: {"type": "text", "text": ...}, or of the type "image_url"
# or "file"
Part: TypeAlias = Mapping[str, Json]


def content_of(part: Part) -> str:
    """Return what a part carries: a text, the URL of an image, or a file as a data URL."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return url
        case {"type": "file", "file": {"file_data": str(url)}}:
            return url
    return str(part.get("text", ""))


def part_of(type: str, content: str) -> Part:
    """Return the part of a type that carries this."""
    match type:
        case "image_url":
            return {"type": type, "image_url": {"url": content}}
        case "file":  # the file's name does not matter to the reply
            return {"type": type, "file": {"filename": "file.pdf", "file_data": content}}
    return {"type": type, "text": content}


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; its content is Jinja in a template and plain text in a request.

    A content of several parts is a tuple of them.
    """

    role: str  # "system", "user", "assistant" or "tool"
    content: str | tuple[Part, ...]
    tool_calls: tuple[Mapping[str, Json], ...] = ()  # of an assistant, by ``tool_call``
    tool_call_id: str | None = None  # of the call that a message of a tool answers

    def __hash__(self) -> int:
        """Return a hash: mappings have none."""
        # Parts and calls of tools are mappings; equal messages still hash alike, since both are in
        # the text.
        return hash((self.role, self.text))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of its content, if it is no text."""
        return () if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        """All of it as a text, with the name of each image or file in brackets."""
        content = self.content
        text = content if isinstance(content, str) else "\n".join(map(_text_of, content))
        if not self.tool_calls:
            return text
        return "\n".join(filter(None, (text, calls_text(self.tool_calls))))

    def as_json(self) -> Json:
        """Return the message as a JSON object; data URLs are replaced by their digests."""
        content = self.content if isinstance(self.content, str) else [*map(_digested, self.content)]
        message: dict[str, Json] = {"role": self.role, "content": content}
        if self.tool_calls:
            message["tool_calls"] = list(self.tool_calls)
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        return message


def _text_of(part: Part) -> str:
    content = content_of(part)
    if part.get("type") == "text":
        return content
    known = "" if content.startswith("data:") else content
    name = content.name if isinstance(content, DataUrl) else known
    return f"[{str(part.get('type')).removesuffix('_url')} {name}".rstrip() + "]"


def _digested(part: Part) -> Part:
    content = content_of(part)
    return part_of(str(part["type"]), content.digest) if isinstance(content, DataUrl) else part


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt before an example's fields are filled in: either a text or messages."""

    name: str
    text: str | None = None  # Jinja source of a plain completion prompt
    # one of the role "conversation" stands for the messages in a field: "{{ field }}"
    messages: tuple[Message, ...] = ()
    n_shots: int | None = None  # worked examples that are shown; None: nobody asked for any
    # the worked examples, and one that takes the place of an example that is asked
    shots: tuple[Example, ...] = field(default=(), hash=False)
    # functions; "{{ field }}" stands for those in a field
    tools: tuple[Mapping[str, Json] | str, ...] = field(default=(), hash=False)
    tool_choice: str | None = None  # "auto", "none", "required" or the name of a tool

    def __post_init__(self) -> None:
        if (self.text is None) == (not self.messages):
            raise ValueError(f"prompt {self.name!r} needs either a text or messages, not both")

    def as_json(self) -> Json:
        """Return the content, without name and worked examples, as a JSON object."""
        content: dict[str, Json] = {"text": self.text}
        if self.text is None:
            content = {"messages": [message.as_json() for message in self.messages]}
        if self.tools:
            content |= {"tools": self.tools, "tool_choice": self.tool_choice}
        return content


@dataclass(frozen=True)
class Candidate:
    """One (model, prompt, sampling configuration), compared with the others."""

    provider: str  # "hf", "openai", ...
    model: str  # as the provider knows it, without the provider's name
    prompt: PromptTemplate
    params: Mapping[str, Json] = field(default_factory=dict)  # as they are sent: "temperature", ...
    label: str = ""  # for users; not part of the identity

    @cached_property
    def id(self) -> str:
        """Digest of the content, 12 hexadecimal digits: equal content, equal id."""
        content: dict[str, Json] = {
            "provider": self.provider,
            "model": self.model,
            "prompt": self.prompt.as_json(),
            "params": dict(self.params),
        }
        if shots := self._shots:
            content["shots"] = shots
        return digest(content, length=12)

    @cached_property
    def levels(self) -> tuple[int, int, int, int]:
        """Numbers of its model, prompt, parameters and worked examples, < 2^48, by content."""
        parts: tuple[Json, ...] = (
            [self.provider, self.model],
            self.prompt.as_json(),
            dict(self.params),
            self._shots,
        )
        model, prompt, params, shots = (int(digest(part, length=12), 16) for part in parts)
        return model, prompt, params, shots

    @property
    def _shots(self) -> list[str]:
        return [shot.digest for shot in self.prompt.shots[: self.prompt.n_shots or 0]]


class CandidateDict(TypedDict, total=False):
    """A candidate as an entry of a study's ``candidates`` has it, for type checkers."""

    model: Required[str]  # label of one of the study's models, or provider/model
    prompt: Required[str | Mapping[str, Json]]  # name, or a whole prompt: its name and its text
    params: Mapping[str, Json]  # sampling parameters
    shots: int  # worked examples in the prompt
    label: str
    options: Mapping[str, Json]  # of the provider


@dataclass(frozen=True, slots=True)
class Slice:
    """Examples that have the same value in a field of the dataset."""

    name: str  # "language=de"
    examples: tuple[int, ...]  # their numbers, from 0, rising


@dataclass(frozen=True)
class Example:
    """One row of the dataset, or a draw of it that is asked for by itself."""

    id: str  # unique within the dataset
    inputs: Mapping[str, Json]  # fields that prompt templates may use
    reference: str | tuple[str, ...] | None = None  # acceptable answers; None: none is needed
    draw: int = 0  # number of draws of the same row before this one
    position: str = field(default="", compare=False, repr=False)  # file and line, for messages

    @property
    def row_id(self) -> str:
        """The id of its row, which is that of the first draw."""
        # The first draw has the row's own id: a study that gets repeats later keeps its replies.
        return self.id.removesuffix(_suffix(self.draw))

    @property
    def target(self) -> str | None:
        """The acceptable answers, one a line; None if none is needed."""
        return "\n".join(self.reference) if isinstance(self.reference, tuple) else self.reference

    @cached_property
    def digest(self) -> str:
        """Digest of inputs and reference: joins equal examples across runs."""
        return digest({"inputs": dict(self.inputs), "reference": self.reference})


def each_drawn(rows: Sequence[Example], n_draws: int) -> tuple[Example, ...]:
    """Return an example for each draw of each row: the first of all rows, then the second ...

    Example:
        >>> [example.id for example in each_drawn([Example("a", {}), Example("b", {})], 2)]
        ['a', 'b', 'a#2', 'b#2']

    Raises:
        ConfigError: a row has the id of another one's draw.
    """
    ids = {row.id for row in rows}
    drawn = [
        replace(row, id=f"{row.id}{_suffix(n)}", draw=n) for n in range(n_draws) for row in rows
    ]
    for row in drawn[len(rows) :]:
        if row.id in ids:
            raise ConfigError(
                f"the id `{row.id}` stands for draw {row.draw + 1} of example `{row.row_id}`, and "
                f"for another example; rename that, or set `repeats: 1`"
            )
    return tuple(drawn)


def _suffix(draw: int) -> str:
    return f"#{draw + 1}" if draw else ""


def clean_text(text: str) -> str:
    r"""Replace each lone surrogate by a question mark.

    Example:
        >>> clean_text("five: \ud800 5")
        'five: ? 5'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class _CleanTexts:
    """Replaces lone surrogates in its texts: JSON allows them, and no file or page does."""

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            text = getattr(self, name)
            if type(text) is str and not text.isascii():
                object.__setattr__(self, name, clean_text(text))


def tool_call(name: Json, arguments: Json, id: Json = None) -> dict[str, Json]:
    """Return a call of a tool in OpenAI's form, but for its arguments: see ``arguments_of``."""
    given = "{}" if arguments in (None, "null") else arguments  # of a tool that takes none
    function = {"name": str(name), "arguments": arguments_of(given)}
    return {"id": id, "type": "function", "function": function}


def arguments_of(given: Json) -> Json:
    """Return the arguments of a call as JSON, or as a text if that is none.

    Example:
        >>> arguments_of('{"city": "Paris"}'), arguments_of("city=Paris")
        ({'city': 'Paris'}, 'city=Paris')
    """
    text = given if isinstance(given, str) else json.dumps(given)
    try:
        value: Json = json.loads(text or "{}")
        canonical(value)  # refuses NaN
    except (ValueError, RecursionError):
        return text
    return value


def calls_text(calls: Sequence[Mapping[str, Json]]) -> str:
    """Return calls of tools as people read them, one a line.

    Example:
        >>> print(calls_text([tool_call("get_weather", {"city": "Paris", "days": 3})]))
        get_weather(city="Paris", days=3)
    """
    lines = []
    for call in calls:
        function: Any = call["function"]
        arguments = function["arguments"]
        if isinstance(arguments, Mapping):
            values = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items())
            arguments = ", ".join(values)
        lines.append(f"{function['name']}({arguments})")
    return "\n".join(lines)


class Finish(StrEnum):
    """Reason why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content-filter"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer, or an alternative to one."""

    text: str
    logprob: float  # natural logarithm of its probability, <= 0


@dataclass(frozen=True, slots=True)
class Position:
    """One position of an answer, with the tokens that the model found likeliest there."""

    chosen: Token
    alternatives: tuple[Token, ...] = ()  # likeliest first; ``chosen`` may be among them


@value_class
class Request:
    """One rendered prompt for one model.

    Attributes:
        response_schema: JSON schema that the answer must follow, or None. Its "title" is its name
            (letters, digits, "_" and "-"). Objects list all their properties as required and allow
            no others. Set only where ``Capabilities.response_schema`` says so.
        top_logprobs: number of likeliest tokens, 1 to 20, in ``Reply.logprobs`` at every position.
            Set only where ``Capabilities.logprobs`` says so.
        attempt: number of equal requests before this one whose replies could not be used; it is not
            sent, but part of the key of the reply cache.
        draw: number of draws of the same prompt before this one; not sent, but part of the key.
        inputs: the example's fields, for programs that read more than the prompt; part of the key
            only where ``Capabilities.by_inputs`` says so.
        tools: functions that the model may call: mappings with ``name`` and ``parameters``, and
            perhaps ``description`` and ``strict``. Set only where ``Capabilities.tools`` says so.
        tool_choice: "auto", "none", "required" or the name of one of the tools.
        prefix: the text with which each message begins for all examples, up to the first message
            that differs; empty where no prompt cache would save anything. Not sent as such.
    """

    model: str  # model name as the provider knows it
    text: str | None = None  # plain completion prompt, or None where there are ``messages``
    messages: tuple[Message, ...] = ()  # chat messages; empty if ``text`` is given
    params: Mapping[str, Json] = field(default_factory=dict)  # sampling parameters to send
    candidate: str = ""  # label, for replayed records and for messages
    example: str = ""  # id, for replayed records and for messages
    response_schema: Mapping[str, Json] | None = None
    top_logprobs: int | None = None
    attempt: int = 0
    draw: int = 0
    inputs: Mapping[str, Json] = field(default_factory=dict)
    tools: tuple[Mapping[str, Json], ...] = ()
    tool_choice: str | None = None
    prefix: tuple[str, ...] = field(default=(), repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each message, or the plain prompt."""
        return tuple(message.text for message in self.messages) or (self.text or "",)

    @property
    def uses_tools(self) -> bool:
        """True if it has tools, or messages that call them."""
        return bool(self.tools) or any(
            message.tool_calls or message.role == "tool" for message in self.messages
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of its parameters, and of ``top_logprobs`` and ``response_schema`` if set."""
        features = {"top_logprobs": self.top_logprobs, "response_schema": self.response_schema}
        return frozenset([*self.params, *(name for name, is_used in features.items() if is_used)])

    def without(self, names: Collection[str]) -> Request:
        """Return a request without these; ``top_logprobs`` and ``response_schema`` count, too."""
        return replace(
            self,
            params={name: value for name, value in self.params.items() if name not in names},
            top_logprobs=None if "top_logprobs" in names else self.top_logprobs,
            response_schema=None if "response_schema" in names else self.response_schema,
        )

    def as_json(self) -> Json:
        """Return everything that the reply depends on, as a JSON object."""
        content: dict[str, Json] = {
            "model": self.model,
            "text": self.text,
            "messages": [message.as_json() for message in self.messages],
            "params": dict(self.params),
        }
        optional: dict[str, Json] = {
            "response_schema": self.response_schema,
            "top_logprobs": self.top_logprobs,
            # Zeros and absent features are left out, so that a reply keeps its key when a feature
            # is added.
            "attempt": self.attempt or None,
            "draw": self.draw or None,
            "tools": self.tools or None,
            "tool_choice": self.tool_choice,
        }
        content |= {name: value for name, value in optional.items() if value is not None}
        return content


@value_class
class Reply(_CleanTexts):
    """A model's answer to one request.

    The answer is taken here, once: rules, judges and people read ``text`` alike. Reasoning that
    stands in the text it is made of (``domain.reasoning``) becomes ``reasoning``. A reply that
    ended while the model thought was cut off, and its answer is empty.

    Example:
        >>> reply = Reply("<think>Lyon? No.</think>Paris")
        >>> reply.text, reply.reasoning
        ('Paris', '<think>Lyon? No.</think>')
    """

    text: str
    finish: Finish = Finish.STOP
    usage: Usage = field(default_factory=Usage)
    usd_nanos: int | None = None  # cost of the call in nano-dollars; None: no price is known
    seconds: float = 0.0  # wall-clock, from sending to the complete answer
    gpu_seconds: float = 0.0  # worker seconds of a local model
    model: str = ""  # the name by which the model that answered calls itself
    request_id: str | None = None  # the provider's id of the call
    score: float | None = None  # in [0, 1], where a replayed record holds it
    logprobs: tuple[Position, ...] = ()
    sent: Mapping[str, Json] = field(default_factory=dict)
    service_tier: str | None = None
    notices: tuple[str, ...] = ()
    calls: int = 1  # requests sent for this answer; a program may send several
    recorded: bool = False  # played back: an answer to a prompt that may have been another one
    tool_calls: tuple[Mapping[str, Json], ...] = ()  # by ``tool_call``
    reasoning: str = ""  # what the model thought before it answered, with its tags

    def __post_init__(self) -> None:
        _CleanTexts.__post_init__(self)  # no super(): a class with slots is made twice
        thought, answer, is_cut = parted(self.text)
        object.__setattr__(self, "text", answer)
        if thought:
            reasoning = "\n".join(filter(None, (self.reasoning, thought)))
            object.__setattr__(self, "reasoning", reasoning)
        if is_cut and self.finish is Finish.STOP:
            object.__setattr__(self, "finish", Finish.LENGTH)
        if self.reasoning and THOUGHT not in self.notices:
            object.__setattr__(self, "notices", (*self.notices, THOUGHT))
        check_range(0, 1, score=self.score)
        check_range(0, MOST, usd_nanos=self.usd_nanos, calls=self.calls)
        check_range(0, MOST, seconds=self.seconds, gpu_seconds=self.gpu_seconds)

    @property
    def said(self) -> str:
        """The text, and the calls of tools after it, for those who read both."""
        return "\n".join(filter(None, (self.text, calls_text(self.tool_calls))))


THOUGHT = "thinks before it answers: what it thought is kept, and not scored"
RIGHT = 0.5  # a score of at least this counts as right


@value_class
class Vote(_CleanTexts):
    """One judgement among those that a score is made of."""

    by: str  # the judging model, then the criterion or the order of answers if there are several
    value: float  # in [0, 1]
    said: str = ""  # the verdict in the judge's words: "7", "partially-correct", "second"
    why: str = ""  # its explanation, cut to a few hundred characters

    def __post_init__(self) -> None:
        """Check the value; raise ValueError."""
        _CleanTexts.__post_init__(self)
        check_range(0, 1, value=self.value)


def clip_rounding(score: float) -> float:
    """Return a score without what rounding took it beyond [0, 1]; others as they are.

    Example:
        >>> clip_rounding(1.0000000000000002), clip_rounding(1.1)  # the first as of a text's cosine
        (1.0, 1.1)
    """
    return min(1.0, max(0.0, score)) if -1e-9 <= score <= 1 + 1e-9 else score


@value_class
class Score(_CleanTexts):
    """A judge's score of one reply."""

    value: float  # in [0, 1]
    answer: str | None = None  # the text that was read out of the reply and compared, or None
    votes: tuple[Vote, ...] = ()  # the judgements that it is made of; empty for a rule
    gold: float | None = None  # the trusted score, in a certification, in [0, 1]
    measures: tuple[float | None, ...] = ()  # each further scorer's in [0, 1]; None: it failed

    def __post_init__(self) -> None:
        """Check the scores; raise ValueError."""
        _CleanTexts.__post_init__(self)
        check_range(0, 1, value=self.value, gold=self.gold)
        for value in self.measures:
            check_range(0, 1, measure=value)


@dataclass(frozen=True, slots=True)
class Failure(_CleanTexts):
    """Reason why a pair has no score that says something of the candidate's answer."""

    kind: FailureKind
    blame: Blame  # only a failure of the CANDIDATE counts, with the floor score
    message: str  # one line for people, free of secrets


@value_class
class Outcome:
    """The end of a pair: either a score or a failure, and what it took."""

    score: Score | None = None  # the judge's
    failure: Failure | None = None  # of the provider, the judge or the candidate itself
    spend: Spend = field(default_factory=Spend)  # all of it, retries and judging included
    judge_spend: Spend = field(default_factory=Spend)  # part of ``spend``: judging
    lost_spend: Spend = field(default_factory=Spend)  # part of ``spend``: calls without an answer
    # of the answered call; as they are here where there was none
    reply_key: str | None = None  # in the reply cache
    cached: bool = False  # the reply came from the cache
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0  # wall-clock
    usd_nanos: int | None = None  # its price, cached or not; None: unknown
    sign: str = ""  # that the reply may have been scored wrongly; see ``ScorerSigns``

    def __post_init__(self) -> None:
        """Check that there is a score or a failure."""
        if (self.score is None) == (self.failure is None):
            raise ValueError("an outcome is either a score or a failure")
