"""Runs of models that share a memory, in virtual time: few swaps, no deadlock, the same winner."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.limits.concurrency_gates import Gate
from bestarm_agent.engine.model_turns.candidate_mask import MemoryMask
from bestarm_agent.engine.run.stopping import End
from bestarm_agent.providers.base import Footprint, Provider
from bestarm_agent.providers.model_memory import Average, ModelMemory
from bestarm_agent.selectors.registry import make_selector, selector_names
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.testing.virtual_time import run_virtual
from tests.support.replay_check import unexplained_asks
from tests.support.runs import Actor, Scene, scored

LOAD_SECONDS = 10.0
CALL_SECONDS = 0.1


@dataclass
class Weights:
    """A model's weights; loading them takes its time."""

    box: Box
    name: str
    users: int = 0
    is_loaded: bool = False
    admitting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_idle(self) -> bool:
        return self.users == 0

    async def load(self) -> None:
        await asyncio.sleep(LOAD_SECONDS)
        self.box.loads.append(self.name)
        self.box.load_average.add(LOAD_SECONDS)
        self.is_loaded = True

    async def unload(self) -> None:
        self.is_loaded = False


@dataclass
class Box(Actor):
    """A machine with room for ``n_models`` models, and one call at a time.

    The models "a:0", "a:1", ... are prompts of the one model "a".
    """

    n_models: int = 1
    loading_share: float | None = 0.1
    loads: list[str] = field(default_factory=list)
    load_average: Average = field(default_factory=Average)
    weights: dict[str, Weights] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    finished: float = 0.0

    async def __aenter__(self) -> Box:
        return self

    def footprint(self, model: str) -> Footprint:
        return Footprint(model.partition(":")[0], self.load_average.value, CALL_SECONDS)

    def fits(self, holders: Collection[str]) -> bool:
        return len(holders) <= self.n_models

    def pin(self, model: str) -> None:
        self.kept.add(model)

    async def generate(self, request: Request) -> Reply:
        if not self.weights:
            self.memory = ModelMemory(self.fits, 1, pinned=self.kept)
        name = request.model.partition(":")[0]
        weights = self.weights.setdefault(name, Weights(self, name))
        weights.users += 1
        try:
            async with weights.admitting:
                await self.memory.ensure_loaded(weights)
            async with self.memory.generating:
                return await super().generate(request)
        finally:
            weights.users -= 1
            self.memory.note_idle()
            self.finished = asyncio.get_running_loop().time()


def answers(means: Mapping[str, float]) -> Box:
    """A box whose candidates are right with given probabilities, the same at every run."""

    def answer(request: Request, _before: int) -> Reply:
        draw = KeyedRandom(1, request.example).at(0).random()
        return scored(float(draw < means[request.model]))

    return Box("box", answer, latency=lambda _request: CALL_SECONDS)


def judged(means: Mapping[str, float], memory: int) -> Box:
    """A box that also serves the judge's model, which repeats what the candidates say."""

    def answer(request: Request, _before: int) -> Reply:
        if request.model == "judge-model":
            return Reply((request.text or "").rpartition(" ")[2], usd_nanos=90)
        draw = KeyedRandom(1, request.example).at(0).random()
        return Reply(str(float(draw < means[request.model])), usd_nanos=90)

    return Box("box", answer, latency=lambda _request: CALL_SECONDS, n_models=memory)


# 4 models x 3 prompts; c:1 is best by far
MEANS = {
    f"{model}:{prompt}": 0.2 + 0.1 * number + 0.05 * prompt
    for number, model in enumerate("abcd")
    for prompt in range(3)
} | {"c:1": 0.95}


def play(
    *, turns: bool, selector: str = "ucb-e", n_examples: int = 100, **options: object
) -> tuple[Scene, Box, End]:
    box = answers(MEANS)
    box.loading_share = 0.1 if turns else None
    scene = Scene(
        dict.fromkeys(MEANS, box),
        n_examples=n_examples,
        selector=selector,
        **options,  # type: ignore[arg-type]
    )
    return scene, box, scene.run()


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["uniform", "ucb-e", "racing"])
def test_turns_save_swaps_and_time_and_keep_the_winner(selector: str) -> None:
    budget = Budget(pulls=400)
    free, free_box, _ = play(turns=False, selector=selector, budget=budget)
    taking, box, end = play(turns=True, selector=selector, budget=budget)
    assert end is End.BUDGET
    assert free.loop.selector.best().best == taking.loop.selector.best().best == 7  # c:1
    assert len(box.loads) <= len(free_box.loads) / 3
    assert box.finished < free_box.finished / 2.5
    assert set(box.loads) == set("abcd"), "every model had a turn"


