"""An API protocol: writes requests, reads answers, and bounds and checks what they cost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.value_class import value_class
from bestarm_agent.domain.values import (
    Finish,
    Json,
    Part,
    Position,
    Request,
    Token,
    calls_text,
    canonical,
    content_of,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.endings import Ending
from bestarm_agent.providers.api.headers import bill
from bestarm_agent.providers.catalog_entry import PROMPT, ModelFacts

# Sampling parameters that some API has: against misspellings. Others are sent, too.
USUAL = frozenset(
    {"temperature", "top_p", "top_k", "top_a", "min_p", "typical_p", "seed", "logit_bias"}
    | {"presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty"}
    | {"length_penalty", "stop", "max_tokens", "max_completion_tokens", "min_tokens"}
    | {"effort", "thinking", "verbosity", "response_format", "service_tier", "prompt_cache_key"}
)
# What is no parameter of a candidate here, or has another name: a limit of the answer under a name
# that no bound knows would be none.
_NEVER = PROMPT | {"tools", "tool_choice", "max_output_tokens", "max_new_tokens"}
_NEVER |= {"reasoning_effort"}
DEFAULT_MAX_TOKENS = 4096
MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_PROMPT_FIELDS = frozenset({"model", "messages", "prompt", "input", "system", "tools"})
_PER_MESSAGE = 16  # marks of the chat template around each message, tool and call
_FOR_TOOLS = 1_000  # tokens of the system prompt that says how tools are called
IMAGE_TOKENS = 16_384  # of an image, where a model's facts name no number: few models need more
_TEXT_OF_PAGE = 4_000  # tokens of a page of a PDF, besides those of its image


def max_prompt_tokens(request: Request, overhead: int, image_tokens: int = IMAGE_TOKENS) -> int:
    """Return an upper bound of the prompt's tokens, ``overhead`` of the chat template included.

    Every tokenizer in use spends at least one byte on a token, so the bytes of the texts bound
    their tokens. An image has ``image_tokens``; a page of a PDF has them, and 4,000 of text.

    Example:
        >>> max_prompt_tokens(Request("m", text="Grüße"), overhead=0)
        23
    """
    # A chat template writes the role of each message beside its text, so both count.
    texts = [message.role + message.text for message in request.messages]
    calls = [call for message in request.messages for call in message.tool_calls]
    # some chat templates show tools with line breaks and indents
    texts += [json.dumps(thing, ensure_ascii=False, indent=4) for thing in (*request.tools, *calls)]
    if request.uses_tools:
        overhead += _FOR_TOOLS
    if request.text is not None:
        texts.append(request.text)
    if (form := response_format(request)) is not None:
        texts.append(canonical(form))
    attached = sum(_most_tokens(part, image_tokens) for part in attachments(request))
    return overhead + attached + sum(len(text.encode()) + _PER_MESSAGE for text in texts)


def attachments(request: Request) -> list[Part]:
    """Return the parts of a request that are no texts: images and files."""
    parts = (part for message in request.messages for part in message.parts)
    return [part for part in parts if part.get("type") != "text"]


def _most_tokens(part: Part, image_tokens: int) -> int:
    text = _TEXT_OF_PAGE if part.get("type") == "file" else 0
    return getattr(content_of(part), "pages", 1) * (image_tokens + text)


def response_format(request: Request) -> dict[str, Json] | None:
    """Return the form that an answer must have, as chat completions write it; None if any will do.

    The schema of a judge comes before the parameter. Raises ConfigError if that is malformed.
    """
    # A judge cannot read an answer of another form, while a candidate's form is only what it is
    # asked for: so the schema of the judge counts where both are given.
    if (schema := request.response_schema) is not None:
        title = schema.get("title")
        name = title if isinstance(title, str) else "answer"
        named: dict[str, Json] = {"name": name, "schema": schema, "strict": True}
        return {"type": "json_schema", "json_schema": named}
    form: Any = request.params.get("response_format")
    match form:
        case None:
            return None
        case {"type": "text" | "json_object"} | {
            "type": "json_schema",
            "json_schema": {"name": str(), "schema": {}},
        }:
            return dict(form)
    raise ConfigError(
        f"parameter `response_format` of {request.model} must be {{type: json_object}} or {{type: "
        f"json_schema, json_schema: {{name: ..., schema: ...}}}}, got {canonical(form):.80}"
    )


def max_output_tokens(request: Request, facts: ModelFacts) -> int:
    """Return the longest answer that a request allows, in tokens; raises ConfigError."""
    for name in MAX_TOKENS:
        limit = request.params.get(name)
        if limit is None:
            continue
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError(
                f"parameter `{name}` of {request.model} must be a number of tokens >= 1, got "
                f"{limit!r}"
            )
        return limit
    return facts.default_max_tokens or DEFAULT_MAX_TOKENS


_SHOWN = 80
# What may follow a model's name: nothing, a date, a version that follows @ or :, "latest". So
# "-2026-08-01", "-20260801", "-0613", "-001", "-latest", ":free" and "@002" leave it the same
# model, while "-mini" and ".3" make it another one.
_DATED = re.compile(r"|[-@:](latest|free|\d{4}(-?\d\d){0,2}|\d{3,8})|[@:].*")
_HIDDEN_LOGPROB = -9999.0  # stands for "not among the most likely"
_BYTES_PER_TOKEN = 3  # few texts have fewer
# What models write around a call of a tool, or in it: "<tool_call>", "[TOOL_CALLS]",
# "<function=look_up>", "<invoke name=", "<|python_tag|>", and the JSON of a call, such as
# {"name": ..., "arguments": {...}}.
_CALL_MARK = re.compile(
    r"tool_?calls?\b|<function|<invoke|python_tag|[\"'](arguments|parameters|args)[\"']\s*:", re.I
)
# How a server's counts show that it cuts prompts off: tokens of more bytes than any have, or one
# number of tokens for several long prompts whose lengths differ by a tenth and more.
_LONG_PROMPT, _MOST_BYTES, _SAME_COUNTS, _SPREAD = 2_000, 12, 3, 1.1
_MAX_OUTPUT = 2_000_000  # longer than any model generates; a larger count is a mistake


@value_class
class Counts:
    """The token counts of a response, read so that no cost is understated."""

    usage: Usage | None = None  # None if there are no valid counts
    contradict: bool = False  # whether they contradict each other


@value_class
class ApiAnswer:
    """A decoded response."""

    end: Ending  # whether it is an answer, and why it stopped
    text: str  # the answer
    counts: Counts  # tokens
    model: str  # the name of the model that answered
    tier: str | None = None  # the service tier that was used, or None
    # the answer's tokens with their probabilities, or None if it holds none
    logprobs: tuple[Position, ...] | None = None
    tool_calls: tuple[dict[str, Json], ...] = ()
    reasoning: str = ""  # what the model thought, in a field of its own
    billed: int | None = None  # nano-dollars that the server says it bills


class MalformedError(Exception):
    """A response that breaks its protocol; the message may hold parts of it."""


def read_body(content: bytes) -> Mapping[str, Json]:
    """Parse the body of a response; raises MalformedError if it is not a JSON object."""
    try:
        body = json.loads(content)
    except ValueError:
        raise MalformedError(f"{content[:_SHOWN]!r} is not JSON") from None
    except RecursionError:
        raise MalformedError(f"{content[:_SHOWN]!r}... is nested too deeply") from None
    if isinstance(body, list) and len(body) == 1:  # Google wraps errors so
        body = body[0]
    if not isinstance(body, dict):
        raise MalformedError(f"{content[:_SHOWN]!r} is not a JSON object")
    # one-api writes an error without content into every answer
    if isinstance(error := body.get("error"), dict) and not any(error.values()):
        body["error"] = None
    return body


def as_object(value: object) -> Mapping[str, Json]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> Sequence[Mapping[str, Json]]:
    """Return the objects of a list; none if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """Return the value if it is a text, else None."""
    return value if isinstance(value, str) else None


