from __future__ import annotations

import pickle

import pytest

from bestarm_agent.stats.keyed_random import KeyedRandom


def test_generators_of_one_family_do_not_touch_each_other() -> None:
    family = KeyedRandom(3, "draws")
    expected = {index: family.at(index).random(4).tolist() for index in (5, 6)}
    five, six = family.at(5), family.at(6)
    found: dict[int, list[float]] = {5: [], 6: []}
    for _ in range(4):  # in turn
        found[5].append(five.random())
        found[6].append(six.random())
    assert found == expected
    again = family.at(5)
    assert again.random() == expected[5][0]
    assert five.random() not in expected[5]


def test_numbers_depend_on_seed_purpose_and_index_alone() -> None:
    family = KeyedRandom(3, "draws")
    family.at(9).random(7)
    assert family.at(2).random() == KeyedRandom(3, "draws").at(2).random()
    assert family.at(2).random() == pickle.loads(pickle.dumps(family)).at(2).random()
    others = [KeyedRandom(4, "draws").at(2), KeyedRandom(3, "ties").at(2), family.at(3)]
    assert len({family.at(2).random(), *(other.random() for other in others)}) == 4


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must be >= 0, got -1"):
        KeyedRandom(-1, "draws")
