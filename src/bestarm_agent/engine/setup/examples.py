"""The examples of a run, drawn from the rows of a dataset: clusters, those kept back, slices.

Rows that are asked alike, or share a cluster, are one group: statements about new examples count
groups, and a group is kept back as a whole. Slices are examples with the same value in a field.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.study import StudyConfig
from bestarm_agent.domain.values import Example, Json, Slice, each_drawn
from bestarm_agent.errors import ConfigError, counted, nearest
from bestarm_agent.stats.keyed_random import KeyedRandom


@dataclass(frozen=True, slots=True)
class DrawnExamples:
    """The examples of a run, and those that are kept back."""

    examples: tuple[Example, ...]  # each row ``repeats`` times, without those kept back
    independent: tuple[int, ...]  # one of each group; empty: no example depends on another
    kept_rows: tuple[int, ...]  # numbers of the rows kept back, in a random order
    kept_back: tuple[Example, ...]
    kept_independent: tuple[int, ...]  # likewise of those kept back


def draw_examples(
    config: StudyConfig, rows: Sequence[Example], copies: Sequence[int]
) -> DrawnExamples:
    """Draw the examples of a run; ``copies`` is the group of each row by what is asked."""
    groups = copies
    if config.dataset.cluster is not None:
        groups = united(copies, clusters_of(rows, config.dataset.cluster))
    held, seed = _kept_back(config, groups), config.selector.seed
    others = sorted(set(range(len(rows))).difference(held))
    return DrawnExamples(
        examples=each_drawn([rows[number] for number in others], config.repeats),
        independent=one_of_each([groups[number] for number in others], seed),
        kept_rows=held,
        kept_back=tuple(rows[number] for number in held),
        kept_independent=one_of_each([groups[number] for number in held], seed),
    )


def _kept_back(config: StudyConfig, groups: Sequence[int]) -> tuple[int, ...]:
    """Draw the rows that only the winner answers, in a random order.

    Rows of one group stay together: what the selection saw of a row would tell of its copy.
    """
    # Gate and certify have verdicts of their own and look for no winner, so nothing is kept back.
    if config.confirm is None or config.gate is not None or config.certify is not None:
        return ()
    rows: dict[int, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    if len(rows) == 1:
        alike = ", all asked alike," * (len(groups) > 1)
        raise ConfigError(
            f"confirm: {counted(len(groups), 'example')}{alike} cannot be parted into some to "
            f"choose by and some kept back; add examples, or leave `confirm` out"
        )
    # Groups are drawn rather than rows, in an order of their own stream of the seed: keeping
    # more back adds groups to those kept before and changes none.
    order = KeyedRandom(config.selector.seed, "confirm-order").at(0).permutation(len(rows))
    kept = order[: max(1, round(config.confirm.share * len(rows)))].tolist()
    members = list(rows.values())
    return tuple(row for number in kept for row in members[number])


LENGTH = "length_bucket"
_BUCKETS = ("1 shortest", "2", "3", "4 longest")
_MISSING = "(none)"
_MOST = 50  # values of a field


def clusters_of(examples: Sequence[Example], field: str) -> list[str]:
    """Return the cluster of each example: the value of a field.

    Raises:
        ConfigError: an example does not have the field, or its value is a list or a mapping.
    """
    key = "dataset.cluster"
    values = list(_values(examples, field, key))
    if _MISSING in values:
        name = examples[values.index(_MISSING)].id
        raise ConfigError(f"{key}: example `{name}` has no `{field}`; say of each where it belongs")
    return values


def united(groups_a: Sequence[Hashable], groups_b: Sequence[Hashable]) -> list[int]:
    """Join groups that share a member; return the first member of each one's group.

    Two members are in one group if a chain of equal values, in either sequence, links them.

    Example:
        >>> united(["a", "a", "b", "c"], [1, 2, 2, 3])
        [0, 0, 0, 3]
    """
    # Union-find with path halving. Roots are always the smaller index, so the result is the first
    # member.
    first = list(range(len(groups_a)))  # of the group, or nearer to it than the member itself

    def root(member: int) -> int:
        while first[member] != member:
            first[member] = member = first[first[member]]
        return member

    for groups in (groups_a, groups_b):
        known = dict[Hashable, int]()
        for member, group in enumerate(groups):
            a, b = sorted((root(member), root(known.setdefault(group, member))))
            first[b] = a
    return [root(member) for member in range(len(groups_a))]


def one_of_each(groups: Sequence[int], seed: int) -> tuple[int, ...]:
    """Draw one example of each group, whatever their size; return them, rising.

    The result is empty if no group has two examples. A random member of each keeps the order
    uniform over groups; picking the first example met would favour large groups.
    """
    if len(set(groups)) == len(groups):
        return ()
    # The last of a group in a random order is a uniformly random member, and the dict keeps it.
    # Picking the first example met instead would favour large groups, as one of theirs is met
    # sooner.
    order = KeyedRandom(seed, "one-of-each").at(0).permutation(len(groups)).tolist()
    return tuple(sorted({groups[row]: row for row in order}.values()))


def slices_of(examples: Sequence[Example], by: Sequence[str]) -> tuple[Slice, ...]:
    """Return a slice for each value of each field, in the order of fields and values.

    Slices of one field share no example, and those of two fields may. A field with one value is
    no slice of the examples and is left out.

    Raises:
        ConfigError: no example has the field, or its values are too many, or lists or mappings.
    """
    slices: list[Slice] = []
    for field in dict.fromkeys(by):
        columns: dict[str, list[int]] = {}
        for column, value in enumerate(_values(examples, field, "slices.by")):
            columns.setdefault(value, []).append(column)
        if len(columns) > _MOST:
            raise ConfigError(
                f"slices.by: `{field}` has {len(columns):,} different values, at most {_MOST} make "
                f"slices; name a field that groups the examples"
            )
        if len(columns) > 1:
            slices += [Slice(f"{field}={name}", tuple(columns[name])) for name in sorted(columns)]
    return tuple(slices)


def _values(examples: Sequence[Example], field: str, key: str) -> Iterator[str]:
    known = {name: None for example in examples for name in example.inputs}
    if field not in known and field == LENGTH:
        return _length_buckets(examples)
    if field not in known:
        raise ConfigError(
            f"{key}: no example has the field `{field}`; {nearest(field, [*known, LENGTH])}"
        )
    return (_text(example.inputs.get(field), field, key) for example in examples)


def _text(value: Json, field: str, key: str) -> str:
    if value is None or value == "":
        return _MISSING
    if isinstance(value, list | tuple | dict):
        raise ConfigError(f"{key}: `{field}` holds lists or mappings; name a field of values")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 1.0 in one row and 1 in another are the same
    return str(value).lower() if isinstance(value, bool) else str(value)


def _length_buckets(examples: Sequence[Example]) -> Iterator[str]:
    """Yield the quarter to which each example belongs by the length of its inputs as text."""
    lengths = np.array([sum(len(str(value)) for value in row.inputs.values()) for row in examples])
    # Quartiles of the dataset itself, since no fixed length is long for every task.
    edges = np.quantile(lengths, (0.25, 0.5, 0.75))
    return (_BUCKETS[k] for k in np.searchsorted(edges, lengths).tolist())
