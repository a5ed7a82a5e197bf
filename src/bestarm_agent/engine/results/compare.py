"""Two candidates, of one run or of two, compared on the examples that both were scored on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from bestarm_agent.domain.values import RIGHT
from bestarm_agent.engine.results.pairs import row_of, scores_of
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.new_examples import examples_to_prove, lead_of, resolution
from bestarm_agent.stats.paired_sequences import PairedSequences
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class Flip:
    """An example on which two candidates score differently."""

    example: str  # its id
    score_a: float
    score_b: float
    seq_a: int  # numbers of the asks
    seq_b: int


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Two candidates on the same examples; right is a score of at least one half."""

    a: str  # label of the one
    b: str  # label of the other
    n_examples: int  # N, the examples of the study; of two runs, those that both have
    scored_a: int  # examples on which a has a score
    scored_b: int
    both: int  # of the n common examples, those that both got right
    only_a: int
    only_b: int
    neither: int
    # mean score of a minus that of b on the common examples; the interval is for new examples like
    # them, and holds whenever the run stopped if examples were drawn at random
    difference: Measure
    mean_a: float  # on the common examples, in [0, 1]
    mean_b: float
    resolution: float  # difference that all N examples show with probability .8
    examples_needed: int | None  # that would show the difference seen; None if it is shown, or none
    confidence: float  # of the interval
    flips: tuple[Flip, ...]  # in the order in which a was asked

    @property
    def n(self) -> int:
        """Number of common examples."""
        return self.both + self.only_a + self.only_b + self.neither


def compare_candidates(
    state: RunState, a: str, b: str, confidence: float = 0.95, other: RunState | None = None
) -> PairedComparison:
    """Compare two candidates.

    Args:
        state: the run of ``a``.
        a: label or id of the one.
        b: label or id of the other.
        confidence: of the interval, in (0, 1).
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
    one, two = scores_of(state, row_a), scores_of(other_state, row_b)
    theirs = zip(other_state.example_ids, other_state.example_digests, strict=True)
    there = {example: column for column, example in enumerate(theirs)}
    own = zip(state.example_ids, state.example_digests, strict=True)
    shared = [(column, there[key]) for column, key in enumerate(own) if key in there]
    asked = sorted(  # as a was: ask and score of each, and the place among the shared examples
        (one[i], two[j], place) for place, (i, j) in enumerate(shared) if i in one and j in two
    )
    scores = np.array([(x, y) for (_, x), (_, y), _ in asked]).reshape(-1, 2)
    known = ~np.isnan(scores).any(axis=1)
    if not known.any():
        raise ConfigError(
            f"no example was scored for both {a!r} and {b!r}, so they cannot be compared; choose "
            f"others, or resume the run with a larger budget"
        )
    alpha = 1.0 - confidence
    sequences = PairedSequences(2, len(shared), alpha)
    columns = np.array([place for *_, place in asked], dtype=np.int64)
    n_rows = len(state.example_ids) // int(state.started.config.get("repeats", 1))
    row_of_place = np.array([i % n_rows for i, _ in shared])  # draws of one are one row
    if state.independent:
        row_of_place[~np.isin(row_of_place, state.independent)] = -1
    rows, first = np.unique(row_of_place[columns], return_index=True)
    first = np.sort(first[rows >= 0])  # one draw of each, and one example of each cluster
    for side in (0, 1):  # a void pair may hide any score in [0, 1]
        low, high = (np.nan_to_num(scores[first, side], nan=end) for end in (0.0, 1.0))
        sequences.extend(side, columns[first], low, high)
    lead = lead_of(*sequences.common(0, 1))
    ahead = replace(lead, mean=abs(lead.mean))
    x, y = scores[known].T
    a_right, b_right, value = x >= RIGHT, y >= RIGHT, float((x - y).mean())
    lower, upper = sequences.difference(0, 1, alpha, on_new=True)
    is_open = lower <= 0.0 <= upper and value != 0.0
    differ = (asked[k] for k in np.flatnonzero(known & (scores[:, 0] != scores[:, 1])))
    return PairedComparison(
        a=labels(state)[row_a],
        b=labels(other_state)[row_b],
        n_examples=len(shared),
        scored_a=sum(not isnan(score) for _, score in one.values()),
        scored_b=sum(not isnan(score) for _, score in two.values()),
        both=int((a_right & b_right).sum()),
        only_a=int((a_right & ~b_right).sum()),
        only_b=int((b_right & ~a_right).sum()),
        neither=int((~a_right & ~b_right).sum()),
        difference=Measure(value, min(lower, value), max(upper, value)),
        mean_a=float(x.mean()),
        mean_b=float(y.mean()),
        resolution=resolution(lead.differing, len({*row_of_place.tolist()} - {-1}), alpha / 2),
        examples_needed=examples_to_prove([ahead], alpha / 2) if is_open else None,
        confidence=confidence,
        flips=tuple(
            Flip(state.example_ids[shared[place][0]], score_a, score_b, seq_a, seq_b)
            for (seq_a, score_a), (seq_b, score_b), place in differ
        ),
    )
