from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.preselection.records import Record, RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router, quality_by_place
from bestarm_agent.store.store import Store

pytest.importorskip("sklearn", reason="needs the extra preselect")

NAMES = [
    RoutedCandidate(name="poet", usd=0.01),
    RoutedCandidate(name="sums", usd=0.001),
    RoutedCandidate(name="other"),
]
FAST = RouterSettings(collect=10, n_components=3)


def poem(i: int) -> str:
    return f"write a poem about the colour number {i}"


def record(i: int) -> Record:
    """Half of the prompts are poems, which the poet wins; sums win the others."""
    is_poem = i % 2 == 0
    text = poem(i) if is_poem else f"add {i} and {i + 3}"
    found = {"poet": float(is_poem), "sums": float(not is_poem), "other": 0.3}
    return Record(prompt=text, shown=("poet", "sums", "other"), scores=found)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


@pytest.mark.parametrize("rule", ["linucb", "cppl"])
def test_it_learns_who_suits_which_prompts(rule: Literal["linucb", "cppl"]) -> None:
    async def main() -> None:
        settings = RouterSettings(rule=rule, collect=10, n_components=3)
        async with Router.open("r", Store.in_memory(), NAMES, settings) as router:
            for i in range(200):
                assert router.learn(record(i))
            assert (router.n_learnt, router.n_waiting) == (200, 0)
            assert router.choose(poem(999), 1) == ["poet"]
            assert router.choose("add 55 and 58", 1) == ["sums"]

    run(main)


@pytest.mark.parametrize("cut", [4, 60])
def test_a_router_that_was_closed_goes_on_as_one_that_was_not(tmp_path: Path, cut: int) -> None:
    """Before features are made (after 10 records), and later."""

    async def main() -> None:
        where = tmp_path / "runs.sqlite"
        async with Router.open("whole", where, NAMES, FAST) as whole:
            for i in range(100):
                whole.learn(record(i))
        async with Router.open("parted", where, NAMES, FAST) as router:
            for i in range(cut):
                router.learn(record(i))
        async with Router.open("parted", where) as router:
            assert router.version == 1
            assert router.candidates == tuple(NAMES)
            for i in range(cut, 100):
                router.learn(record(i))
            for i in range(20):
                assert router.choose(poem(i), 3) == whole.choose(poem(i), 3)
        assert router.version == 2

    run(main)


def test_choices_before_features_are_random_and_the_same_for_the_same_state() -> None:
    async def main() -> None:
        async with Router.open("r", Store.in_memory(), NAMES, FAST) as router:
            chosen = [router.choose(poem(i), 1)[0] for i in range(60)]
            assert set(chosen) == {"poet", "sums", "other"}
            assert chosen == [router.choose(poem(i), 1)[0] for i in range(60)]
            assert not router.ready
            assert await router.save() == 0  # nothing was learnt

    run(main)


def test_what_says_nothing_is_not_learnt() -> None:
    async def main() -> None:
        async with Router.open("r", Store.in_memory(), NAMES, FAST) as router:
            assert not router.learn(Record(prompt="x", shown=("poet",), ranking=("poet",)))
            assert not router.learn(Record(prompt="x", shown=("poet", "sums"), ranking=()))
            assert router.n_waiting == 0
            router.prepare(["one prompt", "another thing"])
            equal = Record(prompt="x", shown=("poet", "sums"), scores={"poet": 1.0, "sums": 1.0})
            assert not router.learn(equal)

    run(main)


def test_dollars_weigh_against_winners() -> None:
    """The poet wins two times of three, and costs more than that is worth."""

    async def main(cost_weight: float) -> list[str]:
        priced = [RoutedCandidate(name="poet", usd=0.01), RoutedCandidate(name="sums", usd=0.001)]
        settings = RouterSettings(cost_weight=cost_weight, collect=5)
        async with Router.open("r", Store.in_memory(), priced, settings) as router:
            for i in range(90):
                winner = "sums" if i % 3 == 0 else "poet"
                router.learn(Record(prompt=poem(i), shown=("poet", "sums"), ranking=(winner,)))
            return router.choose(poem(99), 1)

    assert asyncio.run(main(0.0)) == ["poet"]
    assert asyncio.run(main(100.0)) == ["sums"]  # .009 dollars outweigh a lead of a third


def test_a_ranking_as_qualities() -> None:
    shown = ("a", "b", "c", "d")
    assert quality_by_place(Record(prompt="x", shown=shown, ranking=("c",))) == {
        "a": 0,
        "b": 0,
        "c": 1,
        "d": 0,
    }
    whole = quality_by_place(Record(prompt="x", shown=shown, ranking=("d", "b", "a", "c")))
    assert whole == pytest.approx({"d": 1, "b": 2 / 3, "a": 1 / 3, "c": 0})
    assert quality_by_place(Record(prompt="x", shown=("a", "b"), ranking=("b", "a"))) == {
        "a": 0,
        "b": 1,
    }