@pytest.mark.slow
@pytest.mark.parametrize("selector", sorted(selector_names()))
def test_nothing_ever_waits_for_a_turn_to_end(selector: str) -> None:
    scene, box, end = play(
        turns=True, selector=selector, n_examples=12, budget=Budget(pulls=100), in_flight=6
    )
    assert end in (End.BUDGET, End.EXHAUSTED, End.SEPARATED, End.INDIFFERENT)
    told = scene.loop.state.told
    assert len(told) == len(box.sent), "nothing is left pending"
    assert len(told) >= 30


@pytest.mark.slow
def test_the_whole_grid_is_run_with_one_load_for_each_model() -> None:
    """Uniform has no wishes: where turns are long enough, it stays with what is loaded."""
    scene, box, end = play(turns=True, selector="uniform", n_examples=20)
    assert end is End.EXHAUSTED
    assert len(scene.loop.state.told) == 12 * 20
    assert len(box.loads) < 20


@pytest.mark.slow
def test_what_fits_is_not_masked() -> None:
    box = answers(MEANS)
    box.n_models = 4
    scene = Scene(dict.fromkeys(MEANS, box), n_examples=30, budget=Budget(pulls=150))
    scene.run()
    assert len(box.loads) == 4
    assert all(not event.excluded for event in asked(scene))


@dataclass
class TwoParts(Box):
    """The models "a" and "b" share one part of the memory, "c" and "d" another."""

    def footprint(self, model: str) -> Footprint:
        return replace(super().footprint(model), part="left" if model[0] in "ab" else "right")


def test_each_part_of_a_memory_has_turns_of_its_own() -> None:
    box = TwoParts("box", lambda *_: scored(0.0))
    mask = MemoryMask()
    names = [f"{model}:{prompt}" for model in "abcd" for prompt in range(3)]
    mask.add([(cast(Provider, box), name, Gate(8)) for name in names])

    def open_models() -> set[str]:
        masked = mask.mask()
        assert masked is not None
        return {name[0] for name, is_open in zip(names, masked, strict=True) if is_open}

    mask.note(names.index("a:0"))
    assert open_models() == {"a", "c", "d"}
    for _ in range(9):
        mask.note(names.index("c:0"))
    assert "b" not in open_models(), "asks of the right part do not end the turn of the left one"
    mask.note(names.index("a:1"))
    mask.note(names.index("a:2"))
    mask.note(names.index("d:0"))
    assert open_models() == {"a", "b", "d"}


@pytest.mark.slow
def test_candidates_elsewhere_are_asked_while_a_model_loads() -> None:
    box = answers(MEANS)
    api = Actor("api", lambda _request, _before: scored(0.1))
    scene = Scene({**dict.fromkeys(MEANS, box), "api": api}, n_examples=40, selector="uniform")
    assert scene.run() is End.EXHAUSTED
    early = [at for at, _ in api.sent if at < LOAD_SECONDS]
    assert early, "the first model was still being loaded"


def play_judged(
    *, turns: bool, memory: int = 1, selector: str = "ucb-e", **options: object
) -> tuple[Scene, Box, End]:
    box = judged(MEANS, memory)
    box.loading_share = 0.1 if turns else None
    models = dict.fromkeys(MEANS, box)
    scene = Scene(models, judge=box, selector=selector, n_examples=100, **options)  # type: ignore[arg-type]
    return scene, box, scene.run()


@pytest.mark.slow
@pytest.mark.parametrize("selector", ["uniform", "ucb-e", "racing"])
def test_replies_are_gathered_for_a_judge_that_has_no_room(selector: str) -> None:
    """400 pairs, 8 at once: a judge that is called for each few would be loaded 50 times."""
    budget = Budget(pulls=400)
    free, free_box, _ = play_judged(turns=False, selector=selector, budget=budget)
    taking, box, end = play_judged(turns=True, selector=selector, budget=budget)
    assert end is End.BUDGET
    assert free.loop.selector.best().best == taking.loop.selector.best().best == 7  # c:1
    assert len(box.loads) <= len(free_box.loads) / 3
    assert box.finished < free_box.finished / 2
    assert box.loads.count("judge-model") <= len(box.loads) / 2 + 1
    assert not taking.loop.state.pending


