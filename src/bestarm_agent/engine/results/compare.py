"""Two candidates compared on the examples that both were scored on, of stored runs or of files.

Where the scores come from is the caller's business: ``compare_scores`` gets them side by side.
``compare_candidates`` takes them from runs, ``interop.paired`` from files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from math import isnan
from typing import Literal, TypeAlias

import numpy as np

from bestarm_agent.domain.values import RIGHT
from bestarm_agent.engine.results.new_examples import SURE
from bestarm_agent.engine.results.pairs import row_of, scores_of, unit_of
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.new_examples import (
    FEWEST_EXAMPLES,
    Lead,
    examples_to_prove,
    lead_of,
    nearness,
    resolution,
)
from bestarm_agent.stats.paired_sequences import PairedSequences
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState

Verdict: TypeAlias = Literal["a", "b", "about equal", "undecided"]


@dataclass(frozen=True, slots=True)
class Flip:
    """An example with the scores of two candidates, which differ where it is shown."""

    example: str  # its id
    score_a: float  # NaN where there is no answer
    score_b: float
    seq_a: int  # numbers of the asks; in files, places of the examples, from 0
    seq_b: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Two candidates, and the examples on which they are compared."""

    a: str  # label of the one
    b: str  # label of the other
    metric: str | None  # the score of files that is compared; None for the score of runs
    n_examples: int  # N, the examples of the study; of two runs or files, those that both have
    unit: str  # what counts as one draw: "example", or "cluster" where examples belong together
    n_units: int  # of the N examples
    unpaired_a: int  # examples that only the run or the files of a have
    unpaired_b: int
    scored_a: int  # examples on which a has a score
    scored_b: int
    runs: tuple[str, str] | None = field(default=None, kw_only=True)  # of a and b; None for files


@dataclass(frozen=True, slots=True)
class PairedComparison(Compared):
    """Two candidates on the same examples; right is a score of at least one half."""

    both: int  # of the n common examples, those that both got right
    only_a: int
    only_b: int
    neither: int
    mean_a: float  # on the common examples, in [0, 1]
    mean_b: float
    # mean score of a minus that of b, on all N examples and on new ones like them. Each interval
    # holds whenever one looked, if examples were drawn at random
    seen: Measure
    difference: Measure
    # who is proved to be better on new examples; "about equal" where these examples cannot tell the
    # two apart, and neither is probably better
    verdict: Verdict
    chance: float  # that a is better on new examples, in (0, 1)
    resolution: float  # difference that all N examples show with probability .8
    examples_needed: int | None  # that would show the difference seen; None if it is shown, or none
    confidence: float  # of the intervals of all comparisons that are made together
    flips: tuple[Flip, ...]  # in the order in which a was asked

    @property
    def n(self) -> int:
        """Number of common examples."""
        return self.both + self.only_a + self.only_b + self.neither


def compare_scores(
    on: Compared,
    examples: Sequence[Flip],
    draws: Sequence[Sequence[int]],
    confidence: float,
    n_together: int = 1,
) -> PairedComparison:
    """Compare two candidates by their scores.

    Args:
        on: who is compared on what.
        examples: the n <= N that both were asked, in an order that depends on no later score.
        draws: what is drawn independently for new examples: each the examples, by their places,
            whose mean is one draw.
        confidence: of the intervals of all comparisons that are made together, in (0, 1).
        n_together: how many these are; the error probability is divided among them.

    Raises:
        ConfigError: no example has a score of both.
    """
    scores = np.array([(flip.score_a, flip.score_b) for flip in examples]).reshape(-1, 2)
    known = ~np.isnan(scores).any(axis=1)
    if not known.any():
        raise ConfigError(
            f"no example was scored for both {on.a!r} and {on.b!r}, so they cannot be compared; "
            "choose others, or let both answer the same examples"
        )
    alpha = (1.0 - confidence) / n_together
    # An example that one of them could not answer stays in: leaving it out would be choosing, as
    # hard examples fail more often. Its score may be any in [0, 1], so that everything is computed
    # twice, with all unknown scores at 0 and with all at 1, and a's worst meets b's best.
    ends = [np.nan_to_num(scores, nan=end) for end in (0.0, 1.0)]
    drawn = [np.array([end[[*draw]].mean(axis=0) for draw in draws]).reshape(-1, 2) for end in ends]
    lead = lead_of(drawn[0][:, 0] - drawn[1][:, 1], drawn[1][:, 0] - drawn[0][:, 1])
    x, y = scores[known].T
    a_right, b_right, value = x >= RIGHT, y >= RIGHT, float((x - y).mean())
    on_new = _bounded(
        value if on.unit == "example" else lead.mean, drawn, on.n_units, alpha, on_new=True
    )
    verdict = _verdict(lead, on_new, on.n_units, alpha)
    unclear = verdict in ("undecided", "about equal") and value != 0.0
    needed = examples_to_prove([replace(lead, mean=abs(lead.mean))], alpha / 2) if unclear else None
    differ = compress(examples, known & (scores[:, 0] != scores[:, 1]))
    return PairedComparison(
        **asdict(on),
        both=int((a_right & b_right).sum()),
        only_a=int((a_right & ~b_right).sum()),
        only_b=int((b_right & ~a_right).sum()),
        neither=int((~a_right & ~b_right).sum()),
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        seen=_bounded(value, ends, on.n_examples, alpha, on_new=False),
        difference=on_new,
        verdict=verdict,
        chance=lead.chance,
        resolution=resolution(lead.differing, on.n_units, alpha / 2),
        examples_needed=needed,
        confidence=confidence,
        flips=tuple(sorted(differ, key=lambda flip: flip.seq_a)),  # as a was asked
    )


