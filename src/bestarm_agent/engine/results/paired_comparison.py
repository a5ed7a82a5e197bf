"""Two candidates of a run, compared on the examples that both were scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bestarm_agent.domain.events import Asked
from bestarm_agent.engine.results.pair_outcomes import RIGHT, row_of, scores_of
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.intervals.paired_sequences import PairedSequences
from bestarm_agent.stats.mcnemar import mcnemar
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.score_export_rows import labels


@dataclass(frozen=True, slots=True)
class Flip:
    """An example on which two candidates score differently."""

    example: str  # its id
    score_a: float
    score_b: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two candidates on the same examples; right is a score of at least one half."""

    a: str  # label of the one
    b: str  # label of the other
    scored_a: int  # examples on which a has a score
    scored_b: int
    both: int  # of the n common examples, those that both got right
    only_a: int
    only_b: int
    neither: int
    # mean score of a minus that of b on the common examples; the interval is for all N examples of
    # the study, and holds whenever the run stopped if examples were drawn at random
    difference: Measure
    mean_a: float  # on the common examples, in [0, 1]
    mean_b: float
    # two-sided, of "a is better as often as b": McNemar's exact test, of scores between 0 and 1 the
    # sign test; for a number of examples fixed in advance
    p_value: float
    graded: bool  # whether a score lies strictly between 0 and 1
    confidence: float  # of the interval
    flips: tuple[Flip, ...]  # in the order in which a was asked

    @property
    def n(self) -> int:
        """Number of common examples."""
        return self.both + self.only_a + self.only_b + self.neither


def compare_candidates(
    state: RunState, a: str, b: str, confidence: float = 0.95
) -> PairedComparison:
    """Compare two candidates of a run.

    Args:
        state: the run.
        a: label or id of the one.
        b: label or id of the other.
        confidence: of the interval, in (0, 1).

    Raises:
        ConfigError: there is no such candidate, both are the same, or no example was scored for
            both.
    """
    rows = row_of(state, a), row_of(state, b)
    if rows[0] == rows[1]:
        raise ConfigError(f"{a!r} cannot be compared with itself; name another candidate")
    first, second = (scores_of(state, row) for row in rows)
    common = {j: (first[j][1], second[j][1]) for j in first if j in second}
    if not common:
        raise ConfigError(
            f"no example was scored for both {a!r} and {b!r}, so they cannot be compared; choose "
            f"others, or resume the run with a larger budget"
        )
    pairs = list(common.values())
    n, names = len(pairs), labels(state)
    value = sum(x - y for x, y in pairs) / n
    lower, upper = _interval(state, rows, 1.0 - confidence)
    return PairedComparison(
        a=names[rows[0]],
        b=names[rows[1]],
        scored_a=len(first),
        scored_b=len(second),
        both=sum(x >= RIGHT and y >= RIGHT for x, y in pairs),
        only_a=sum(x >= RIGHT > y for x, y in pairs),
        only_b=sum(y >= RIGHT > x for x, y in pairs),
        neither=sum(x < RIGHT and y < RIGHT for x, y in pairs),
        difference=Measure(value, lower, upper),
        mean_a=sum(x for x, _ in pairs) / n,
        mean_b=sum(y for _, y in pairs) / n,
        p_value=float(mcnemar(sum(x > y for x, y in pairs), sum(y > x for x, y in pairs))),
        graded=any(score not in (0.0, 1.0) for pair in pairs for score in pair),
        confidence=confidence,
        flips=tuple(Flip(state.example_ids[j], x, y) for j, (x, y) in common.items() if x != y),
    )


def _interval(state: RunState, rows: tuple[int, int], alpha: float) -> tuple[float, float]:
    """Bound the difference over all examples; a void pair may hide any score in [0, 1]."""
    sequences = PairedSequences(2, len(state.example_ids), alpha)
    asked = [_answered(state, row) for row in rows]
    for example in asked[0]:
        if example in asked[1]:
            for row in (0, 1):
                sequences.push(row, example, *_range(state, asked[row][example]))
    return sequences.difference(0, 1, alpha)


def _answered(state: RunState, row: int) -> dict[int, Asked]:
    asks: Sequence[Asked] = state.asks
    return {ask.example: ask for ask in asks if ask.candidate == row and ask.seq in state.told}


def _range(state: RunState, ask: Asked) -> tuple[float, float]:
    score = state.told[ask.seq].score
    return (0.0, 1.0) if score is None else (score, score)