@pytest.mark.slow
def test_one_model_and_its_judge_swap_ever_less_often() -> None:
    """Turns double from 3 asks on, until loading both (20 s) takes a tenth of the time."""
    means = {"a:0": 0.2, "a:1": 0.9, "a:2": 0.5}
    box = judged(means, 1)
    scene = Scene(dict.fromkeys(means, box), judge=box, n_examples=100, selector="uniform")
    assert scene.run() is End.EXHAUSTED
    assert len(scene.loop.state.told) == 300
    assert box.loads == ["a", "judge-model"] * 8, "3, 3, 5, 10, 20, ... asks"


@pytest.mark.slow
def test_a_judge_that_fits_beside_every_model_stays() -> None:
    """Room for two: without a place for the judge, two models would be planned for."""
    _, box, end = play_judged(turns=True, memory=2, budget=Budget(pulls=400))
    assert end is End.BUDGET
    assert box.loads.count("judge-model") == 1
    assert len(box.loads) <= 24


@pytest.mark.slow
def test_candidates_elsewhere_wait_for_the_judge_and_hold_nobody_up() -> None:
    box = judged(MEANS, 1)
    api = Actor("api", lambda *_: Reply("1.0"))
    models: dict[str, Actor] = {**dict.fromkeys(MEANS, box), "api": api}
    scene = Scene(models, judge=box, n_examples=20, selector="uniform", in_flight=4)
    assert scene.run() is End.EXHAUSTED
    assert len(scene.loop.state.told) == 13 * 20
    assert len(box.loads) < 60


@pytest.mark.slow
@pytest.mark.parametrize("selector", sorted(selector_names()))
def test_no_reply_waits_forever_for_its_judge(selector: str) -> None:
    scene, _, end = play_judged(turns=True, selector=selector, budget=Budget(pulls=90))
    assert end in (End.BUDGET, End.EXHAUSTED, End.SEPARATED, End.INDIFFERENT)
    assert not scene.loop.state.pending


@pytest.mark.parametrize("in_flight", [1, 5, 64])
def test_the_number_in_flight_and_a_cap_on_money_are_kept_while_replies_wait(
    in_flight: int,
) -> None:
    budget = Budget(usd_nanos=20_000)  # a hundred pairs with both bounds
    scene, box, end = play_judged(turns=True, in_flight=in_flight, budget=budget)
    assert end is End.BUDGET
    assert not scene.loop.state.pending
    assert scene.loop.ledger.spent.usd_nanos <= 20_000
    assert box.most <= in_flight


def test_a_run_that_is_stopped_or_broken_off_lets_its_judge_have_a_turn_or_the_pairs_go() -> None:
    async def stopped() -> tuple[End, int]:
        loop = await scene(judged(MEANS, 1)).open()
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(LOAD_SECONDS + 0.15)
        loop.stop()
        return await running, len(loop.state.pending)

    async def broken_off() -> tuple[int, float]:
        loop = await scene(judged(MEANS, 1)).open()
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(LOAD_SECONDS + 0.15)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return len(loop.state.pending), loop.ledger.balance().outstanding.pulls

    def scene(box: Box) -> Scene:
        return Scene(dict.fromkeys(MEANS, box), judge=box, n_examples=30)

    assert run_virtual(stopped()) == (End.INTERRUPTED, 0)
    pending, outstanding = run_virtual(broken_off())
    assert pending > 0
    assert outstanding == 0


@pytest.mark.slow
def test_every_ask_follows_from_the_log() -> None:
    async def main() -> tuple[list[int], int]:
        box = answers(MEANS)
        scene = Scene(dict.fromkeys(MEANS, box), n_examples=50, budget=Budget(pulls=150))
        loop = await scene.open()
        await loop.run()
        events = await scene.store.events_of("scene")
        fresh = make_selector("ucb-e", Problem(len(MEANS), 50, budget=150))
        masked = sum(isinstance(event, Asked) and bool(event.excluded) for event in events)
        return unexplained_asks(events, fresh), masked

    unexplained, masked = run_virtual(main())
    assert unexplained == []
    assert masked > 100


def asked(scene: Scene) -> list[Asked]:
    async def read() -> list[Asked]:
        return [e for e in await scene.store.events_of("scene") if isinstance(e, Asked)]

    return asyncio.run(read())
