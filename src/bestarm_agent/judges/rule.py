"""The base of rules: select a part of the reply, extract an answer, compare it."""

from __future__ import annotations

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

import regex
from pydantic import AfterValidator, Field

from bestarm_agent.domain.values import Example, Reply, Score, digest
from bestarm_agent.errors import ConfigError, JudgeError
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeOptions,
    excerpt,
    judge_failed,
    references,
    refuse_declined,
    unparsable,
)

Step: TypeAlias = Literal["unicode", "case", "punctuation", "whitespace", "strip"]

# What may be wrapped around an answer without being part of it. Opening and closing differ: "¿" and
# "¡" only open, while a point or a comma only closes (".5" must keep its point).
_QUOTES = "\"'`´“”‘’„‚«»‹›「」『』"
_OPENING = f"{_QUOTES}*¿¡: \t\r\n"
_CLOSING = f"{_QUOTES}*.,;:!?…。 \t\r\n"
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‚´", "'"),
        **dict.fromkeys("“”„", '"'),
        **dict.fromkeys("‐‑‒–—−", "-"),
        # invisible: soft hyphens, spaces without width, marks of the direction of writing
        **dict.fromkeys("\u00ad\u200b\u2060\ufeff\u200e\u200f", ""),
    }
)
# Patterns of what stands before an answer ("Antwort: 42"), in languages with spaces between words
# and without.
ANSWER = (
    "answer|ans|antwort|respuesta|réponse|risposta|resposta|antwoord|svar|odpowiedź|cevap|ответ"
)
ANSWER_UNSPACED = "答案|答え|回答|正解|정답"
_NEARLY_ONE = 1 - 1e-9  # means of precisions are rounded
# "서울은" is the noun "서울" with a topic particle: `contains` must find the noun, though no word
# boundary stands behind it; likewise the "France" of "France's".
_PARTICLE = regex.compile(  # of Korean, written without a space after a noun
    "(?<=[가-힣])(?:은|는|이|가|을|를|의|에|에서|에게|으로|로|와|과|도|만|까지|부터|보다|처럼|이나|나|이라고|라고|이라는|라는"
    "|입니다|이에요|예요|이다|다|이며|이고|였습니다|이었습니다|이었다|였다|인)+(?!\\w)|'s(?!\\w)"
)
# Unicode's word boundaries (UAX 29), but none between a sign and its number: -5 holds no 5.
_WORD_EDGE = regex.compile(r"\b(?<!(?<!\w)-(?=\d))", regex.WORD)
# Italics or bold by "_". As in Markdown it stands around words, and not within "snake_case".
_ITALICS = re.compile(r"(?<!\w)(_{1,3})(?![\s_])((?:[^_\n]|(?<!\s)_+(?=[^\W_]))+)(?<!\s)\1(?!\w)")


def unicode_form(text: str) -> str:
    """Return NFKC text with plain quotes and hyphens and without invisible characters."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)


_STEPS: dict[Step, Callable[[str], str]] = {
    "unicode": unicode_form,
    "case": str.casefold,
    "punctuation": lambda text: text.lstrip(_OPENING).rstrip(_CLOSING) or text,
    "whitespace": lambda text: " ".join(text.split()),
    "strip": str.strip,
}


# One order for every set of steps, so that two ways to write a set have one digest. Typographic
# forms become plain first, since the later steps look for plain ones only.
_IN_ORDER = AfterValidator(lambda steps: tuple(step for step in _STEPS if step in steps))
Normalisation: TypeAlias = Annotated[tuple[Step, ...], _IN_ORDER]
"""Steps of normalisation, always applied in this order.

