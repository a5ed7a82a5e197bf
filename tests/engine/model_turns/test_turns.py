"""Turns of models that share a memory, by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf

from bestarm_agent.engine.model_turns.turns import ModelTurns
from bestarm_agent.providers.base import Footprint


@dataclass
class Box:
    """A memory of some size; each model takes 10 and loads in 6 s, a call takes 0.5 s."""

    memory_bytes: int = 10
    loading_share: float | None = 0.1
    sizes: dict[str, int] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    load_seconds: float = 6.0
    kept: set[str] = field(default_factory=set)

    def pin(self, model: str) -> None:
        self.kept.add(model)

    def footprint(self, model: str) -> Footprint:
        holder = model.partition("+")[0]  # "base+adapter" needs its base alone
        if holder not in self.measured:
            return Footprint(holder)
        return Footprint(holder, self.load_seconds, 0.5)

    def fits(self, holders: Collection[str]) -> bool:
        return sum(self.sizes.get(holder, 10) for holder in holders) <= self.memory_bytes


def turns_of(box: Box, *models: str, judges: Sequence[str] = ()) -> ModelTurns:
    turns = ModelTurns(box, 0.1, judges)
    for model in models:
        turns.add(model)
    return turns


def ask(turns: ModelTurns, model: str, times: int = 1) -> None:
    for _ in range(times):
        turns.note(model)


def shown(turns: ModelTurns) -> set[str]:
    holders = turns.open_to()
    assert holders is not None, "everything may be asked"
    return set(holders)


def test_before_the_first_ask_anybody_may_be_asked() -> None:
    turns = turns_of(Box(), "a", "b")
    assert turns.open_to() is None
    assert turns.left() == 1


def test_the_first_turn_gives_every_candidate_of_the_model_an_ask() -> None:
    turns = turns_of(Box(), "a", "a", "a", "b")
    ask(turns, "a")
    assert shown(turns) == {"a"}
    assert turns.left() == 2
    ask(turns, "a", 2)
    assert turns.open_to() is None
    assert turns.left() == 1


def test_a_newcomer_puts_out_the_one_before_it() -> None:
    turns = turns_of(Box(), "a", "b", "b")
    ask(turns, "a")
    ask(turns, "b")
    assert shown(turns) == {"b"}


def test_turns_grow_with_the_asks_until_the_swap_pays() -> None:
    box = Box()
    turns = turns_of(box, "a", "b")
    lengths = []
    for model in "ab" * 8:
        ask(turns, model)
        length = 1
        while turns.open_to() is not None:
            ask(turns, model)
            length += 1
        lengths.append(length)
        box.measured |= {"a", "b"} if len(lengths) == 12 else set()
    # half of all asks, the turn's own included: each is nearly as long as all before it together
    assert lengths[:7] == [1, 1, 1, 2, 4, 8, 16]
    assert lengths[11] == 512
    assert lengths[12:] == [120] * 4, "6 s of loading are a tenth of 120 calls of 0.5 s"


def test_a_quick_swap_needs_a_short_turn() -> None:
    box = Box(measured={"a", "b"}, load_seconds=0.1)
    turns = turns_of(box, *"a" * 50, *"b" * 50)
    ask(turns, "a")
    assert turns.left() == 1, "0.1 s of loading are a tenth of 2 calls"
    ask(turns, "a")
    assert turns.open_to() is None


def test_the_selector_stays_free_until_it_leaves() -> None:
    turns = turns_of(Box(), "a", "b", "b")
    ask(turns, "a", 20)
    assert turns.open_to() is None, "nothing is swapped while it stays"
    ask(turns, "b")
    assert shown(turns) == {"b"}


def test_those_unasked_for_longest_leave() -> None:
    turns = turns_of(Box(memory_bytes=20), *"aaa", *"bbb", *"ccc")
    ask(turns, "a")
    assert shown(turns) == {"a", "b", "c"}, "there is room for one more, whichever"
    ask(turns, "b")
    assert shown(turns) == {"a", "b"}
    ask(turns, "a")
    ask(turns, "c")
    assert shown(turns) == {"a", "c"}


@dataclass
class TwoDevices(Box):
    """Models whose names end with a device; "large" takes both. A device holds one model."""

    def fits(self, holders: Collection[str]) -> bool:
        taken = "".join("01" if name == "large" else name[-1] for name in holders)
        return len(taken) == len(set(taken))


def test_who_is_not_in_the_way_stays() -> None:
    turns = turns_of(TwoDevices(), *["a0"] * 3, *["b1"] * 3, *["c0"] * 3, *["large"] * 3)
    ask(turns, "a0")
    assert shown(turns) == {"a0", "b1"}
    ask(turns, "b1", 2)
    ask(turns, "c0")
    assert shown(turns) == {"b1", "c0"}, "though b1 was unasked for longer than a0"
    ask(turns, "b1", 2)
    ask(turns, "large")
    assert shown(turns) == {"large"}


def test_a_large_one_puts_several_out() -> None:
    turns = turns_of(Box(memory_bytes=20, sizes={"c": 20}), "a", "b", *"ccc")
    ask(turns, "a")
    ask(turns, "b")
    ask(turns, "c")
    assert shown(turns) == {"c"}


def test_what_fits_together_takes_no_turns() -> None:
    turns = turns_of(Box(memory_bytes=30), "a", "b", "c")
    for model in "abcabc":
        ask(turns, model)
        assert turns.open_to() is None
        assert turns.left() == inf


def test_adapters_of_one_base_share_its_turn() -> None:
    turns = turns_of(Box(), "a+x", "a+y", "b")
    assert turns.holder("a+x") == "a"
    ask(turns, "a+x")
    assert shown(turns) == {"a"}
    ask(turns, "a+y")
    ask(turns, "b")
    assert turns.open_to() is None, "one candidate, one ask"


def test_a_turn_ends_early_once() -> None:
    turns = turns_of(Box(), *"aaa", "b", "b")
    ask(turns, "a")
    assert turns.end() is True
    assert turns.open_to() is None
    assert turns.end() is False
    ask(turns, "b")
    assert shown(turns) == {"b"}, "the next turn is one again"


def test_a_judge_that_fits_beside_each_model_stays_and_takes_its_room() -> None:
    """Room for two and a half: for any one of the three models beside the judge, not for two."""
    box = Box(memory_bytes=25)
    turns = turns_of(box, "a", "a", "b", "c", judges=["judge"])
    assert box.kept == {"judge"}
    assert not turns.is_crowded
    ask(turns, "a")
    assert shown(turns) == {"a"}
    ask(turns, "a")
    ask(turns, "b")
    assert turns.open_to() is None, "one candidate, one ask"


def test_a_judge_that_fits_beside_all_takes_no_turns() -> None:
    turns = turns_of(Box(memory_bytes=30), "a", "b", judges=["judge"])
    ask(turns, "a")
    assert (turns.open_to(), turns.left()) == (None, inf)


def test_a_judge_that_is_one_of_the_candidates_needs_no_room_of_its_own() -> None:
    turns = turns_of(Box(memory_bytes=20), "a", "b", judges=["a"])
    assert not turns.is_crowded
    assert turns.left() == inf


def test_a_model_too_large_to_share_makes_the_memory_crowded() -> None:
    box = Box(memory_bytes=25, sizes={"b": 16})
    assert not turns_of(box, "a", judges=["judge"]).is_crowded
    assert turns_of(box, "a", "b", judges=["judge"]).is_crowded


def test_where_it_is_crowded_even_one_model_has_turns_and_loading_counts_twice() -> None:
    """M = 2 with the judge; (6 + 6) / (0.1 (0.5 + 0.5)) = 120 asks are the most."""
    box = Box(measured={"a", "judge"})
    turns = turns_of(box, "a", "a", "a", judges=["judge"])
    lengths = []
    for _ in range(8):
        ask(turns, "a")
        length = 1
        while turns.open_to() is not None:
            ask(turns, "a")
            length += 1
        lengths.append(length)
        turns.clear()  # the judge had its turn
    assert lengths == [3, 3, 5, 10, 20, 40, 80, 120]


def test_without_the_judge_times_loading_does_not_count_yet() -> None:
    turns = turns_of(Box(measured={"a"}), *"a" * 200, judges=["judge"])
    ask(turns, "a")
    assert turns.left() == 199
