"""Two candidates, of one run or of two, compared on the examples that both were scored on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.values import RIGHT, Candidate
from bestarm_agent.engine.results.pairs import row_of
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.new_examples import examples_needed, lead_of, resolution
from bestarm_agent.stats.paired_sequences import PairedSequences
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState


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
    graded: bool  # whether a score lies strictly between 0 and 1
    confidence: float  # of the interval
    changed: tuple[str, ...]  # in what the two differ, for people
    flips: tuple[Flip, ...]  # in the order in which a was asked

    @property
    def is_shown(self) -> bool:
        """Return whether one is shown to be better than the other on new examples."""
        return self.difference.lower > 0.0 or self.difference.upper < 0.0

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
    if state.started and other_state.started and state.started.judge != other_state.started.judge:
        raise ConfigError(
            "different judges scored the two runs, so their scores cannot be compared; run one of "
            "the studies again with the other's scorer: its answers come from the reply cache"
        )
    one, two = _scores(state, row_a), _scores(other_state, row_b)
    digests = dict(zip(other_state.example_ids, other_state.example_digests, strict=True))
    own = zip(state.example_ids, state.example_digests, strict=True)
    shared = [id_ for id_, digest in own if digests.get(id_) == digest]
    places = {id_: place for place, id_ in enumerate(shared)}
    asked = {id_: (x, two[id_]) for id_, x in one.items() if id_ in two and id_ in places}
    common = {id_: (x, y) for id_, (x, y) in asked.items() if x is not None and y is not None}
    if not common:
        raise ConfigError(
            f"no example was scored for both {a!r} and {b!r}, so they cannot be compared; choose "
            f"others, or resume the run with a larger budget"
        )
    alpha, pairs = 1.0 - confidence, list(common.values())
    sequences = PairedSequences(2, len(shared), alpha)
    columns = np.array([places[id_] for id_ in asked], dtype=np.int64)
    for side in (0, 1):  # a void pair may hide any score in [0, 1]
        scores = np.array([pair[side] for pair in asked.values()], dtype=float)
        sequences.extend(side, columns, np.nan_to_num(scores), np.nan_to_num(scores, nan=1.0))
    n, lead = len(pairs), lead_of(*sequences.common(0, 1))
    value = sum(x - y for x, y in pairs) / n
    lower, upper = sequences.difference(0, 1, alpha, on_new=True)
    is_open = lower <= 0.0 <= upper and value != 0.0
    mean_a, mean_b = (sum(pair[side] for pair in pairs) / n for side in (0, 1))
    return PairedComparison(
        a=labels(state)[row_a],
        b=labels(other_state)[row_b],
        n_examples=len(shared),
        scored_a=sum(score is not None for score in one.values()),
        scored_b=sum(score is not None for score in two.values()),
        both=sum(x >= RIGHT and y >= RIGHT for x, y in pairs),
        only_a=sum(x >= RIGHT > y for x, y in pairs),
        only_b=sum(y >= RIGHT > x for x, y in pairs),
        neither=sum(x < RIGHT and y < RIGHT for x, y in pairs),
        difference=Measure(value, min(lower, value), max(upper, value)),
        mean_a=mean_a,
        mean_b=mean_b,
        resolution=resolution(lead.differing, len(shared), alpha / 2),
        examples_needed=examples_needed(abs(value), lead.differing, alpha / 2) if is_open else None,
        graded=any(score not in (0.0, 1.0) for pair in pairs for score in pair),
        confidence=confidence,
        changed=tuple(_changes(state.candidates[row_a], other_state.candidates[row_b])),
        flips=tuple(Flip(id_, x, y) for id_, (x, y) in common.items() if x != y),
    )


def _scores(state: RunState, row: int) -> dict[str, float | None]:
    """Return a candidate's scores by example, in the order of asking; None where void."""
    seqs = (state.asks["candidate"] == row) & (state.told["state"] != State.PENDING)
    columns, scores = state.asks["example"][seqs].tolist(), state.told["score"][seqs].tolist()
    return {
        state.example_ids[column]: None if math.isnan(score) else score
        for column, score in zip(columns, scores, strict=True)
    }


def _changes(a: Candidate, b: Candidate) -> Iterator[str]:
    """List in what two candidates differ, for people."""
    if (a.provider, a.model) != (b.provider, b.model):
        yield f"model: {a.provider}/{a.model} -> {b.provider}/{b.model}"
    if a.prompt != b.prompt:
        same = a.prompt.name == b.prompt.name
        yield f"prompt: {a.prompt.name} " + ("with another text" if same else f"-> {b.prompt.name}")
    for name in sorted(a.params.keys() | b.params.keys()):
        if a.params.get(name) != b.params.get(name):
            yield f"{name}: {a.params.get(name, '(unset)')} -> {b.params.get(name, '(unset)')}"
