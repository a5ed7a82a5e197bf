"""Ask a judge for a verdict that carries a mark, and read it out of its reply.

A verdict is a JSON object with a mark that is different for every prompt: the last object of the
reply that carries it is the judge's. Whoever wrote the answer being judged cannot know the mark, so
a verdict in that answer, in whatever disguise, is none when the judge repeats it.

The mark is the guard, not JSON's grammar: explanations hold LaTeX, quotes and commas that break it.
Then the values are those right after the mark, or those that end the object. A judge that quotes an
answer without escaping it may so end its own object early: where two endings say different things,
there is no verdict.

A judge may also answer by one token alone, weighted by the probabilities of those it could have
written; then the whole reply is the verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import takewhile
from json import JSONDecoder
from typing import Any, TypeAlias

from bestarm_agent.domain.values import Finish, Json, Reply

TOP_LOGPROBS = 20  # the most that OpenAI's API gives

# Bounds on hostile replies: each brace tried costs a decoding attempt, so a reply of braces alone
# would take quadratic time. The objects asked for are short and come last, within these bounds.
_MAX_CHARS = 200_000
_MAX_BRACES = 500
# A scale from 0 to 100 is listed value by value, so that servers with constrained decoding can
# write no other; longer lists are left to the check of the range.
_MAX_CHOICES = 101
# What models put around an answer: **B**, "B", B., [[B]] and code marks.
_AROUND = " \t\r\n*_`\"'.[]"
# "7", "7.5", "7/10", "7 out of 10", "Rating: 7".
_NUMBER = re.compile(
    r"(?:[a-z ]{1,20}: ?)?([+-]?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d+(?:\.\d+)?))?", re.I
)


class UnreadableError(ValueError):
    """A judge's reply holds no verdict; the message says why."""


class NumberScale:
    """Numbers from the worst (0) to the best (1); the best may be the lower one.

    Attributes:
        schema: JSON schema of a number on the scale.
        words: the values that are allowed, as a prompt says them.

    Example:
        >>> NumberScale(1, 5).value("4/5"), NumberScale(5, 1).value(1)
        (0.75, 1.0)
    """

    def __init__(self, worst: float, best: float, *, whole: bool = True) -> None:
        self._worst, self._best, self._whole = worst, best, whole
        low, high = sorted((worst, best))
        kind = "whole number" if whole else "number"
        self.words = f"a {kind} from {worst:g} (worst) to {best:g} (best)"
        self.schema: Mapping[str, Json] = {"type": "integer" if whole else "number"}
        choices = range(math.ceil(low), math.floor(high) + 1)
        if whole and len(choices) <= _MAX_CHOICES:
            self.schema = {"type": "integer", "enum": list(choices)}

    def value(self, answer: object) -> float:
        """Map a number, or a text such as "7" or "7/10", to [0, 1].

        Raises UnreadableError if it is not on the scale.
        """
        number = self._number(answer)
        low, high = sorted((self._worst, self._best))
        if not low <= number <= high:  # NaN fails this too
            raise UnreadableError(f"{number:g} is not on the scale from {low:g} to {high:g}")
        if self._whole and not number.is_integer():
            raise UnreadableError(f"{number:g} is not a whole number")
        return (number - self._worst) / (self._best - self._worst)

    def _number(self, answer: object) -> float:
        if isinstance(answer, int | float) and not isinstance(answer, bool):
            return float(answer)
        written = _NUMBER.fullmatch(answer.strip(_AROUND)) if isinstance(answer, str) else None
        if written is None:
            raise UnreadableError(f"{_quoted(answer)} is not a number")
        # "4/5" on a scale to 10 is not a 4 of 10: the judge used a scale of its own.
        if written[2] is not None and float(written[2]) != max(self._worst, self._best):
            raise UnreadableError(f"{_quoted(answer)} is on another scale")
        return float(written[1])