def test_dollars_weigh_against_scores() -> None:
    """Both are right; the poet costs ten times as much."""

    async def main() -> None:
        priced = [RoutedCandidate(name="poet", usd=0.01), RoutedCandidate(name="sums", usd=0.001)]
        settings = RouterSettings(cost_weight=10.0, collect=5)
        async with Router.open("r", Store.in_memory(), priced, settings) as router:
            for i in range(60):
                found = {"poet": 1.0, "sums": 1.0}
                router.learn(Record(prompt=poem(i), shown=("poet", "sums"), scores=found))
            assert router.choose(poem(99), 1) == ["sums"]
            billed = Record(
                prompt="x", shown=("poet", "sums"), scores=found, usd={"poet": 0.0, "sums": 0.5}
            )
            assert router.learn(billed)
        with pytest.raises(ConfigError, match="price of 'other' is not known"):
            Router("r", Store.in_memory(), NAMES, settings)

    run(main)


def test_prices_that_are_given_replace_the_known_ones(tmp_path: Path) -> None:
    async def main() -> None:
        where, dear = tmp_path / "runs.sqlite", RoutedCandidate(name="sums", usd=0.5)
        async with Router.open("r", where, NAMES, FAST) as router:
            router.learn(record(0))
        async with Router.open("r", where, [dear, RoutedCandidate(name="poet")]) as router:
            assert [one.usd for one in router.candidates] == [0.01, 0.5, None]
        async with Router.open("r", where) as router:
            assert (router.candidates[1], router.version) == (dear, 2)

    run(main)


def test_only_those_that_can_run_are_chosen() -> None:
    async def main() -> None:
        async with Router.open("r", Store.in_memory(), NAMES, FAST) as router:
            for i in range(40):
                assert set(router.choose(poem(i), 2, among=["poet", "other"])) == {"poet", "other"}
                router.learn(record(i))
            with pytest.raises(ConfigError, match=r"k must be in 1\.\.1.*got 2"):
                router.choose("x", 2, among=["poet"])
            with pytest.raises(ConfigError, match="knows no candidate 'pote'; did you mean `poet`"):
                router.choose("x", 1, among=["pote"])

    run(main)


def test_prompts_that_never_differ_leave_the_best_on_the_whole() -> None:
    async def main() -> None:
        async with Router.open("r", Store.in_memory(), NAMES, FAST) as router:
            for _ in range(60):
                router.learn(Record(prompt="ping", shown=("poet", "sums"), ranking=("sums",)))
            assert router.choose("ping", 1) == ["sums"]
            data = await router.save()
            assert data == 1

    run(main)


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async def overtake(store: Store) -> None:
        async with Router.open("r", store) as late:
            async with Router.open("r", store) as early:
                early.learn(record(1))
            late.learn(record(2))

    async def main() -> None:
        where = tmp_path / "runs.sqlite"
        async with Router.open("r", where, NAMES, FAST) as router:
            router.learn(record(0))
        async with await Store.connect(where) as store:
            with pytest.raises(StoreError, match="another process stored it meanwhile"):
                await overtake(store)
            async with Router.open("r", store) as router:
                assert (router.version, router.n_waiting) == (2, 2)

    run(main)


def test_what_does_not_fit_the_router_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store.in_memory()
        with pytest.raises(ConfigError, match="no router 'r' in this store"):
            async with Router.open("r", store):
                pass
        async with Router.open("r", store, NAMES, FAST) as router:
            router.learn(record(0))
            router.prepare(["one prompt", "another thing"])
            with pytest.raises(ConfigError, match="has its features already"):
                router.prepare()
            with pytest.raises(ConfigError, match="a prompt needs text"):
                router.choose("", 1)
        with pytest.raises(ConfigError, match="knows no candidate 'new'"):
            async with Router.open("r", store, [*NAMES, RoutedCandidate(name="new")]):
                pass
        with pytest.raises(ConfigError, match="two candidates are called 'poet'"):
            async with Router.open("r", store, [NAMES[0], NAMES[0]]):
                pass
        with pytest.raises(ConfigError, match="other settings"):
            async with Router.open("r", store, settings=RouterSettings()):
                pass
        with pytest.raises(StoreError, match="there is no store"):
            async with Router.open("r", tmp_path / "absent.sqlite"):
                pass
        with pytest.raises(ConfigError, match="at least 2 candidates, got 1"):
            Router("r", store, NAMES[:1], FAST)
        with pytest.raises(ConfigError, match="two candidates are called 'poet'"):
            Router("r", store, [NAMES[0], NAMES[0]], FAST)
        with pytest.raises(ConfigError, match="no prompts to make features from"):
            Router("r", store, NAMES, FAST).prepare()

    run(main)


def test_what_is_no_router_of_this_version_is_refused() -> None:
    async def stored(data: bytes) -> Store:
        store = Store.in_memory()
        await store.put_state("router/r", data, after=0)
        return store

    async def main() -> None:
        async with Router.open("r", Store.in_memory(), NAMES, FAST) as router:
            whole = router._dumped()
        file = io.BytesIO()
        np.savez_compressed(file, facts=np.array(json.dumps({"settings": {"source": "given"}})))
        for data in (b"", b"garbage", whole[:100], file.getvalue()):
            with pytest.raises(StoreError, match="is damaged, or of another version"):
                async with Router.open("r", await stored(data)):
                    pass

    run(main)
