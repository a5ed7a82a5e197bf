"""The seam between the engine and what runs are for: selection, certification, gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.judges.base import Judge
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.stats.non_inferiority import Conclusion


class ModeRow(NamedTuple):
    """The finding about one candidate, or about one on a part of the examples."""

    cells: tuple[str, ...]  # texts under the columns: the name first, then the verdict in words
    verdict: Conclusion
    said: str = ""  # a sentence with the numbers; empty where only the table has them


@dataclass(frozen=True, slots=True)
class ModeResult:
    """The answer of a mode that does not look for the best candidate, in words and as JSON.

    A mode makes it; the terminal, the report and files for CI show it without knowing the mode.
    """

    title: str  # of the table
    note: str  # on the table, a sentence or two
    ranking: str  # on what the ranking of the candidates shows, a sentence
    columns: tuple[str, ...]  # heads of the table: two texts, then numbers
    rows: tuple[ModeRow, ...]  # of the candidates that were looked at
    lines: tuple[str, ...]  # the answer in a few lines, each with a title
    verdict: Conclusion  # passed: what was to be shown is shown; failed: the contrary is
    marks: Mapping[Conclusion, str]  # verdicts in a word, for narrow tables; others are whole
    as_json: Mapping[str, Any]


# The engine must not import certification or gate, which stand above it and read its results. So it
# runs whatever has these three methods.
class Mode(Protocol):
    """The purpose of a run. The engine runs every mode alike and imports none of them.

    Its opener (``OpenMode``) says which judge scores the replies, its pairs which example is asked
    next and when the run is finished, and its result how the answer is shown.
    """

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> Pairs:
        """Make what asks for the run's pairs; nothing was asked yet.

        Args:
            size: the size of the problem at the first ask.
            candidates: its candidates.
            history: what was learned from earlier runs.

        Raises:
            ConfigError: the study's settings do not fit.
        """

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Return what the user should know before a call is paid for, a sentence each."""

    def result(self, pairs: Pairs, standing: Standing) -> ModeResult | None:
        """Return the answer so far; None if it is the standing itself."""


# An opener also names the judge, since a mode may need another one than the study's scorer: a
# certification may name one of its own.
# The numbers are those of one example of each cluster; none if no example depends on another.
OpenMode: TypeAlias = Callable[
    [LoadedStudy, Sequence[Example], Catalog, Sequence[int]], tuple[Mode, Judge]
]
