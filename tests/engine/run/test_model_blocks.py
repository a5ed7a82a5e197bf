"""Models of which one is loaded at a time, in virtual time: few swaps, no deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Candidate, Reply, Request
from bestarm_agent.engine.call import Model, ProviderClient, RetryPolicy
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.waits import WaitBoard
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.providers.local import LocalModel, ModelMemory
from bestarm_agent.selectors.registry import make_selector, selector_names
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.replay_check import unexplained_asks
from tests.support.runs import PROMPT, Actor, Scene, scored
from tests.support.virtual_time import run_virtual

LOAD_SECONDS = 10.0
CALL_SECONDS = 0.1


class Weights(LocalModel):
    """A model's weights; loading them takes its time."""

    def __init__(self, box: Box, name: str) -> None:
        super().__init__(name)
        self.box = box
        self._is_loaded = False

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    async def load(self) -> None:
        await asyncio.sleep(LOAD_SECONDS)
        self.box.loads.append(self.name)
        self._is_loaded = True

    async def unload(self) -> None:
        self._is_loaded = False


@dataclass
class Box(Actor):
    """A machine with room for one model, and one call at a time."""

    is_tight: bool = True
    paying: int = 1000  # ten seconds are a tenth of the time of a thousand calls
    loads: list[str] = field(default_factory=list)
    weights: dict[str, Weights] = field(default_factory=dict)
    finished: float = 0.0

    @property
    def loads_one_at_a_time(self) -> bool:
        return self.is_tight

    def asks_per_load(self, model: str) -> int | None:
        return self.paying if model in self.loads else None

    async def generate(self, request: Request) -> Reply:
        if not self.weights:
            self.memory = ModelMemory(lambda models: not self.is_tight or len(models) == 1)
            self.device = asyncio.Lock()
        weights = self.weights.setdefault(request.model, Weights(self, request.model))
        async with self.memory.hold(weights), self.device:
            try:
                return await super().generate(request)
            finally:
                self.finished = asyncio.get_running_loop().time()


MEANS = {"a": 0.2, "b": 0.3, "c": 0.95, "d": 0.5}


def box_of(means: Mapping[str, float], *, is_tight: bool = True) -> Box:
    """A box whose candidates are right with given probabilities, the same at every run.

    It also serves the judge's model, which repeats what the candidates say.
    """

    def answer(request: Request, _before: int) -> Reply:
        if request.model == "judge-model":
            return Reply((request.text or "").rpartition(" ")[2], usd_nanos=90)
        draw = KeyedRandom(1, request.example).at(0).random()
        score = float(draw < means[request.model])
        return Reply(str(score), usage=Usage(3, 2), usd_nanos=90, score=score)

    return Box("box", answer, latency=lambda _request: CALL_SECONDS, is_tight=is_tight)


def play(*, judged: bool = False, n_examples: int = 100, **options: Any) -> tuple[Scene, Box, End]:  # noqa: ANN401
    box = box_of(MEANS)
    models, judge = dict.fromkeys(MEANS, box), box if judged else None
    scene = Scene(models, judge=judge, n_examples=n_examples, **options)
    return scene, box, scene.run()


@pytest.mark.parametrize("selector", ["uniform", "ucb-e"])
def test_blocks_save_swaps_and_find_the_best(selector: str) -> None:
    scene, box, end = play(selector=selector, budget=Budget(answers=300))
    assert end is End.BUDGET
    assert scene.loop.record.pairs.answer.best().best == 2  # c
    assert set(box.loads) == set(MEANS), "every model had a block"
    assert len(box.loads) <= 30, "blocks grow with the asks made"


@pytest.mark.slow
@pytest.mark.parametrize("selector", sorted(selector_names()))
def test_nothing_ever_waits_for_a_block_to_end(selector: str) -> None:
    scene, box, end = play(selector=selector, n_examples=12, budget=Budget(answers=40), in_flight=6)
    assert end in (End.BUDGET, End.EXHAUSTED, End.SEPARATED, End.INDIFFERENT)
    n_told = scene.loop.record.state.n_told
    assert n_told == len(box.sent), "nothing is left pending"
    assert n_told >= 12


def test_what_fits_is_not_masked() -> None:
    box = box_of(MEANS, is_tight=False)
    scene = Scene(dict.fromkeys(MEANS, box), n_examples=30, budget=Budget(answers=100))
    scene.run()
    assert len(box.loads) == 4
    assert all(not event.excluded for event in asked(scene))


