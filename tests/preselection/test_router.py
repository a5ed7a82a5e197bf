from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

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


def made(candidates: list[RoutedCandidate] = NAMES, **settings: Any) -> Router:  # noqa: ANN401
    chosen = RouterSettings(**settings) if settings else FAST
    return Router("r", Store.in_memory(), candidates, chosen)


@pytest.mark.parametrize("rule", ["linucb", "cppl"])
def test_it_learns_who_suits_which_prompts(rule: str) -> None:
    router = made(rule=rule, collect=10, n_components=3)
    for i in range(200):
        assert router.learn(record(i))
    assert (router.n_learnt, router.n_waiting) == (200, 0)
    assert router.choose(poem(999), 1) == ["poet"]
    assert router.choose("add 55 and 58", 1) == ["sums"]


@pytest.mark.parametrize("cut", [4, 60])
def test_a_router_that_was_closed_goes_on_as_one_that_was_not(tmp_path: Path, cut: int) -> None:
    """Before features are made (after 10 records), and later."""

    async def scene() -> None:
        where, whole = tmp_path / "runs.sqlite", made()
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

    asyncio.run(scene())


def test_choices_before_features_are_random_and_the_same_for_the_same_state() -> None:
    router = made()
    chosen = [router.choose(poem(i), 1)[0] for i in range(60)]
    assert set(chosen) == {"poet", "sums", "other"}
    assert chosen == [router.choose(poem(i), 1)[0] for i in range(60)]
    assert not router.ready
    assert asyncio.run(router.save()) == 0  # nothing was learnt


def test_what_says_nothing_is_not_learnt() -> None:
    router = made()
    assert not router.learn(Record(prompt="x", shown=("poet",), ranking=("poet",)))
    assert not router.learn(Record(prompt="x", shown=("poet", "sums"), ranking=()))
    assert router.n_waiting == 0
    router.prepare(["one prompt", "another thing"])
    equal = Record(prompt="x", shown=("poet", "sums"), scores={"poet": 1.0, "sums": 1.0})
    assert not router.learn(equal)


@pytest.mark.parametrize(("cost_weight", "chosen"), [(0.0, "poet"), (100.0, "sums")])
def test_dollars_weigh_against_winners(cost_weight: float, chosen: str) -> None:
    """The poet wins two times of three; .009 dollars outweigh a lead of a third."""
    router = made(NAMES[:2], cost_weight=cost_weight, collect=5)
    for i in range(90):
        winner = "sums" if i % 3 == 0 else "poet"
        router.learn(Record(prompt=poem(i), shown=("poet", "sums"), ranking=(winner,)))
    assert router.choose(poem(99), 1) == [chosen]


def test_dollars_weigh_against_scores() -> None:
    """Both are right; the poet costs ten times as much."""
    router, found = made(NAMES[:2], cost_weight=10.0, collect=5), {"poet": 1.0, "sums": 1.0}
    for i in range(60):
        router.learn(Record(prompt=poem(i), shown=("poet", "sums"), scores=found))
    assert router.choose(poem(99), 1) == ["sums"]
    billed = Record(
        prompt="x", shown=("poet", "sums"), scores=found, usd={"poet": 0.0, "sums": 0.5}
    )
    assert router.learn(billed)
    with pytest.raises(ConfigError, match="price of 'other' is not known"):
        made(cost_weight=10.0)


@pytest.mark.parametrize(
    ("shown", "ranking", "qualities"),
    [
        (("a", "b", "c", "d"), ("c",), {"a": 0, "b": 0, "c": 1, "d": 0}),
        (("a", "b", "c", "d"), ("d", "b", "a", "c"), {"d": 1, "b": 2 / 3, "a": 1 / 3, "c": 0}),
        (("a", "b"), ("b", "a"), {"a": 0, "b": 1}),
    ],
)
def test_a_ranking_as_qualities(
    shown: tuple[str, ...], ranking: tuple[str, ...], qualities: dict[str, float]
) -> None:
    found = quality_by_place(Record(prompt="x", shown=shown, ranking=ranking))
    assert found == pytest.approx(qualities)