def _verdict(lead: Lead, on_new: Measure, n_units: int, alpha: float) -> Verdict:
    """Say who is shown to be better on new examples, or whether these can tell the two apart."""
    if on_new.lower > 0.0 or on_new.upper < 0.0:
        return "a" if on_new.lower > 0.0 else "b"
    is_near = abs(lead.mean) <= nearness(lead.differing, n_units)
    is_equal = lead.n >= FEWEST_EXAMPLES and lead.is_level(n_units, alpha / 2) and is_near
    return "about equal" if is_equal and 1.0 - SURE < lead.chance < SURE else "undecided"


def _bounded(
    value: float, ends: Sequence[FloatArray], size: int, alpha: float, *, on_new: bool
) -> Measure:
    """Bound a's mean minus b's by (n, 2) ends of scores, the first n of a random order of N."""
    sequences = PairedSequences(2, size, alpha)
    for side in (0, 1):
        low, high = (end[:, side] for end in ends)
        sequences.extend(side, np.arange(len(low)), low, high)
    lower, upper = sequences.difference(0, 1, alpha, on_new=on_new)
    return Measure(value, min(lower, value), max(upper, value))


def compare_candidates(
    state: RunState, a: str, b: str, confidence: float = 0.95, other: RunState | None = None
) -> PairedComparison:
    """Compare two candidates of stored runs.

    Args:
        state: the run of ``a``.
        a: label or id of the one.
        b: label or id of the other.
        confidence: of the intervals, in (0, 1).
        other: the run of ``b``, if it is another; examples are the same if id and content are.

    Raises:
        ConfigError: there is no such candidate, both are the same, no example was scored for both,
            or two runs have different judges.
    """
    other_state = state if other is None else other
    row_a, row_b = row_of(state, a), row_of(other_state, b)
    if other is None and row_a == row_b:
        raise ConfigError(f"{a!r} cannot be compared with itself; name another candidate")
    if state.started.judge != other_state.started.judge:
        raise ConfigError(
            "different judges scored the two runs, so their scores cannot be compared; run one of "
            "the studies again with the other's scorer: its answers come from the reply cache"
        )
    of_a, of_b = scores_of(state, row_a), scores_of(other_state, row_b)
    theirs = zip(other_state.example_ids, other_state.example_digests, strict=True)
    columns_b = {example: column for column, example in enumerate(theirs)}
    own = zip(state.example_ids, state.example_digests, strict=True)
    # Three numberings meet here: ``column`` is the position of an example in the run of a;
    # ``columns_b`` maps id and content to the position in the run of b; a *row* is a line of the
    # dataset, of which repeated draws are several columns, ``n_rows`` apart. All that follows goes
    # by columns of a, and only scores of b are looked up by its own (``j``).
    shared = [(column, columns_b[key]) for column, key in enumerate(own) if key in columns_b]
    common = sorted(  # as a was: ask and score of each, and the column
        (of_a[i], of_b[j], i) for i, j in shared if i in of_a and j in of_b
    )
    n_rows = len(state.example_ids) // int(state.started.config.get("repeats", 1))
    row_of_column = np.arange(len(state.example_ids)) % n_rows  # draws of one are one row
    if state.independent:
        # -1: not the one example that stands for its cluster
        row_of_column[~np.isin(row_of_column, state.independent)] = -1
    columns = np.array([column for *_, column in common], dtype=np.int64)
    rows, first = np.unique(row_of_column[columns], return_index=True)
    # one draw of each, and one example of each cluster: what was asked of the others may depend
    # on the scores of the first, so their mean would be no fair draw
    draws = [[place] for place in sorted(first[rows >= 0].tolist())]
    n_draws = len({row_of_column[i] for i, _ in shared} - {-1})
    unpaired = len(state.example_ids) - len(shared), len(columns_b) - len(shared)
    n_a, n_b = (sum(not isnan(score) for _, score in side.values()) for side in (of_a, of_b))
    names, unit = (labels(state)[row_a], labels(other_state)[row_b]), unit_of(state)
    on = Compared(*names, None, len(shared), unit, n_draws, *unpaired, n_a, n_b)
    examples = [Flip(state.example_ids[i], x, y, seq, its) for (seq, x), (its, y), i in common]
    return compare_scores(on, examples, draws, confidence)