class LabelScale:
    """Labels with their worth: the lowest becomes 0, the highest 1. Attributes as ``NumberScale``.

    Example:
        >>> LabelScale({"wrong": 0, "partly": 1, "right": 2}).value("Partly")
        0.5
    """

    def __init__(self, labels: Mapping[str, float]) -> None:
        low, high = min(labels.values()), max(labels.values())
        self._worth = {folded(k): (v - low) / (high - low) for k, v in labels.items()}
        self.words = "one of " + ", ".join(f'"{label}"' for label in labels)
        self.schema: Mapping[str, Json] = {"type": "string", "enum": list(labels)}

    def value(self, answer: object) -> float:
        """Return the worth of a label, in any case, with spaces for hyphens, or JSON's true."""
        plain = {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else str(answer)
        for text in (str(answer), plain.strip(_AROUND)):
            if (worth := self._worth.get(folded(text))) is not None:
                return worth
        raise UnreadableError(f"{_quoted(answer)} is not one of the verdicts asked for")


Scale: TypeAlias = NumberScale | LabelScale


def folded(label: str) -> str:
    """Return one text for labels that differ in case, spaces or hyphens only."""
    return re.sub(r"[\s_-]+", "-", label.strip().casefold())


@dataclass(frozen=True, slots=True)
class ReadVerdict:
    """A judge's words, by key, and their values in [0, 1]."""

    said: Mapping[str, object]
    values: Mapping[str, float]
    why: str  # its explanation, "" without one


class VerdictForm:
    """The form in which a judge is asked for verdicts: a mark, an explanation, a value per key.

    Attributes:
        schema: JSON schema of the object, the same for every mark: servers compile each new one.

    Example:
        >>> form = VerdictForm({"verdict": NumberScale(1, 5)}, explain=False)
        >>> print(form.request("d17785"))
        Reply with one JSON object and nothing else, with this very mark:
        {"mark": "d17785", "verdict": <a whole number from 1 (worst) to 5 (best)>}
        >>> form.read(Reply('Not 5: {"mark": "d17785", "verdict": 4}'), "d17785").values
        {'verdict': 0.75}
    """

    def __init__(self, scales: Mapping[str, Scale], *, explain: bool) -> None:
        self._scales = scales
        self._explain = explain
        texts = ("mark", "explanation") if explain else ("mark",)
        properties: dict[str, Json] = {name: {"type": "string"} for name in texts}
        properties |= {key: scale.schema for key, scale in scales.items()}
        self.schema: Mapping[str, Json] = {
            "title": "verdict",
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def request(self, mark: str) -> str:
        """Return the end of a prompt, which asks for the verdict."""
        why = ['"explanation": "<one to three sentences>"'] if self._explain else []
        values = [f'"{key}": <{scale.words}>' for key, scale in self._scales.items()]
        parts = ", ".join([f'"mark": "{mark}"', *why, *values])
        return f"Reply with one JSON object and nothing else, with this very mark:\n{{{parts}}}"

    def read(self, reply: Reply, mark: str) -> ReadVerdict:
        """Return the verdict of a reply to a prompt with this mark.

        A reply played back was given to another prompt: it may be an object without a mark.
        Raises UnreadableError if there is no verdict, or one that is not on its scale.
        """
        # The reply is read by its mark. Only a reply that was recorded elsewhere may do without:
        # the mark is drawn from this study's prompt, which that judge never saw.
        text = answer_text(reply)
        if reply.finish is Finish.LENGTH:  # perhaps within an explanation that quotes a verdict
            raise UnreadableError("the judge's reply was cut off; raise its `max_tokens`")
        verdict = _as_marked(text, mark, set(self._scales), _last_object(text, mark))
        if verdict is None and reply.recorded:
            verdict = _whole_object(text)
        if verdict is None:
            raise UnreadableError("the judge's reply holds no verdict with its mark")
        if missing := [key for key in self._scales if key not in verdict]:
            raise UnreadableError(f"the judge's verdict lacks {missing[0]!r}")
        answers = {key: verdict[key] for key in self._scales}
        values = {key: scale.value(answers[key]) for key, scale in self._scales.items()}
        return ReadVerdict(answers, values, str(verdict.get("explanation", "")))


def answer_text(reply: Reply) -> str:
    """Return what a judge answered, without its reasoning; UnreadableError if that is nothing."""
    if reply.finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        raise UnreadableError("the judge refused to answer")
    text = reply.text.strip("\ufeff \t\r\n")
    if not text:
        why = "gives no verdict after its reasoning" if reply.reasoning else "is empty"
        raise UnreadableError(f"the judge's reply {why}")
    if len(text) > _MAX_CHARS:
        raise UnreadableError(f"the judge's reply is longer than {_MAX_CHARS:,} characters")
    return text


def weighted_worth(reply: Reply, worth: Mapping[str, float]) -> tuple[float, str]:
    """Return the mean worth of the tokens by their probabilities, and the token written.

    Where that token stands last in the reply, its alternatives count by their probabilities;
    without log probabilities it counts alone. ``worth`` is in [0, 1], by token without white space.
    Raises UnreadableError if the reply is none of the tokens.

    Example:
        >>> from bestarm_agent.domain.values import Position, Token
        >>> both = (Token("m", math.log(0.6)), Token("M", math.log(0.2)))
        >>> value, said = weighted_worth(
        ...     Reply("m", logprobs=(Position(both[0], both),)), {"m": 1.0, "M": 0.0}
        ... )
        >>> round(value, 6), said
        (0.75, 'm')
    """
    written = answer_text(reply).strip(_AROUND)
    if written not in worth:
        raise UnreadableError(f"{written[:60]!r} is not one of the scores or tokens asked for")
    # The scored token is searched, since reasoning or quotes may precede it. A model whose
    # tokenizer splits it has no position with the whole token; then no single distribution covers
    # the scale.
    positions = [position for position in reply.logprobs if position.chosen.text.strip() == written]
    if not positions:
        if reply.logprobs:
            raise UnreadableError(f"{written!r} is not one token of the judge's model")
        return worth[written], written
    # Several tokens may mean one answer ("5", " 5"): their probabilities add up. What lies on
    # tokens outside the scale is left out, and the rest is made to sum to 1 (G-Eval, equation 1).
    mass = dict.fromkeys(worth, 0.0)
    for token in positions[-1].alternatives or (positions[-1].chosen,):
        if token.text.strip() in mass:
            mass[token.text.strip()] += math.exp(token.logprob)
    total = sum(mass.values())
    # exp() of a very low log probability is 0.0: the weights say nothing, the token written counts.
    if total <= 0:
        return worth[written], written
    return sum(worth[token] * share for token, share in mass.items()) / total, written


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object with keys in lower case; an empty one if it says a key twice."""
    # A key given twice is how a quoted answer would overrule a verdict before it (JSON decoders let
    # the last one win), so such an object counts as empty.
    verdict = {key.strip().lower(): value for key, value in pairs}
    return verdict if len(verdict) == len(pairs) else {}


# strict=False: explanations hold line breaks and tabs that JSON wants escaped.
_DECODER = JSONDecoder(strict=False, object_pairs_hook=_object)


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON object that begins at a brace, and its end; (None, 0) if there is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, 0


def _last_object(text: str, mark: str) -> Mapping[str, object] | None:
    """Return the last complete JSON object of a text that carries the mark."""
    # From the end, because the last object is the judge's own; what it quotes comes before.
    start = len(text)
    for _ in range(_MAX_BRACES):
        start = text.rfind("{", 0, start)
        if start < 0:
            break
        value, _ = _decoded(text, start)
        if value and str(value.get("mark", "")).strip().lower() == mark:
            return value  # type: ignore[no-any-return] # it begins with a brace
    return None


# What the fallback reads, where the object is not JSON. A pair is a quoted key, then a quoted value
# of at most 60 characters or a bare number or word, then perhaps a comment: "score": 4 // good.
# Long values are no verdicts, and the bounds on every repetition keep the search linear. _BEGINNING
# is the pairs right behind the mark, `, "score": 4, "explanation": ...`; _ENDING those that close
# the object, `..., "score": 4}`.
_QUOTE = '["\u201c\u201d]'
_PAIR = rf"""
    {_QUOTE}\s*([\w-]{{1,60}})\s*{_QUOTE} \s*:\s*
    (?: {_QUOTE}([^"\u201c\u201d\n]{{0,60}}){_QUOTE} | ([+-]?\d[\d./ ]{{0,20}}?|\w[\w-]{{0,30}}) )
    \s*(?://[^\n]{{0,200}})?\s*
"""
_PAIRS = re.compile(rf"{_PAIR}(?=,|\Z)", re.VERBOSE)  # up to the end: of "10" not the 1
_BEGINNING = re.compile(rf"\s*,\s*({_PAIR}(?:,\s*{_PAIR}){{0,40}}),", re.VERBOSE)
_ENDING = re.compile(rf",\s*({_PAIR}(?:,\s*{_PAIR}){{0,40}}),?\s*\}}", re.VERBOSE)


def _as_marked(
    text: str, mark: str, keys: set[str], json_verdict: Mapping[str, object] | None
) -> Mapping[str, object] | None:
    """Return the last object with the mark if it is not JSON, else ``json_verdict``; None in doubt.

    What follows the mark must say the values of ``keys`` right after it, or in each ending of an
    object that is not JSON by itself.
    """
    marked = rf"\{{\s*{_QUOTE}mark{_QUOTE}\s*:\s*{_QUOTE}\s*{re.escape(mark)}\s*{_QUOTE}"
    marks = [*re.finditer(marked, text, re.IGNORECASE)]
    if not marks:
        return json_verdict
    # Three cases. (1) The object with the last mark is JSON: it counts, unless the text behind it
    # ends another object with different values. That is how it looks when a judge quotes an answer
    # without escaping and the quotation closes the judge's object early. (2) It is not JSON, and
    # the values stand right behind the mark, before anything that was quoted: they count. (3) They
    # stand at the end: all endings must say the same, since any of them may be part of a quotation.
    value, end = _decoded(text, marks[-1].start())
    rest = text[end or marks[-1].end() :]
    candidates = [_pairs(ending[1]) for ending in _ENDING.finditer(_without_objects(rest))]
    endings = [{key: ending[key] for key in keys} for ending in candidates if keys <= ending.keys()]
    if value is not None:
        own = {key: str(value.get(key)) for key in keys}
        return json_verdict if all(ending == own for ending in endings) else None
    if (start := _BEGINNING.match(rest)) and keys <= (first := _pairs(start[1], keys)).keys():
        return first
    if not endings or any(ending != endings[0] for ending in endings):
        return None if endings else json_verdict
    *_, last = _ENDING.finditer(rest)
    why = re.sub(r"^\W*explanation\W*", "", rest[: last.start()], flags=re.IGNORECASE)
    return {**endings[0], "explanation": why.rstrip('" ')}


def _pairs(text: str, first: Collection[str] = ()) -> dict[str, str]:
    """Return keys and values; only those before any key but the ``first``, if these are given."""
    pairs = [(key.lower(), (quoted or bare).strip()) for key, quoted, bare in _PAIRS.findall(text)]
    return dict(takewhile(lambda pair: pair[0] in first, pairs) if first else pairs)


def _without_objects(text: str) -> str:
    """Return a text without the JSON objects in it."""
    # Complete objects behind the mark are quotations or examples; their last pairs must not be
    # taken for the ending of the judge's own object.
    start = 0
    for _ in range(_MAX_BRACES):
        if (start := text.find("{", start)) < 0:
            break
        value, end = _decoded(text, start)
        text, start = (text, start + 1) if value is None else (text[:start] + text[end:], start)
    return text


def _whole_object(text: str) -> Mapping[str, object] | None:
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _quoted(answer: object) -> str:
    return repr(answer)[:60]
