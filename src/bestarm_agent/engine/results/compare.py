"""Two candidates, of one run or of two, compared on the examples that both were scored on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.outcome import RIGHT
from bestarm_agent.engine.results.pairs import row_of
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.mcnemar import mcnemar
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
    changed: tuple[str, ...]  # in what the two differ, for people
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
    one, two = _side(state, a), _side(state if other is None else other, b)
    if other is None and one.row == two.row:
        raise ConfigError(f"{a!r} cannot be compared with itself; name another candidate")
    if other is not None:
        _check_judges(state, other)
    shared = [id_ for id_, digest in one.examples.items() if two.examples.get(id_) == digest]
    both = one.scores.keys() & two.scores.keys() & set(shared)
    common = {id_: (x, two.scores[id_]) for id_, x in one.scores.items() if id_ in both}
    if not common:
        raise ConfigError(
            f"no example was scored for both {a!r} and {b!r}, so they cannot be compared; choose "
            f"others, or resume the run with a larger budget"
        )
    pairs = list(common.values())
    n = len(pairs)
    value = sum(x - y for x, y in pairs) / n
    return PairedComparison(
        a=one.label,
        b=two.label,
        n_examples=len(shared),
        scored_a=len(one.scores),
        scored_b=len(two.scores),
        both=sum(x >= RIGHT and y >= RIGHT for x, y in pairs),
        only_a=sum(x >= RIGHT > y for x, y in pairs),
        only_b=sum(y >= RIGHT > x for x, y in pairs),
        neither=sum(x < RIGHT and y < RIGHT for x, y in pairs),
        difference=Measure(value, *_interval(one, two, shared, 1.0 - confidence)),
        mean_a=sum(x for x, _ in pairs) / n,
        mean_b=sum(y for _, y in pairs) / n,
        p_value=float(mcnemar(sum(x > y for x, y in pairs), sum(y > x for x, y in pairs))),
        graded=any(score not in (0.0, 1.0) for pair in pairs for score in pair),
        confidence=confidence,
        changed=tuple(_changes(one.candidate, two.candidate)),
        flips=tuple(Flip(id_, x, y) for id_, (x, y) in common.items() if x != y),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One candidate and its results, by id of the example, in the order of its asks."""

    row: int
    label: str
    candidate: Candidate
    examples: Mapping[str, str]  # all of its run: digests by id
    scores: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]  # a void pair may hide any score in [0, 1]


def _side(state: RunState, name: str) -> _Side:
    row, ids = row_of(state, name), state.example_ids
    told = {
        ids[state.asks.pair(seq)[1]]: state.told.score_at(seq)
        for seq in np.flatnonzero(state.asks.candidate == row).tolist()
        if seq in state.told
    }
    return _Side(
        row=row,
        label=labels(state)[row],
        candidate=state.candidates[row],
        examples=dict(zip(ids, state.example_digests, strict=True)),
        scores={id_: score for id_, score in told.items() if score is not None},
        ranges={id_: (0.0, 1.0) if x is None else (x, x) for id_, x in told.items()},
    )


def _check_judges(one: RunState, other: RunState) -> None:
    if one.started and other.started and one.started.judge != other.started.judge:
        raise ConfigError(
            "different judges scored the two runs, so their scores cannot be compared; run one of "
            "the studies again with the other's scorer: its answers come from the reply cache"
        )


def _interval(one: _Side, two: _Side, shared: Sequence[str], alpha: float) -> tuple[float, float]:
    """Bound the difference over the shared examples."""
    columns = {id_: j for j, id_ in enumerate(shared)}
    sequences = PairedSequences(2, len(columns), alpha)
    common = [id_ for id_ in one.ranges if id_ in two.ranges and id_ in columns]
    places = np.array([columns[id_] for id_ in common], dtype=np.int64)
    for row, side in enumerate((one, two)):
        low, high = np.array([side.ranges[id_] for id_ in common]).T
        sequences.extend(row, places, low, high)
    return sequences.difference(0, 1, alpha)


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