def as_count(value: object) -> int | None:
    """Return the value if it can be a number of tokens, also as a text or a float, else None."""
    if isinstance(value, str | float) and re.fullmatch(r"\d{1,12}(\.0*)?", str(value)):
        value = int(float(value))
    # No reply has more, such as a time stamp; and sums of counts are counts.
    return value if type(value) is int and 0 <= value < 10**12 else None  # True is none either


def spoken(content: object, *kinds: str) -> str | None:
    """Return the text that content holds: a text, or parts of some kinds, joined; None if none.

    A part of these kinds without a text makes all of it unreadable, and None.
    """
    if not isinstance(content, list):
        return as_text(content)
    texts = [as_text(part.get("text")) for part in objects_in(content) if part.get("type") in kinds]
    read = [part for part in texts if part is not None]
    return "".join(read) if read and len(read) == len(texts) else None


def openai_usage(usage: Mapping[str, Json]) -> Counts:
    """Read OpenAI's token counts: prompts include cached tokens, answers include reasoning.

    Not all servers count so: xAI's answers are without their reasoning, which only the total
    includes. So an answer has as many tokens as the largest reading says that the counts allow, and
    a prompt with fewer tokens than were read from a cache has these in addition. Some servers count
    chat completions by the names that responses have.
    """
    prefix = ("prompt", "completion") if "prompt_tokens" in usage else ("input", "output")
    sent, answered = (as_count(usage.get(f"{name}_tokens")) for name in prefix)
    total = as_count(usage.get("total_tokens"))
    if sent is None or (answered is None and total is None):
        return Counts()
    # Details stand in an object of their own, or beside the counts (DeepSeek, Moonshot, Perplexity,
    # LiteLLM for Claude).
    sides = (usage, *(as_object(usage.get(f"{name}_tokens_details")) for name in prefix))

    def detail(*names: str) -> int:
        return max(as_count(side.get(name)) or 0 for side in sides for name in names)

    cached = detail("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
    written = detail("cache_write_tokens", "cache_creation_input_tokens")
    reasoning, counted = detail("reasoning_tokens", "thinking_tokens"), answered or 0
    # Where more tokens were read from and written to the cache than the prompt has, the server
    # counts the prompt without them, as Anthropic's API does: they come on top.
    prompt = sent if cached + written <= sent else sent + cached + written
    rest = prompt + counted if total is None else total
    # Three readings of the answer's length: the count itself; what the total leaves beside the
    # prompt (the only place where xAI counts reasoning); and, where there is more reasoning than
    # answer, the two together, since the answer cannot include it. The largest is charged, so that
    # no cap is exceeded by a reading that was too low.
    output = max(counted, rest - prompt, counted + reasoning if reasoning > counted else 0)
    is_sum = answered is not None and rest == sent + answered
    return Counts(
        Usage(prompt, cached, written, output, min(reasoning, output)),
        contradict=not is_sum or prompt != sent or reasoning > counted,
    )


def body_cost(body: Mapping[str, Json]) -> int | None:
    """Return the nano-dollars that a server says it bills for a call, or None.

    They come with the usage as dollars, in a number or a text (OpenRouter; DeepInfra estimates
    them), as an object with their total (Perplexity), or as xAI's ticks, 10^10 a dollar; or beside
    it, or in the message, as dollars (Vercel). What the vendor bills the user's own key there
    (``is_byok``) comes on top, and may be all. A bill of nothing is none: servers write 0, too,
    where they know no price.

    Example:
        >>> body_cost({"usage": {"cost": 0.0003}})
        300000
        >>> body_cost({"usage": {}, "provider_metadata": {"gateway": {"cost": "0.006"}}})
        6000000
    """
    usage, choice = as_object(body.get("usage")), next(iter(objects_in(body.get("choices"))), {})
    beside = {**body, **as_object(choice.get("message"))}.get("provider_metadata")
    told = as_object(as_object(beside).get("gateway")).get("cost")
    stated = usage.get("cost") or told or usage.get("estimated_cost")
    ticks = usage.get("cost_in_usd_ticks")
    dollars = as_object(stated).get("total_cost", stated)
    total = bill(dollars if as_count(ticks) is None else float(str(ticks)) / 1e10)
    of_vendor = as_object(usage.get("cost_details")).get("upstream_inference_cost")
    is_byok = usage.get("is_byok") is True
    beside = bill(of_vendor) if is_byok else 0
    if is_byok and not stated and ticks is None:
        total = 0  # OpenRouter itself took nothing
    return None if total is None or beside is None else total + beside or None


def positions(tokens: object) -> tuple[Position, ...] | None:
    """Read log probabilities in the form of chat completions and responses; None if none."""
    read = [
        Position(chosen, tuple(filter(None, map(_token, objects_in(token.get("top_logprobs"))))))
        for token in objects_in(tokens)
        if (chosen := _token(token)) is not None
    ]
    return tuple(read) or None


def _token(value: Mapping[str, Json]) -> Token | None:
    word, logprob = as_text(value.get("token")), value.get("logprob")
    if word is None or not isinstance(logprob, int | float) or not logprob > _HIDDEN_LOGPROB:
        return None
    # Rounding may put the logarithm of a probability near 1 above 0.
    return Token(word, min(0.0, float(logprob)))


def charged_usage(request: Request, answer: ApiAnswer, bound: Usage, facts: ModelFacts) -> Usage:
    """Return the token counts to charge: those reported if they are possible, else an upper bound.

    A server may ignore the longest answer allowed, so longer ones are accepted up to the model's
    context; so are longer prompts, since a server may put a prompt of its own before them. Without
    valid counts, an answer has as many tokens as it may have, or as its text shows, whichever are
    more.
    """
    usage = answer.counts.usage
    longest = max(bound.output, facts.context or _MAX_OUTPUT)
    in_cap = max(bound.input, facts.context or _MAX_OUTPUT)
    written = answer.text + calls_text(answer.tool_calls)
    # A text takes at least one token, and so does every prompt: zeros mean that nobody counted.
    has_output = usage is not None and (usage.output > 0 or not written)
    if usage is not None and has_output and 0 < usage.input <= in_cap and usage.output <= longest:
        return usage
    n_tokens = len(written.encode(errors="replace")) // _BYTES_PER_TOKEN
    return replace(bound, output=max(bound.output, n_tokens))


def notices(
    request: Request, answer: ApiAnswer, bound: Usage, charged: Usage, also: str
) -> Iterator[str]:
    """Yield remarks for users about one answer; a run counts equal remarks.

    ``also`` is the first name under which the model that answered was asked.
    """
    if answer.counts.usage is None:
        yield "does not say how many tokens it used; the upper bound is charged"
    elif answer.counts.usage != charged:
        yield "names token counts that cannot be; the upper bound is charged"
    elif answer.counts.contradict:
        yield "names token counts that contradict each other; the largest reading is charged"
    if charged.output > bound.output:
        yield "generated more than max_tokens"
    if charged.input > bound.input:  # images, or a prompt that the server puts before ours
        what = "images than `image" if attachments(request) else "prompts than `overhead"
        yield f"took more tokens for {what}_tokens` states; raise it in its options"
    if answer.model and not is_same_model(request.model, answer.model):
        if also == request.model:
            yield f"was answered by {answer.model:.100}, which is not the name asked for"
        else:
            yield f"was answered by {answer.model:.100}, as {also} was: the two are one model"
    if request.top_logprobs is not None and not answer.logprobs:
        yield "gave no log probabilities although they were asked for"
    if (
        (response_format(request) or {"type": "text"})["type"] != "text"
        and answer.end.finish is Finish.STOP
        and not (answer.tool_calls or _is_json(answer.text))
    ):
        yield "answered without regard to the JSON schema"
    names = [str(tool.get("name")) for tool in request.tools if not answer.tool_calls]
    if _CALL_MARK.search(answer.text) and any(name in answer.text for name in names):
        yield (
            "wrote a call of a tool as text, which is no call; start its server with a parser of "
            "tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser)"
        )
    if answer.end.finish is Finish.LENGTH and answer.end.problem:
        yield answer.end.problem.removeprefix("it ")
    elif answer.end.finish is Finish.LENGTH and request.params.keys().isdisjoint(MAX_TOKENS):
        yield "was cut off at default_max_tokens; raise it, or set max_tokens"


class PromptCounts:
    """Tells by one model's counts whether its server cuts long prompts off without a word."""

    def __init__(self) -> None:
        self._most = 0  # tokens of a prompt
        self._lengths: list[int] = []  # of the prompts that had as many, in bytes

    def shows_cut(self, request: Request, tokens: int) -> bool:
        """Note the tokens of a prompt; return whether it was probably cut off."""
        # A server that cuts long prompts off at its context counts the same number of tokens for
        # all of them, or fewer tokens than so many bytes can have. A run of white space counts as
        # one byte here, since a tokenizer may write all of it as one token.
        n_bytes = sum(len(" ".join(t.split()).encode(errors="replace")) for t in request.texts)
        if n_bytes < _LONG_PROMPT or n_bytes > _MOST_BYTES * tokens:
            return n_bytes >= _LONG_PROMPT
        lengths = self._lengths
        # the count is no limit if a prompt has more tokens, or fewer although it is longer
        if tokens > self._most or (tokens < self._most and n_bytes >= min(lengths, default=0)):
            lengths.clear()
        # From here on ``_most`` is the largest count seen, and ``_lengths`` are the bytes of the
        # prompts that had just that count. Several of clearly different lengths are what a limit
        # looks like.
        self._most = max(self._most, tokens)
        if tokens == self._most:
            lengths.append(n_bytes)
        return len(lengths) >= _SAME_COUNTS and max(lengths) >= _SPREAD * min(lengths)


@lru_cache(maxsize=1000)
def is_same_model(asked: str, answered: str) -> bool:
    """Return True if a server's name for a model may stand for the one that was asked for.

    Folders in front of a name, and dates and the like behind it, are left out of account.

    Example:
        >>> is_same_model("openai/gpt-6-luna", "gpt-6-luna-2026-08-01")
        True
        >>> is_same_model("grok-4", "grok-4.3")
        False
    """
    asked, answered = (name.rstrip("/").rpartition("/")[2].lower() for name in (asked, answered))
    # Either may be the longer one: users write a dated name and get the undated one back, too.
    short, long = sorted((asked, answered), key=len)
    return long.startswith(short) and _DATED.fullmatch(long[len(short) :]) is not None


def _is_json(content: str) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol of an API: where its requests go, and how bodies are written and read."""

    path: str  # of its requests, below the base address; may hold "{model}"
    lacks: frozenset[str]  # names of usual sampling parameters that it has no field for
    # writes the body of a request, given the longest answer in tokens; without "model"
    encode: Callable[[Request, ModelFacts, int], dict[str, Json]]
    # reads the body of a response, given further reasons to stop
    decode: Callable[[Mapping[str, Json], Mapping[str, Finish]], ApiAnswer]
    headers: Mapping[str, str] = field(default_factory=dict)  # further ones, by lower-case name
    # marks what all examples begin with, where a cache bills what is written
    mark: Callable[[dict[str, Json], Request], None] | None = None
    renames_limit: bool = False  # the longest answer goes by either name of ``MAX_TOKENS``

    def refused(self, facts: ModelFacts) -> frozenset[str]:
        """Return the names of the parameters that are never sent to a model."""
        return self.lacks | _NEVER | frozenset(facts.without or ())

    def sent(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return a body without the prompt, for the record."""
        return {name: value for name, value in body.items() if name not in _PROMPT_FIELDS}


def chat_messages(
    request: Request, write: Callable[[Part], Part] = lambda part: part
) -> list[dict[str, Json]]:
    """Return a request's chat messages; a plain prompt is one message of the user.

    ``write`` returns a part of a message as a protocol has it.
    """
    if request.text is not None:
        return [{"role": "user", "content": request.text}]
    messages: list[dict[str, Json]] = []
    for message in request.messages:
        content = given if isinstance(given := message.content, str) else [*map(write, given)]
        messages.append({"role": message.role, "content": content})
        if message.tool_calls:
            messages[-1]["tool_calls"] = [*map(_written, message.tool_calls)]
        if message.tool_call_id is not None:
            messages[-1]["tool_call_id"] = message.tool_call_id
    return messages


def marked(content: Json, head: str, mark: Mapping[str, Json], kind: str = "text") -> Json:
    """Return a text in which the end of ``head``, its beginning, is marked to be cached.

    A block of white space alone is refused, and tokens begin with it rather than end. Of several
    blocks the first is marked, if it is a text. ``kind`` is the type of a block.
    """
    if isinstance(content, list):
        first = marked(as_object(content[0]).get("text"), head, mark, kind)
        return [*first, *content[1:]] if isinstance(first, list) else content
    n = len(head.rstrip())
    if not n or not isinstance(content, str):
        return content
    # A block of what is left would be blank, and refused: the whole text is marked instead.
    if not content[n:].strip():
        n = len(content)
    blocks: list[Json] = [{"type": kind, "text": content[:n], **mark}]
    return [*blocks, {"type": kind, "text": content[n:]}] if content[n:] else blocks


def _written(call: Mapping[str, Json]) -> dict[str, Json]:
    """Return a call with its arguments as a JSON text."""
    function = as_object(call["function"])
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def own_params(request: Request) -> dict[str, Json]:
    """Return the parameters that keep their names: all but the longest answer and its form."""
    others = (*MAX_TOKENS, "response_format")
    return {name: value for name, value in request.params.items() if name not in others}