``unicode``: compatibility forms (NFKC), typographic quotes and dashes, invisible characters.
``case``: case folding. ``punctuation``: quotes, stars and sentence marks around the text, unless
nothing would be left.
``whitespace``: runs of white space become one space. ``strip``: none around the text.
"""

STANDARD: tuple[Step, ...] = ("unicode", "case", "punctuation", "whitespace")


def normaliser(steps: Iterable[Step]) -> Callable[[str], str]:
    """Return the function that applies these steps.

    Example:
        >>> normaliser(["unicode", "case", "punctuation", "whitespace"])("**New\u00a0 York**.")
        'new york'
    """
    functions = [_STEPS[step] for step in steps]

    def normalise(text: str) -> str:
        for function in functions:
            text = function(text)
        return text

    return normalise


def clipped(text: str, limit: int) -> str:
    """Keep at most ``limit`` characters: the beginning and the end, on separate lines."""
    if len(text) <= limit:
        return text
    # Answers stand at the beginning or at the end; the middle of a long reply is what it can spare.
    half = limit // 2
    return f"{text[:half]}\n{text[len(text) - half :]}"


def contains(text: str, part: str, *, words: bool) -> bool:
    """Return whether ``part`` occurs in ``text``; with ``words`` as whole words.

    Word boundaries are Unicode's (UAX 29): "46" is not a word of "46.5"; any Chinese character is
    one. A Korean word may be followed by its particle. An empty ``part`` does not occur.
    """
    return next(occurrences(text, part, words=words), None) is not None


def occurrences(text: str, part: str, *, words: bool) -> Iterator[int]:
    """Yield where ``part`` occurs in ``text``, as ``contains`` says, without overlaps."""

    def is_edge(index: int) -> bool:
        return index in (0, len(text)) or _WORD_EDGE.match(text, index) is not None

    start = text.find(part) if part else -1
    while start >= 0:
        end = start + len(part)
        is_whole = not words or (is_edge(start) and (is_edge(end) or _PARTICLE.match(text, end)))
        if is_whole:
            yield start
        start = text.find(part, end if is_whole else start + 1)


class DoubtError(ValueError):
    """A text that can be read in several ways: `check_targets` names such targets."""


class RuleOptions(JudgeOptions):
    """Options of all rules."""

    # read only what follows the last such marker ("Answer:"), in any case; None: all
    after: str | None = Field(None, min_length=1, pattern=r"\S")
    # whether a reply without the marker is unparsable; else all of it is read
    after_required: bool = True
    # of a longer reply only the beginning and the end are read
    max_chars: int = Field(100_000, ge=100, le=10_000_000)


class ShortRuleOptions(RuleOptions):
    """Options of rules that take longer for each character."""

    max_chars: int = Field(20_000, ge=100, le=10_000_000)


RuleOptionsT = TypeVar("RuleOptionsT", bound=RuleOptions)
AnswerT = TypeVar("AnswerT")


class RuleJudge(Judge[RuleOptionsT], Generic[RuleOptionsT, AnswerT]):
    """Scores a reply by a rule, without a call.

    A reply that was refused or filtered, or in which the rule finds no answer, is the candidate's
    failure. A reply cut off at the token limit is scored like any other.
    """

    needs_reference = True
    recognises: bool = False  # whether each target must score 1 if it is the reply

    def __init__(self, name: str, options: RuleOptionsT) -> None:
        super().__init__(name, options)
        # Its words and marks may be set in bold one by one ("**Answer**: B").
        marks = re.findall(r"\w+|[^\w\s]+", (options.after or "").replace("：", ":"))
        pattern = r"[\s*_`]*".join(map(re.escape, marks)).replace(":", "[:：]")
        self._marker = re.compile(pattern, re.IGNORECASE)
        self._normalise = normaliser(getattr(options, "normalise", ()))
        # what follows "<answer>" ends with the tag that closes it
        tag = re.fullmatch(r"\s*<(\w+)>\s*", options.after or "")
        self._end = f"</{tag[1]}>" if tag else ""
        self.digest = digest([self.digest, self._end]) if tag else self.digest

    def check(self, example: Example) -> None:
        """Raise ConfigError if ``example`` has no reference that this rule can compare with."""
        super().check(example)
        for reference in references(example) if self.needs_reference else ():
            try:
                self._target(reference, example)
                # A target with two readings is no error here: `check_targets` reports those all at
                # once, and lets a few of them pass.
                why = "" if reference.strip() else "it is blank; correct the dataset"
            except DoubtError:
                why = ""
            except ValueError as error:
                why = str(error)
            if why:
                raise ConfigError(self._incomparable(reference, example, why))

    def unrecognised(self, example: Example) -> str:
        """Say why a target, given as the reply after the marker, does not score 1."""
        for target in self._own_replies(example) if self.recognises else ():
            try:
                value = self.scored(example, Reply(f"{self.options.after or ''}{target}")).value
                why = f"the target {excerpt(target)!r} itself scores {value:.2g}"
            except JudgeError as error:
                value, why = 0.0, str(error)
            if value < _NEARLY_ONE:
                return f"by `{self.name}`, {why}"
        return ""

    def _own_replies(self, example: Example) -> Sequence[str]:
        """Return replies that are right by what the targets of ``example`` say."""
        return references(example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply; most rules return 0 or 1.

        Raises JudgeError with blame CANDIDATE if the reply was refused or holds no answer, with
        blame JUDGE if the example cannot be scored by this rule.
        """
        return self.scored(example, reply)

    def scored(self, example: Example, reply: Reply) -> Score:
        """Score one reply, as ``score``; by a rule that calls nobody it takes no waiting."""
        refuse_declined(reply)
        if self.needs_reference and example.reference is None:
            raise judge_failed(
                f"example `{example.id}` has no reference answer for judge `{self.name}`"
            )
        text = clipped(reply.said, self.options.max_chars)
        if self.options.after is not None:
            text = self._after_marker(text, reply.reasoning)
        answer = self._extract(text, example)
        return Score(value=float(self._agrees(answer, example)), answer=excerpt(self._text(answer)))

    @abstractmethod
    def _extract(self, text: str, example: Example) -> AnswerT:
        """Extract the answer from the selected text; raises ``unparsable`` if there is none."""

    def _agrees(self, answer: AnswerT, example: Example) -> bool | float:
        """Return whether the answer is right, or a degree in [0, 1]: by default, equality."""
        return not {*self._forms(answer)}.isdisjoint(self._targets(example))

    def _forms(self, answer: AnswerT) -> list[AnswerT]:
        """Return an answer, and of a text whose marks do not count one without "_" around words.

        Each may be the right one: a target `__init__` is a name, and "_" not always a mark.
        """
        if "punctuation" not in getattr(self.options, "normalise", ()):
            return [answer]
        # what is normalised is a text
        return [answer, self._normalise(_ITALICS.sub(r"\2", str(answer)))]  # type: ignore[list-item]

    def _text(self, answer: AnswerT) -> str:
        return str(answer)

    def _targets(self, example: Example) -> list[AnswerT]:
        """Return what the references are compared as; raises JudgeError, blame JUDGE."""
        targets = []
        for reference in references(example):
            try:
                targets.append(self._target(reference, example))
            except ValueError as error:
                raise judge_failed(self._incomparable(reference, example, str(error))) from None
        return targets

    def _incomparable(self, reference: str, example: Example, why: str) -> str:
        return (
            f"example `{example.id}`: judge `{self.name}` cannot compare with reference "
            f"{excerpt(reference)!r}: {why}"
        )

    def _target(self, reference: str, example: Example) -> AnswerT:
        """Read a reference; raises ValueError, with the way out, if it cannot be compared with."""
        return self._normalise(reference)  # type: ignore[return-value] # else it is overridden

    def _after_marker(self, text: str, reasoning: str) -> str:
        # The last marker counts, since replies think aloud about "the answer" before they give it.
        if ends := [marker.end() for marker in self._marker.finditer(text)]:
            rest = text[ends[-1] :]
            return rest.partition(self._end)[0] if self._end else rest
        # a marker such as "</think>" is the end of the reasoning, which was taken off
        ends = [marker.end() for marker in self._marker.finditer(reasoning)]
        if self.options.after_required and not (ends and ends[-1] == len(reasoning)):
            raise unparsable(f"no {self.options.after!r}", text)
        return text


class WholeTextJudge(RuleJudge[RuleOptionsT, str], Generic[RuleOptionsT]):
    """Compares all of the selected text, normalised, with the references."""

    def _extract(self, text: str, example: Example) -> str:
        answer = self._normalise(text)
        if not answer.strip():
            raise unparsable("no answer", text)
        return answer
