"""Runs of models that share a memory, in virtual time: few swaps, no deadlock, the same winner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Budget
from bestarm_agent.providers.base import Footprint
from bestarm_agent.providers.residency import Average, Residency
from bestarm_agent.runner import End
from bestarm_agent.selectors.registry import make_selector, selector_names
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.keyed import KeyedRandom
from bestarm_agent.testing.rederiving import unexplained_asks
from bestarm_agent.testing.virtual_time import run_virtual
from tests.runs import Actor, Scene, scored

LOAD_SECONDS = 10.0
CALL_SECONDS = 0.1


@dataclass
class Weights:
    """A model's weights; loading them takes its time."""

    box: Box
    name: str
    n_bytes: int = 1
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
    """A machine with room for ``memory_bytes`` models of size 1, and one call at a time.

    The models "a:0", "a:1", ... are prompts of the one model "a".
    """

    memory_bytes: int = 1
    loading_share: float | None = 0.1
    loads: list[str] = field(default_factory=list)
    load_average: Average = field(default_factory=Average)
    weights: dict[str, Weights] = field(default_factory=dict)
    finished: float = 0.0

    async def __aenter__(self) -> Box:
        return self

    def footprint(self, model: str) -> Footprint:
        return Footprint(model.partition(":")[0], 1, self.load_average.value, CALL_SECONDS)

    async def generate(self, request: Request) -> Reply:
        if not self.weights:
            self.residency = Residency(self.memory_bytes, 1)
        name = request.model.partition(":")[0]
        weights = self.weights.setdefault(name, Weights(self, name))
        weights.users += 1
        try:
            async with weights.admitting:
                await self.residency.admit(weights)
            async with self.residency.turn:
                return await super().generate(request)
        finally:
            weights.users -= 1
            self.residency.notice_idle()
            self.finished = asyncio.get_running_loop().time()


def answers(means: Mapping[str, float]) -> Box:
    """A box whose candidates are right with given probabilities, the same at every run."""

    def answer(request: Request, _before: int) -> Reply:
        draw = KeyedRandom(1, request.example).at(0).random()
        return scored(float(draw < means[request.model]))

    return Box("box", answer, latency=lambda _request: CALL_SECONDS)


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


@pytest.mark.parametrize("selector", ["uniform", "lucb", "top-two", "row-mean"])
def test_turns_save_swaps_and_time_and_keep_the_winner(selector: str) -> None:
    budget = Budget(pulls=400)
    free, free_box, _ = play(turns=False, selector=selector, budget=budget)
    taking, box, end = play(turns=True, selector=selector, budget=budget)
    assert end is End.BUDGET
    assert free.runner.selector.best().best == taking.runner.selector.best().best == 7  # c:1
    assert len(box.loads) <= len(free_box.loads) / 3
    assert box.finished < free_box.finished / 2.5
    assert set(box.loads) == set("abcd"), "every model had a turn"


@pytest.mark.parametrize("selector", sorted(selector_names()))
def test_nothing_ever_waits_for_a_turn_to_end(selector: str) -> None:
    scene, box, end = play(
        turns=True, selector=selector, n_examples=12, budget=Budget(pulls=100), in_flight=6
    )
    assert end in (End.BUDGET, End.EXHAUSTED, End.SEPARATED, End.INDIFFERENT)
    told = scene.runner.state.told
    assert len(told) == len(box.sent), "nothing is left pending"
    assert len(told) >= 30


def test_the_whole_grid_is_run_with_one_load_for_each_model() -> None:
    """Uniform has no wishes: where turns are long enough, it stays with what is loaded."""
    scene, box, end = play(turns=True, selector="uniform", n_examples=20)
    assert end is End.EXHAUSTED
    assert len(scene.runner.state.told) == 12 * 20
    assert len(box.loads) < 20


def test_what_fits_is_not_masked() -> None:
    box = answers(MEANS)
    box.memory_bytes = 4
    scene = Scene(dict.fromkeys(MEANS, box), n_examples=30, budget=Budget(pulls=150))
    scene.run()
    assert len(box.loads) == 4
    assert all(not event.excluded for event in asked(scene))


def test_candidates_elsewhere_are_asked_while_a_model_loads() -> None:
    box = answers(MEANS)
    api = Actor("api", lambda _request, _before: scored(0.1))
    scene = Scene({**dict.fromkeys(MEANS, box), "api": api}, n_examples=40, selector="uniform")
    assert scene.run() is End.EXHAUSTED
    early = [at for at, _ in api.sent if at < LOAD_SECONDS]
    assert early, "the first model was still being loaded"


def test_every_ask_follows_from_the_log() -> None:
    async def main() -> tuple[list[int], int]:
        box = answers(MEANS)
        scene = Scene(dict.fromkeys(MEANS, box), n_examples=50, budget=Budget(pulls=150))
        runner = await scene.open()
        await runner.run()
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