def test_prices_that_are_given_replace_the_known_ones(tmp_path: Path) -> None:
    async def scene() -> None:
        where, dear = tmp_path / "runs.sqlite", RoutedCandidate(name="sums", usd=0.5)
        async with Router.open("r", where, NAMES, FAST) as router:
            router.learn(record(0))
        async with Router.open("r", where, [dear, RoutedCandidate(name="poet")]) as router:
            assert [one.usd for one in router.candidates] == [0.01, 0.5, None]
        async with Router.open("r", where) as router:
            assert (router.candidates[1], router.version) == (dear, 2)

    asyncio.run(scene())


def test_only_those_that_can_run_are_chosen() -> None:
    router = made()
    for i in range(40):
        assert set(router.choose(poem(i), 2, among=["poet", "other"])) == {"poet", "other"}
        router.learn(record(i))
    with pytest.raises(ConfigError, match=r"k must be in 1\.\.1.*got 2"):
        router.choose("x", 2, among=["poet"])
    with pytest.raises(ConfigError, match="knows no candidate 'pote'; did you mean `poet`"):
        router.choose("x", 1, among=["pote"])


def test_prompts_that_never_differ_leave_the_best_on_the_whole() -> None:
    router = made()
    for _ in range(60):
        router.learn(Record(prompt="ping", shown=("poet", "sums"), ranking=("sums",)))
    assert router.choose("ping", 1) == ["sums"]
    assert asyncio.run(router.save()) == 1


def test_two_writers_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async def overtake(store: Store) -> None:
        async with Router.open("r", store) as late:
            async with Router.open("r", store) as early:
                early.learn(record(1))
            late.learn(record(2))

    async def scene() -> None:
        where = tmp_path / "runs.sqlite"
        async with Router.open("r", where, NAMES, FAST) as router:
            router.learn(record(0))
        async with await Store.connect(where) as store:
            with pytest.raises(StoreError, match="another process stored it meanwhile"):
                await overtake(store)
            async with Router.open("r", store) as router:
                assert (router.version, router.n_waiting) == (2, 2)

    asyncio.run(scene())


def test_what_does_not_fit_the_router_is_refused(tmp_path: Path) -> None:
    router = made()
    router.learn(record(0))
    router.prepare(["one prompt", "another thing"])
    for message, make in (
        ("has its features already", router.prepare),
        ("a prompt needs text", lambda: router.choose("", 1)),
        ("no prompts to make features from", lambda: made().prepare()),
        ("at least 2 candidates, got 1", lambda: made(NAMES[:1])),
        ("two candidates are called 'poet'", lambda: made([NAMES[0], NAMES[0]])),
    ):
        with pytest.raises(ConfigError, match=message):
            make()

    async def scene(*, where: Path = tmp_path / "runs.sqlite", **given: Any) -> None:  # noqa: ANN401
        async with Router.open("r", where, **given):
            pass

    with pytest.raises(StoreError, match="there is no store"):
        asyncio.run(scene())
    asyncio.run(scene(candidates=NAMES, settings=FAST))
    with pytest.raises(ConfigError, match="no router 'r' in this store"):
        asyncio.run(scene())


def test_what_is_no_router_of_this_version_is_refused(tmp_path: Path) -> None:
    async def opened(**given: Any) -> None:  # noqa: ANN401
        store = Store.in_memory()
        await store.put_state("router/r", given.pop("data"), after=0)
        async with Router.open("r", store, **given):
            pass

    router = made()
    router.learn(record(0))
    whole, file = router._dumped(), io.BytesIO()
    for message, given in (
        ("knows no candidate 'new'", {"candidates": [*NAMES, RoutedCandidate(name="new")]}),
        ("two candidates are called 'poet'", {"candidates": [NAMES[0], NAMES[0]]}),
        ("other settings", {"settings": RouterSettings()}),
    ):
        with pytest.raises(ConfigError, match=message):
            asyncio.run(opened(data=whole, **given))
    np.savez_compressed(file, facts=np.array(json.dumps({"settings": {"source": "given"}})))
    for data in (b"", b"garbage", whole[:100], file.getvalue()):
        with pytest.raises(StoreError, match="is damaged, or of another version"):
            asyncio.run(opened(data=data))
