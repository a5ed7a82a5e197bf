"""The pairs whose texts the report carries: as many as fit, the most telling ones first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.engine.results.pairs import PairOutcome, RunTexts, scores_of
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.matrix import Matrix
from bestarm_agent.store.run_state import RunState

_MOST_PAIRS = 3000
_MOST_CHARACTERS = 3_000_000  # of all texts
_LONGEST = 6000  # characters of one text
_MOST_DIFFERING = 100
_MOST_FAILED = 100


@dataclass(frozen=True, slots=True)
class PairSample:
    """Pairs with their texts."""

    pairs: dict[int, PairOutcome]  # by ask number
    differing: Sequence[tuple[int, int]]  # asks of best and runner-up on examples they split
    n_differing: int  # such examples in all
    note: str = ""  # on prompts and targets that are missing


async def sample_pairs(texts: RunTexts, standing: Standing, matrix: Matrix) -> PairSample:
    """Read the texts of the pairs that tell most, up to a few megabytes."""
    split = _differing(texts.state, standing)
    wanted = [seq for both in split[:_MOST_DIFFERING] for seq in both]
    wanted += texts.state.told.failed()[-_MOST_FAILED:]
    wanted = list(dict.fromkeys([*wanted, *_shown(texts.state, matrix)]))[:_MOST_PAIRS]
    pairs: dict[int, PairOutcome] = {}
    left, known = _MOST_CHARACTERS, set[str | None]()
    async for page in texts.pages(wanted):
        for pair in page:
            for text in (pair.prompt, pair.reply, pair.target, str(pair.inputs)):
                left -= min(_LONGEST, len(text or "")) if text not in known else 0
                known.add(text)
            pairs[pair.seq] = pair
        if left <= 0:
            break
    kept = [both for both in split if both[0] in pairs and both[1] in pairs]
    return PairSample(pairs, kept, len(split), texts.note)


def cut(text: str | None) -> str | None:
    """Shorten a text that is too long for the report, and say so."""
    if text is None or len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} ... [{len(text) - _LONGEST:,} more characters]"


def _differing(state: RunState, standing: Standing) -> list[tuple[int, int]]:
    """Return the asks of winner and runner-up on the examples that they score differently."""
    if standing.winner is None or standing.runner_up is None:
        return []
    other = standing.runner_up
    if other.index == standing.winner.index:
        other = standing.rows[0]
    one, two = scores_of(state, standing.winner.index), scores_of(state, other.index)
    common = [(one[j], two[j]) for j in one if j in two and one[j][1] != two[j][1]]
    common.sort(key=lambda both: (both[0][1] - both[1][1], both[0][0]))  # where it loses, first
    return [(a[0], b[0]) for a, b in common]


def _shown(state: RunState, matrix: Matrix) -> list[int]:
    """Return the asks in the matrix, spread evenly over the run."""
    shown = np.isin(state.asks.candidate, matrix.rows) & np.isin(state.asks.example, matrix.columns)
    seqs = np.flatnonzero(shown).tolist()
    if len(seqs) <= _MOST_PAIRS:
        return seqs
    return [seqs[k] for k in np.linspace(0, len(seqs) - 1, _MOST_PAIRS).astype(int)]
