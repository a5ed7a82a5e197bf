"""Score 1 if the answer chooses the right one of several lettered options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from pydantic import Field

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rules.base import (
    RuleJudge,
    RuleOptions,
    judge_failed,
    references,
    unparsable,
)
from bestarm_agent.judges.rules.chosen_letter import AmbiguousError, chosen_letter
from bestarm_agent.judges.rules.text_normalisation import STANDARD, normaliser, shown

_NORMALISE = normaliser(STANDARD)


class MultipleChoiceOptions(RuleOptions):
    """Options of ``multiple-choice``.

    ``options_field`` names the input field that holds the options: a list of texts, lettered from
    A; a mapping from letters to texts; or ``{"label": [...], "text": [...]}``. A list of names
    means one field per option. Examples without it are answered by letter alone.
    """

    max_chars: int = Field(20_000, ge=100, le=10_000_000)
    options_field: str | tuple[str, ...] = "options"
    letters: str = Field(ascii_uppercase, pattern=r"^[A-Z]{2,26}$")  # of examples without options


class MultipleChoiceJudge(RuleJudge[MultipleChoiceOptions, str]):
    """Scores 1 if the reply chooses the right option, by its letter or its text."""

    adapter = "multiple-choice"
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

    def _agrees(self, answer: str, example: Example) -> bool:
        try:
            options = self._lettered(example)
            right = {self._right(reference, options) for reference in references(example)}
        except ValueError as error:
            raise judge_failed(f"example `{example.id}`: {error}") from None
        return answer in right

    def _problem(self, reference: str, example: Example) -> str | None:
        try:
            self._right(reference, self._lettered(example))
        except ValueError as error:
            return str(error)
        return None

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

    def _right(self, reference: str, options: Mapping[str, str]) -> str:
        """Return the letter of a reference; raises ValueError if it names no option."""
        said = _NORMALISE(reference)
        texts = [letter for letter, text in options.items() if text and _NORMALISE(text) == said]
        if len(texts) == 1:
            return texts[0]
        letter = said.strip("()[]. ").upper()
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
