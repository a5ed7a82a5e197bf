"""Examples that winner and runner-up score differently, and when each candidate left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bestarm_agent.engine.results.pairs import PairOutcome
from bestarm_agent.engine.results.standing import Row, Status
from bestarm_agent.report.page_data import Details

_SHORT = 400  # characters of a text in a table


@dataclass(frozen=True, slots=True)
class Difference:
    """One example with both answers."""

    question: str
    winner: PairOutcome
    other: PairOutcome

    @property
    def answers(self) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
        """Return both replies, each as what comes before, within and after their difference."""
        return marked(_reply(self.winner), _reply(self.other))


def differences(details: Details) -> Iterator[Difference]:
    """Iterate over the examples, those first on which the winner is worse."""
    for ask, other in details.sample.differing:
        pair = details.sample.pairs[ask]
        yield Difference(short(_question(pair)), pair, details.sample.pairs[other])


def _question(pair: PairOutcome) -> str:
    """Return the field named question, or the end of the prompt, where the question stands."""
    if isinstance(asked := pair.inputs.get("question"), str):
        return asked
    return (pair.prompt or "")[-_SHORT:]


def _reply(pair: PairOutcome) -> str:
    return short(pair.reply or pair.answer or pair.message or "")


def short(text: str) -> str:
    """Shorten a text for a table."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 4]} ..."


def marked(a: str, b: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Part two texts into their common start, what differs, and their common end.

    Example:
        >>> marked("it is 42.", "it is 7.")
        (('it is ', '42', '.'), ('it is ', '7', '.'))
    """
    least, start, end = min(len(a), len(b)), 0, 0
    while start < least and a[start] == b[start]:
        start += 1
    while end < least - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return _parts(a, start, end), _parts(b, start, end)


def _parts(text: str, start: int, end: int) -> tuple[str, str, str]:
    return text[:start], text[start : len(text) - end], text[len(text) - end :]


def departure(row: Row, details: Details, labels: dict[int, str]) -> tuple[int | None, str]:
    """Return after how many pairs a candidate left, and why; nothing if it did not."""
    at = details.trajectory.left.get(row.index)
    if row.problem is not None:
        return at, row.problem
    if row.status is Status.BEATEN:
        rival = labels.get(details.trajectory.beaten_by.get(row.index, -1), "")
        return at, f"beaten by {rival}" if rival else "shown to be worse"
    return None, ""
