r"""Find out which parameters of a request a server's refusal names, in any vendor's words.

No list says which parameters there are: those that were sent are looked for in the refusal, by the
names that the wire gave them. What must be listed are the words by which servers say that a model
does not take something, and those by which they say that a value is out of range, which is the
study's mistake and teaches nothing about the model.

Seen: OpenAI and Azure ``{"param": "temperature", "code": "unsupported_value"}``, Anthropic
"`temperature` is deprecated for this model.", xAI "Argument not supported on this model:
presencePenalty", Google "Unknown name \"seed\": Cannot find field." and "Penalty is not enabled
for this model", Mistral and others that check by pydantic ``{"type": "extra_forbidden", "loc":
["body", "seed"], "msg": ...}``, Groq "property 'logit_bias' is unsupported", Moonshot "invalid
temperature: only 1 is allowed for this model", OpenRouter with the vendor's refusal as a text in
``metadata.raw``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bestarm_agent.domain.values import Json

# "unsupported_value", "Extra inputs are not permitted", "is not supported with this model", "does
# not allow", "no longer accepted", "Supported values are: 1", "only 1 is allowed", "must be 1",
# "invalid for this model", "remove this parameter".
_REFUSES = re.compile(
    r"unsupported|unavailable|unrecogni[sz]ed|unknown|unexpected|deprecated|disallowed|extra.?(forbidden|inputs|fields)"
    r"|obsolete|immutable|no support|不支持|\b(was|were|been) (removed|retired)"
    r"|(\bnot|n't|no longer|cannot|never)\b( \w+){0,2} (support|permit|allow|accept|enable|avail"
    r"|recogni|compatib|known|valid|find|set\b|chang|specif|us(ed|able)|disabl|configur|modif|implement|applic)\w*"
    r"|supported (values|efforts|levels)|\bonly\b.{1,40}\b(supported|allowed|accepted|permitted)"
    r"|(must|may|can|has to|(required|expected)( \w+)? to) (only )?(be |equal )(set to )?"
    r"(1(\.0)?|the default|unset|omitted|none)\b"
    r"|(must be \S+|invalid) (for|with) (this|the) model|\bis fixed\b"
    r"|(remove|omit|without) (the|this) (parameter|field|argument)",
    re.IGNORECASE,
)
# What is said of a value that other values of the same parameter would not share, or of two
# parameters that exclude each other: "must be between 0 and 2", "less than 1", "expected an
# integer", "temperature and top_p cannot both be specified". A sentence that holds one of these is
# about the value given, even where it also holds words of refusal.
_OF_VALUE = re.compile(
    r"\b(range|between|at (least|most)|(greater|less|larger|smaller|more|fewer|higher|lower) than"
    r"|above|below|maximum|minimum|exceeds?|too (large|small|high|low|long)|both|together)\b|[<>]= "
    r"|must be an? |should be an? |not of type|valid (integer|number)|expected an? ",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"(?<=[.!?;])\s+|\n|\\n")  # "\n" is also escaped, in JSON as a text
_PLACES = ("param", "loc", "field", "parameter")  # keys under which an error names the parameter
# what a refusal may call a parameter besides the names by which it was sent
_LOOSE_NAMES: Mapping[str, str] = {
    "response_schema": r"structured outputs?|json mode|json.?schema|response formats?",
    "effort": r"reasoning(.effort)?|thinking(.(level|budget))?",
    "top_logprobs": r"log.?prob(s|abilit(y|ies))?",
    "presence_penalty": r"penalt(y|ies)",
    "frequency_penalty": r"penalt(y|ies)",
}


def named_in(refusal: object, sent: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return which parameters the body of a refusal says that the model does not take.

    Args:
        refusal: the body, JSON or text.
        sent: names on the wire, such as "reasoning.effort", by a parameter's name in requests.

    Example:
        >>> refusal = {"error": {"message": "Model m does not support parameter presencePenalty."}}
        >>> sent = {one: frozenset([one]) for one in ("presence_penalty", "temperature")}
        >>> sorted(named_in(refusal, sent))
        ['presence_penalty']
        >>> named_in("temperature: must be between 0 and 1", sent)
        frozenset()
    """
    refused: set[str] = set()
    for sentence in _sentences(refusal):
        # Sentence by sentence: the name of the parameter must stand beside the words of refusal,
        # since a body may also repeat parts of the request, with names that it does not refuse.
        if _REFUSES.search(sentence) and not _OF_VALUE.search(sentence):
            # "presence_penalty", "presencePenalty", "presence penalty"
            spelt = {
                name: "|".join(re.escape(pattern).replace("_", "[_ -]?") for pattern in names)
                for name, names in sent.items()
            }
            loose = {name: pattern for name, pattern in _LOOSE_NAMES.items() if name in sent}
            # The looser names count only where no exact one is found: "reasoning" is also a common
            # word.
            refused |= _among(spelt, sentence) or _among(loose, sentence)
    return frozenset(refused)


def _among(patterns: Mapping[str, str], sentence: str) -> set[str]:
    """Return those whose pattern a sentence holds, not as a part of a longer name."""
    return {
        name
        for name, pattern in patterns.items()
        if re.search(rf"(?<![A-Za-z0-9_])({pattern})(?![A-Za-z0-9_])", sentence, re.IGNORECASE)
    }


def _sentences(body: object) -> Iterator[str]:
    """Yield the sentences of a body; where an error names a parameter beside its words, as one."""
    match body:
        case str():
            yield from _SENTENCES.split(body)
        case list():
            for value in body:
                yield from _sentences(value)
        case dict():
            # the parameter named beside the words is meant, whether or not these name it
            place = " ".join(map(_flat, filter(None, map(body.get, _PLACES))))
            for key, value in body.items():
                if key not in _PLACES:
                    yield from (f"{place} {sentence}" for sentence in _sentences(value))


def _flat(place: Json) -> str:
    return ".".join(map(_flat, place)) if isinstance(place, list) else str(place)


def names_of(body: Mapping[str, Json], less: Mapping[str, Json]) -> frozenset[str]:
    """Return the names of what a ``body`` holds and the body without one parameter does not.

    Example:
        >>> sorted(names_of({"a": 1, "reasoning": {"effort": "low"}}, {"a": 1}))
        ['effort', 'reasoning', 'reasoning.effort']
    """
    paths = frozenset(_paths(body)) - frozenset(_paths(less))
    parts = frozenset(part for path in paths for part in path.split("."))
    return (paths | parts) - _COMMON


# parts of paths that say nothing, since refusals use them as words
_COMMON = frozenset({"type", "text", "include", "message", "output_text", "format", "name"})


def _paths(body: Mapping[str, Json]) -> Iterator[str]:
    for key, value in body.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{inner}" for inner in value)
        if key == "include" and isinstance(value, list):
            yield from map(str, value)