def test_candidates_elsewhere_are_asked_while_a_model_loads() -> None:
    box = box_of(MEANS)
    api = Actor("api", lambda _request, _before: scored(0.1))
    scene = Scene({**dict.fromkeys(MEANS, box), "api": api}, n_examples=40, selector="uniform")
    assert scene.run() is End.EXHAUSTED
    early = [at for at, _ in api.sent if at < LOAD_SECONDS]
    assert early, "the first model was still being loaded"


@pytest.mark.parametrize("in_flight", [1, 5, 64])
def test_a_judge_in_the_same_memory_gets_the_replies_that_are_in_flight_together(
    in_flight: int,
) -> None:
    budget = Budget(usd_nanos=10_000)  # fifty pairs with both bounds
    scene, box, end = play(judged=True, in_flight=in_flight, budget=budget)
    assert end is End.BUDGET
    assert not scene.loop.record.state.pending
    assert scene.loop.ledger.spent.usd_nanos <= 10_000
    assert box.most <= in_flight
    n_told = scene.loop.record.state.n_told
    assert box.loads.count("judge-model") <= max(12, n_told / in_flight + len(box.loads) / 2)


async def test_a_run_that_is_stopped_or_broken_off_leaves_nothing_waiting() -> None:
    def scene() -> Scene:
        box = box_of(MEANS)
        return Scene(dict.fromkeys(MEANS, box), judge=box, n_examples=30)

    stopped = scene()
    assert (await stopped.stopped(LOAD_SECONDS + 0.15)) is End.INTERRUPTED
    assert not stopped.loop.record.state.pending
    loop = await scene().cut_off(LOAD_SECONDS + 0.15)
    assert loop.record.state.pending
    assert loop.ledger.outstanding.answers == 0


@pytest.mark.slow
def test_every_ask_follows_from_the_log() -> None:
    scene, _, _ = play(n_examples=50, budget=Budget(answers=150))
    fresh = make_selector("ucb-e", Problem(len(MEANS), 50, budget=150, stop_when_separated=False))
    assert unexplained_asks(run_virtual(scene.events()), fresh) == []
    assert sum(bool(ask.excluded) for ask in asked(scene)) > 80


def asked(scene: Scene) -> list[Asked]:
    return [event for event in run_virtual(scene.events()) if isinstance(event, Asked)]


# By hand.


def pool_of(box: Box, models: str) -> tuple[CandidatePool, Gate]:
    """A pool of a candidate for each letter of ``models``, and the gate of their provider."""
    pool, gate = CandidatePool(8), Gate(8)
    client = ProviderClient(box, Ledger(Budget()), RetryPolicy(), Clock(), WaitBoard(), gate)
    called = {name: Model(client, name) for name in models}
    pool.add(
        [
            ReadyCandidate(
                Candidate(box.name, name, PROMPT), CompiledPrompt(PROMPT), called[name], Spend()
            )
            for name in models
        ]
    )
    return pool, gate


def note(pool: CandidatePool, *candidates: int) -> None:
    for candidate in candidates:
        pool.note_asked(candidate)


def shown(pool: CandidatePool) -> Sequence[bool] | None:
    mask = pool.available()
    return None if mask is None else mask.tolist()


def test_the_first_block_gives_every_candidate_of_the_model_an_ask() -> None:
    pool, _ = pool_of(box_of({}), "aaab")
    assert (shown(pool), pool.blocks_left()) == (None, 1)
    note(pool, 0)
    assert (shown(pool), pool.blocks_left()) == ([True, True, True, False], 2)
    note(pool, 1, 2)
    assert (shown(pool), pool.blocks_left()) == (None, 1)


def test_blocks_double_until_loading_is_paid() -> None:
    box = box_of({})
    pool, _ = pool_of(box, "ab")

    def length(candidate: int) -> int:
        """Ask a candidate until another may be asked."""
        for n in range(1, 100):
            pool.note_asked(candidate)
            if not pool.takes_turns:
                return n
        raise AssertionError("the block never ends")

    assert [length(number % 2) for number in range(7)] == [1, 1, 1, 2, 4, 8, 16]
    box.loads, box.paying = ["a", "b"], 5
    assert [length(1), length(0)] == [5, 5]


def test_a_block_ends_when_nothing_is_asked_in_it_and_no_call_is_under_way() -> None:
    pool, gate = pool_of(box_of({}), "aab")
    note(pool, 0)
    gate.enter()
    assert not pool.end_blocks()
    gate.leave()
    assert pool.end_blocks()
    assert shown(pool) is None
    assert not pool.end_blocks()
