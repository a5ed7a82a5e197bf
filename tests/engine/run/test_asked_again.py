"""A run asked again, its replies from the cache: it takes the same course, and decides alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.domain.events import Asked, BudgetSet, Event, Started, Stopped, Told
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine import earlier
from bestarm_agent.engine.earlier import EarlierOrder, earlier_order
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.selectors.types import Problem
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.store import Store
from bestarm_agent.study import Study
from tests.support.api_studies import KEYS
from tests.support.fake_api import FakeApi
from tests.support.fake_api.answers import add
from tests.support.fake_api.calls import Call, chance
from tests.support.store_runs import AT, asked, grid, started, told
from tests.support.studies import events_of, study_file

MODELS = {"alpha": 0.62, "beta": 0.8, "gamma": 0.7}
PROMPTS = {"plain": 0.0, "steps": 0.1, "only": 0.06, "poor": -0.2}
PRICE = {"input": 1, "output": 5}


def answer(seed: int) -> Any:  # noqa: ANN401
    """Say what models say: right or wrong by (seed, model, question, prompt)."""

    def said(call: Call) -> str:
        prompt = call.question.split(":")[0]
        share = MODELS[call.model] + PROMPTS[prompt]
        right = add(call.question)
        # what is hard for one is hard for the others, mostly
        hard = 0.6 * chance(seed, call.question.split(":")[1])
        is_right = hard + 0.4 * chance(seed, call.model, call.question) < 0.15 + 0.7 * share
        return right if is_right else f"{right}1"

    return said


def write(folder: Path, url: str, **more: Any) -> Path:  # noqa: ANN401
    sums = [{"a": 17 + i, "b": 5 + 3 * i, "answer": str(22 + 4 * i)} for i in range(60)]
    prompts = [{name: name + ": {{ a }}+{{ b }}"} for name in PROMPTS]
    study = {
        "models": [f"openai/{name}" for name in MODELS],
        "prompts": prompts,
        "params": {"max_tokens": 16},
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": "numeric",
        "providers": {"openai": {"base_url": url, "key": "OPENAI_API_KEY", "price": PRICE}},
        **more,
    }
    return study_file(folder, {"sums": sums}, **study)


def course(path: Path) -> list[int]:
    """Return the asks of the latest run (their numbers), and its outcomes (~ of them), in order."""
    pairs = (event for event in events_of(path) if isinstance(event, Asked | Told))
    return [event.seq if isinstance(event, Asked) else ~event.seq for event in pairs]


async def run_twice(
    folder: Path,
    seed: int,
    **more: Any,  # noqa: ANN401
) -> tuple[list[Standing], list[list[int]], int]:
    """Run a study, then again; return both standings and courses, and the calls of the second."""
    n = iter(range(10_000))
    async with FakeApi(answer=answer(seed), key=KEYS["OPENAI_API_KEY"]) as api:
        api.latency = lambda _call: 0.03 * chance(seed, "wait", next(n)) ** 3
        path = write(folder, api.openai_url, **more)
        standings, courses = [], []
        for _ in range(2):
            before = len(api.received)
            async with Study.open(path) as study:
                standings.append(await study.run())
            courses.append(await asyncio.to_thread(course, path))
        return standings, courses, len(api.received) - before


@pytest.mark.parametrize("seed", range(5))
def test_a_run_and_its_repetition_decide_alike(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    selector = {"name": "auto", "seed": seed}
    (first, again), courses, n_calls = asyncio.run(run_twice(tmp_path, seed, selector=selector))
    assert n_calls == 0
    assert again.decision == first.decision
    assert courses[1] == courses[0]


@pytest.mark.parametrize("name", ["auto", "ucb-e"])
def test_replies_from_the_cache_count_for_their_price(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    dear = {
        name: {"input": price, "output": price}
        for name, price in zip(MODELS, (1, 20, 0.1), strict=True)
    }
    models = [{"model": f"openai/{name}", "options": {"price": dear[name]}} for name in MODELS]
    more = {"models": models, "selector": {"name": name, "per": "dollar"}}
    _, courses, _ = asyncio.run(run_twice(tmp_path, 0, **more, budget={"answers": 150}))
    assert len(courses[0]) == 300
    assert courses[1] == courses[0]


def rule() -> Pairs:
    return Pairs(Uniform(Problem(4, 10)))


def begun_as(*offered: list[bool]) -> list[Asked]:
    """Return the asks of a run whose rule was offered these candidates, one ask after another."""
    pairs, asks = rule(), list[Asked]()
    for mask in offered:
        [ask] = pairs.ask(allowed=np.array(mask))
        excluded = tuple((i, i) for i, is_offered in enumerate(mask) if not is_offered)
        asks.append(Asked(ask.seq, *ask.pair, ask.reason, excluded))
    return asks


def order_of(*events: Event) -> EarlierOrder:
    return EarlierOrder(map(line_of, events))


def test_asks_and_outcomes_come_as_they_came_before() -> None:
    everybody, one_only = [True] * 4, [False, False, True, False]
    first, second = begun_as(everybody, one_only)
    order, pairs = order_of(first, second, told(1), told(0)), rule()
    for was, offered in ((first, everybody), (second, one_only)):
        assert order.turn([(0, True)]) is None, "an ask is next"
        followed = order.ask(pairs, None, None)
        assert followed is not None
        assert [ask.pair for ask in followed[0]] == [(was.candidate, was.example)]
        assert followed[1].tolist() == offered
    assert order.ask(pairs, None, None) is None, "an outcome is next"
    assert order.turn([(0, True)]) is None, "and not this one"
    assert order.turn([(0, True), (1, True)]) == 1
    assert order.turn([(0, True)]) == 0
    assert (order.next, len(order)) == (None, 0)
    assert order.ask(pairs, None, None) is None


def test_an_ask_waits_until_its_candidate_may_be_asked() -> None:
    [was] = begun_as([True] * 4)
    order, its = order_of(was), np.arange(4) == was.candidate
    for allowed, busy in ((~its, None), (None, its), (its, its), (~its, ~its)):
        assert order.ask(rule(), allowed, busy) is None
    assert order.next == was
    assert order.ask(rule(), its, ~its) is not None


def test_another_ask_than_before_ends_the_order() -> None:
    [was] = begun_as([True] * 4)
    pairs, other = rule(), replace(was, example=(was.example + 1) % 10)
    order = order_of(other, told(0))
    followed = order.ask(pairs, None, None)
    assert followed is not None
    assert [ask.pair for ask in followed[0]] == [(was.candidate, was.example)]
    assert not order


def test_a_reply_that_is_bought_ends_the_order() -> None:
    order = order_of(told(1), told(0))
    assert order.turn([(0, True), (1, False)]) == 0
    assert not order


async def test_the_longest_run_that_began_alike_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, begin, begun = Store.in_memory(), started(), [*grid(2, 10), BudgetSet(Budget(calls=9))]
    dearer = [*begun[:-1], BudgetSet(Budget(calls=10))]
    later = replace(begin, at="2026-11-22T09:30:15.250000Z")

    async def stored(n: int, first: Started, events: list[Event], *others: Event) -> None:
        async with await store.create(first.name) as log:
            pairs = (event for i in range(n) for event in (asked(i), told(i)))
            for event in (first, *events, *pairs, *others, Stopped(AT, "budget", 1.5)):
                log.append(event)
            await log.flush()

    assert not await earlier_order(store, begin, begun)
    await stored(0, begin, begun, asked(0))
    assert not await earlier_order(store, begin, begun), "nobody answered"
    await stored(1, begin, begun)
    assert [line[0] for line in await earlier_order(store, begin, begun)] == ["asked", "told"]
    await stored(3, later, begun)
    await stored(2, begin, begun)
    await stored(4, begin, dearer)
    await stored(5, started("other"), begun)
    await stored(6, replace(begin, version="0.2"), begun)
    expected = [line_of(event) for i in range(3) for event in (asked(i), told(i))]
    assert [*await earlier_order(store, begin, begun)] == expected
    monkeypatch.setattr(earlier, "_MOST_EVENTS", len(begun) + 6)  # of two answers
    assert [*await earlier_order(store, begin, begun)] == expected[:4]
