"""Read which of several lettered options a reply chooses, and whether it is the right one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from pydantic import Field

from bestarm_agent.domain.values import Example, Json
from bestarm_agent.judges.base import judge_failed, shown, unparsable
from bestarm_agent.judges.rule import (
    STANDARD,
    RuleJudge,
    ShortRuleOptions,
    contains,
    normaliser,
    unicode_form,
)

_NORMALISE = normaliser(STANDARD)
_MARKER = re.compile(  # words before a choice
    r"""
    \\boxed (?![a-z])
    | (?<![a-z])
      (?: answer | correct\ option | correct\ choice | solution
        | antwort | réponse | respuesta | risposta ) (?![a-z])
    | ответ | 答案 | 答え
    """,
    re.IGNORECASE | re.VERBOSE,
)
_EMPHASIS = str.maketrans({**dict.fromkeys('*`"$', ""), "_": " "})
_LATEX_TEXT = re.compile(r"\\(?:text|math)[a-z]{0,2}\s?\{")
_FILLERS = (
    "is|are|be|was|would|should|must|will|definitely|clearly|therefore|thus|hence|then|most likely|"
    "probably|the|my|final|correct|best|right|option|choice|letter|answer|ist|est|es"
)
_STATED = re.compile(
    rf"""
    (?: \W{{0,6}} (?: (?i:{_FILLERS}) (?![A-Za-z]) | [是为為は] ) ){{0,5}}
    \W{{0,6}}
    (?: (?P<letter>[A-Z]) (?![\w']) | (?P<small>[a-z]) (?=\s*(?:$|[).,:;\]}}])) )
    (?: \s* (?:/|&|\bor\b|\band\b) \s* \W{{0,2}} (?P<other>[A-Z]) (?![\w'])
      | \s* , \s* (?P<next>[A-Z]) (?=\s*(?:$|[.,;)\]]|and\b|or\b))
    )?
    """,
    re.VERBOSE,
)
_BARE = re.compile(r"^[^\w\n]*([A-Za-z])[^\w\n]*$", re.MULTILINE)
_LEADING = re.compile(  # a line such as "- (B) Paris"
    r"""
    ^ [^\S\n]* (?:[-•>\#]+\s+)? [(\[{]? (?:(?i:option|choice)\s+)? ([A-Za-z])
    (?= [)\]}:] | \.(?!\w) | [^\S\n]+-\s )
    .*
    """,
    re.VERBOSE | re.MULTILINE,
)
_LABEL = re.compile(r"([A-Za-z])(?<![\w'].)(?=[)\]}:]|\.\s+\w|\s+-\s)")
# Both patterns begin with a rare character and look back from there: several times faster.
_BRACKETED = re.compile(r"[(\[](?<!\w.)([A-Z])[)\]]")
_ALONE = re.compile(
    r"""
    ([A-Z]) (?![\w']) (?<![\w'-].) (?<!not\s.) (?<!n't\s.)
    (?: (?<![AI])
      | (?<=A) (?!\s+(?!(?:is|because|since|as|and|or|seems|looks|makes|would)\b)[a-z])
      | (?<=I) (?!,|\s+(?!(?:is|because|since)\b)[a-z])
    )
    """,
    re.VERBOSE,
)


class AmbiguousError(ValueError):
    """The reply chooses more than one option."""


def chosen_letter(text: str, options: Mapping[str, str]) -> str | None:
    """Return the letter that ``text`` chooses, None for none; raise AmbiguousError for several.

    ``options`` holds each option's text by letter; "" if only the letter is known. The clearest
    kind of statement counts: 1. Only the text of one option. 2. A statement after a marker:
    "Answer: (B)"; several must agree. 3. A line that begins with a letter: "B) because ..."; lines
    that repeat several options do not count. 4. The only letter in brackets. 5. The only letter
    that stands alone, or the only option whose text occurs; both, if they agree.

    Example:
        >>> chosen_letter("The answer is **B**.", {"A": "Lyon", "B": "Paris"})
        'B'
    """
    texts = {letter: _NORMALISE(option) for letter, option in options.items() if option}
    said = _NORMALISE(text)
    same = [letter for letter, option in texts.items() if option == said and len(said) > 1]
    if len(same) == 1:
        return same[0]
    plain = _LATEX_TEXT.sub("", unicode_form(text).translate(_EMPHASIS))
    ends = [marker.end() for marker in _MARKER.finditer(plain)]
    return (
        _statement(plain, ends, options)
        or _only(_letters(_BARE, plain, options))
        or _line_start(plain, options)
        or _only(_letters(_BRACKETED, rest := _LEADING.sub("", plain), options))
        or _only(_mentioned(plain[ends[-1] :], options, texts) if ends else set())
        or _only(_mentioned(rest, options, texts))
    )


def _statement(plain: str, ends: Sequence[int], options: Mapping[str, str]) -> str | None:
    matches = (_STATED.match(plain, end) for end in ends)
    said = [(str(match["letter"] or match["small"]).upper(), match) for match in matches if match]
    found = [(letter, match) for letter, match in said if letter in options]
    more = {match["other"] or match["next"] for _, match in found} & options.keys()
    return _only({letter for letter, _ in found} | more)


def _letters(pattern: re.Pattern[str], plain: str, options: Mapping[str, str]) -> set[str]:
    found = (match[match.lastindex or 0].upper() for match in pattern.finditer(plain))
    return {letter for letter in found if letter in options}


def _line_start(plain: str, options: Mapping[str, str]) -> str | None:
    """Return the only letter that lines begin with; several are a list of the options."""
    lines = [match[0] for match in _LEADING.finditer(plain)]
    letters = _letters(_LEADING, plain, options) | _letters(_LABEL, "\n".join(lines), options)
    return letters.pop() if len(letters) == 1 else None


def _mentioned(plain: str, options: Mapping[str, str], texts: Mapping[str, str]) -> set[str]:
    occurring = _occurring(_NORMALISE(plain), texts)
    alone = _letters(_ALONE, plain, options)
    part_of_text = {
        letter
        for letter in alone
        if any(contains(texts[option], letter.casefold(), words=True) for option in occurring)
    }
    return occurring | (alone - part_of_text)


def _occurring(text: str, texts: Mapping[str, str]) -> set[str]:
    """Return the options whose text occurs, not only within the text of another option."""
    found = set()
    for letter, option in texts.items():
        rest = text
        for other in texts.values():
            if option in other and option != other:
                rest = rest.replace(other, "\n")
        if contains(rest, option, words=True):
            found.add(letter)
    return found


def _only(letters: set[str]) -> str | None:
    if len(letters) > 1:
        raise AmbiguousError(" and ".join(sorted(letters)))
    return next(iter(letters), None)


class MultipleChoiceOptions(ShortRuleOptions):
    """Options of ``multiple-choice``.

    ``options_field`` names the input field that holds the options: a list of texts, lettered from
    A; a mapping from letters to texts; or ``{"label": [...], "text": [...]}``. A list of names
    means one field per option. Examples without it are answered by letter alone.
    """

    options_field: str | tuple[str, ...] = "options"
    letters: str = Field(ascii_uppercase, pattern=r"^[A-Z]{2,26}$")  # of examples without options


class MultipleChoiceJudge(RuleJudge[MultipleChoiceOptions, str]):
    """Scores 1 if the reply chooses the right option, by its letter or its text."""

    adapter = "multiple-choice"
    recognises = True
    options_type = MultipleChoiceOptions

    def __init__(self, name: str, options: MultipleChoiceOptions) -> None:
        super().__init__(name, options)
        self._bare = dict.fromkeys(options.letters, "")

    def _extract(self, text: str, example: Example) -> str:
        try:
            letter = chosen_letter(text, self._lettered(example))
        except AmbiguousError as error:
            raise unparsable(f"more than one choice ({error})", text) from None
        except ValueError as error:
            raise judge_failed(f"example `{example.id}`: {error}") from None
        if letter is None:
            raise unparsable("no choice", text)
        return letter

    def _lettered(self, example: Example) -> Mapping[str, str]:
        field = self.options.options_field
        if not isinstance(field, str):
            held = [example.inputs.get(name) for name in field]
            return _from_list([text for text in held if text is not None])
        value = example.inputs.get(field)
        if value is None:
            return self._bare
        if isinstance(value, Mapping):
            return _from_mapping(value)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return _from_list(value)
        raise ValueError(f"field `{field}` must hold a list of options, got {shown(str(value))!r}")

    def _target(self, reference: str, example: Example) -> str:
        options, said = self._lettered(example), _NORMALISE(reference)
        texts = [letter for letter, text in options.items() if text and _NORMALISE(text) == said]
        letter = said.strip("()[]. ").upper()
        if len(texts) == 1 and texts[0] != letter in options:
            raise ValueError(
                f"it is ambiguous: the letter of one option, and the text of option {texts[0]}; "
                f"write `({letter})` or `({texts[0]})` for the letter"
            )
        if len(texts) == 1:
            return texts[0]
        if letter in options:
            return letter
        raise ValueError(
            f"it is neither one of the letters {''.join(options)} nor the text of an option; "
            "correct the dataset"
        )


def _from_list(texts: Sequence[Json]) -> dict[str, str]:
    if not 2 <= len(texts) <= len(ascii_uppercase):
        raise ValueError(f"there must be 2 to 26 options, got {len(texts)}")
    return {letter: str(text) for letter, text in zip(ascii_uppercase, texts, strict=False)}


def _from_mapping(value: Mapping[str, Json]) -> dict[str, str]:
    labels, texts = value.get("label"), value.get("text")
    if isinstance(labels, Sequence) and isinstance(texts, Sequence):
        if len(labels) != len(texts):
            raise ValueError(f"got {len(labels)} labels for {len(texts)} texts of options")
        value = dict(zip(map(str, labels), texts, strict=True))
    options = {str(label).strip().upper(): str(text) for label, text in value.items()}
    if len(options) < 2 or not options.keys() <= set(ascii_uppercase):
        raise ValueError(f"options must be labelled by letters A to Z, got {', '.join(options)}")
    return options
