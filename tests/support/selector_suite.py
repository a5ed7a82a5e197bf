"""Tests of our own selection rules, besides those of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, Guarantee, Pair, Problem, State, Tell
from bestarm_agent.testing.selector_suite import TIGHT as TIGHT
from bestarm_agent.testing.selector_suite import K as K
from bestarm_agent.testing.selector_suite import N as N
from bestarm_agent.testing.selector_suite import SelectorSuite as PublicSuite
from bestarm_agent.testing.selector_suite import World as PublicWorld
from bestarm_agent.testing.selector_suite import WorldRun as WorldRun
from bestarm_agent.testing.selector_suite import replay as replay


class World(PublicWorld):
    """Scores and outcomes of all pairs."""

    @classmethod
    def of(cls, scores: ArrayLike) -> World:
        """Make a world in which every pair has its score."""
        known = np.asarray(scores, dtype=np.float64)
        return cls(known, np.full(known.shape, int(State.DONE), dtype=np.int8))

    @classmethod
    def bernoulli(cls, means: Iterable[float], n_examples: int, seed: int) -> World:
        """Draw 0/1 scores with the given chances per row."""
        column = np.asarray(list(means))[:, None]
        rng = np.random.default_rng([seed, 71])
        return cls.of(rng.random((len(column), n_examples)) < column)

    def mean(self, n_candidates: int, n_examples: int) -> NDArray[np.float64]:
        """(K,) true means of the pairs that are not void."""
        known = self.states[:n_candidates, :n_examples] != State.VOID
        total = np.where(known, self.scores[:n_candidates, :n_examples], 0.0).sum(axis=1)
        means: NDArray[np.float64] = total / known.sum(axis=1)
        return means


# rows and columns, for a model of which all told cells are part of the fit
NO_CELLS = np.empty((2, 0), dtype=np.intp)

_OF_A_PROBLEM = {field.name for field in fields(Problem)}


def opened(rule: str | Callable[..., Rule], k: int, n: int, **given: Any) -> Pairs:  # noqa: ANN401
    """Open a rule, by default one that goes on when the best is known.

    ``given`` are options of the problem and of the rule.
    """
    asked = {key: value for key, value in given.items() if key in _OF_A_PROBLEM}
    options = {key: value for key, value in given.items() if key not in asked}
    problem = Problem(k, n, **{"stop_when_separated": False} | asked)
    if isinstance(rule, str):
        return make_selector(rule, problem, **options)
    return Pairs(rule(problem, **options))


def play(selector: Pairs, scores: Sequence[float], n: int | None = None) -> list[int]:
    """Ask and tell one by one, all examples of a candidate scoring alike; return who was asked.

    It ends after ``n`` pairs, or with the run.
    """
    asked: list[int] = []
    while len(asked) != n and (asks := selector.ask()):
        asked.append(asks[0].pair.candidate)
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asked[-1]])])
    return asked


def flown(
    selector: Pairs, outcome: Callable[[Ask], tuple[Tell, float]], in_flight: int, n: int = 10**9
) -> Iterator[Ask]:
    """Run a selector under a virtual clock for ``n`` asks; yield each once it is told.

    ``outcome`` says what an ask brings, and after how many seconds.
    """
    now, flying = 0.0, list[tuple[float, int, Tell, Ask]]()
    while True:
        for ask in selector.ask(min(in_flight - len(flying), n - selector.table.n_asked)):
            tell, seconds = outcome(ask)
            heappush(flying, (now + seconds, ask.seq, tell, ask))
        if not flying:
            return
        now, _, tell, ask = heappop(flying)
        selector.tell([tell])
        yield ask


EASY_WORLDS = 60
EASY_SHAPE = (24, 150)


def easy_world(seed: int) -> World:
    """Make a world of two good candidates (.8 and .68) and 22 poor ones (.05 to .35)."""
    rng = np.random.default_rng([seed, 74])
    means = rng.permutation([0.8, 0.68, *np.linspace(0.05, 0.35, 22)])
    return World.bernoulli(means, EASY_SHAPE[1], seed)


def wins_more_often(make: Callable[[Problem], Rule], budget: int, worlds: int, than: float) -> bool:
    """Return whether a rule names the best candidate in more than so many easy worlds.

    It has ``budget`` answers in each. The count ends as soon as the answer is known.
    """
    wins = 0
    for seed in range(worlds):
        world = easy_world(seed)
        problem = Problem(*EASY_SHAPE, seed=seed, budget=budget, track_intervals=False)
        selector = Pairs(make(problem))
        WorldRun(selector, world).go(budget)
        finish_pending(selector, world)
        wins += selector.answer.best().best == int(np.argmax(world.mean(*EASY_SHAPE)))
        if wins > than or wins + worlds - seed - 1 <= than:
            break
    return wins > than


def expected_uniform_wins(budget: int, worlds: int, draws: int = 50) -> float:
    """Return in how many easy worlds uniform sampling names the best, on average over draws."""
    wins = 0
    n_candidates, n_examples = EASY_SHAPE
    for seed in range(worlds):
        world, rng = easy_world(seed), np.random.default_rng([seed, 75])
        best = int(np.argmax(world.mean(*EASY_SHAPE)))
        for _ in range(draws):
            cells = rng.choice(n_candidates * n_examples, budget, replace=False)
            rows = cells // n_examples
            seen = np.bincount(rows, minlength=n_candidates)
            total = np.bincount(rows, world.scores.ravel()[cells], n_candidates)
            means = np.where(seen > 0, total / np.maximum(seen, 1), -1.0)
            wins += int(rng.choice(np.flatnonzero(means == means.max()))) == best
    return wins / draws


def finish_pending(selector: Pairs, world: World) -> None:
    """Tell a selector the outcomes of all pairs in flight."""
    table = selector.table
    for seq in np.flatnonzero(table.state == State.PENDING):
        pair = Pair(int(table.candidate[seq]), int(table.example[seq]))
        selector.tell([world.outcome(Ask(int(seq), pair, ""))])


class SelectorSuite(PublicSuite):
    """Tests of one selection rule."""

    # whether it spends more on better candidates, and so must beat uniform sampling
    learns: bool = True
    easy_budget: int = 120  # answers of that problem's 3,600 after which it is compared

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_asking_for_n_is_asking_n_times_for_one(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 2)
        together, apart = (WorldRun(self.open(budget=budget), world) for _ in range(2))
        for n in (1, 3, 7, 2, 20, 30):
            together.ask(n)
            for _ in range(n):
                apart.ask(1)
            assert together.events == apart.events
            for run in (together, apart):
                while len(run.waiting) > n // 2:
                    run.tell(len(run.waiting) // 2)

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_the_same_seed_asks_the_same_pairs(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 8)
        selectors = [self.open(seed=seed, budget=budget) for seed in (1, 1, 2)]
        runs = [WorldRun(selector, world, 3).go(30).pairs for selector in selectors]
        assert runs[0] == runs[1]
        assert runs[0] != runs[2]

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_the_log_says_enough_where_not_all_could_be_called(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 15)
        for seed in range(6):
            rng = np.random.default_rng([seed, 75])
            warm = WorldRun(self.open(seed=seed, budget=budget), world, 6)
            for _ in range(25):
                warm.ask(2, allowed=rng.random(K) < 0.6)
                while len(warm.waiting) > 4:
                    warm.tell(int(rng.integers(len(warm.waiting))))
            rebuilt = replay(warm.events, self.open(seed=seed, budget=budget))
            cold, n_before = WorldRun(rebuilt, world, 6), len(warm.pairs)
            cold.waiting = list(warm.waiting)
            assert cold.go(15).pairs == warm.go(15).pairs[n_before:]

    def test_an_asked_pair_is_pending_until_told(self) -> None:
        selector = self.open()
        [ask] = selector.ask()
        assert (ask.seq, selector.table.n_asked) == (0, 1)
        assert selector.table.cells[ask.pair] == State.PENDING
        assert selector.table.count(State.PENDING).sum() == 1
        selector.tell([Tell(0, State.DONE, 1.0)])
        assert selector.table.cells[ask.pair] == State.DONE
        assert selector.table.count(State.PENDING).sum() == 0

    def test_nobody_takes_the_turn_of_a_busy_candidate(self) -> None:
        patient, plain = (WorldRun(self.open(), World.with_failures((K, N), 5)) for _ in range(2))
        for _ in range(20):
            asks = plain.ask(3)
            if not asks:
                break
            first = asks[0].pair.candidate
            assert patient.selector.ask(3, busy=np.arange(K) == first) == []
            assert patient.ask(3) == asks
            for run in (patient, plain):
                while run.waiting:
                    run.tell()

    def test_the_order_of_telling_does_not_matter(self) -> None:
        world = World.with_failures((K, N), 5)
        asks = WorldRun(self.open(), world).ask(25)
        first, second = self.open(), self.open()
        tells = [world.outcome(ask) for ask in asks]
        for selector, order in ((first, tells), (second, tells[::-1])):
            selector.adopt(asks)
            for tell in order:
                selector.tell([tell])
        np.testing.assert_array_equal(first.table.cells, second.table.cells)
        np.testing.assert_allclose(first.table.mean(), second.table.mean())
        if first.rule.exogenous:
            np.testing.assert_allclose(
                first.answer.estimates().lower, second.answer.estimates().lower
            )
            np.testing.assert_allclose(
                first.answer.estimates().upper, second.answer.estimates().upper
            )

    def test_telling_twice_is_refused(self) -> None:
        selector = self.open()
        asks = selector.ask(4)
        selector.tell([Tell(asks[1].seq, State.DONE, 1.0, cost=2.0)])
        before = selector.answer.estimates()
        with pytest.raises(ValueError, match="was told before"):
            selector.tell([Tell(asks[1].seq, State.DONE, 0.0, cost=2.0)])
        after = selector.answer.estimates()
        np.testing.assert_array_equal(before.mean, after.mean)
        np.testing.assert_array_equal(before.n, after.n)
        assert selector.table.spent.sum() == 2.0

    @pytest.mark.parametrize(
        "wrong",
        [
            Tell(7, State.DONE, 0.5),
            Tell(-1, State.DONE, 0.5),
            Tell(0, State.DONE, 1.5),
            Tell(0, State.DONE, float("nan")),
            Tell(0, State.DONE, 0.5, cost=-1.0),
            Tell(0, State.PENDING, 0.5),
        ],
    )
    def test_a_senseless_tell_is_refused(self, wrong: Tell) -> None:
        selector = self.open()
        selector.ask(2)
        with pytest.raises(ValueError, match=r"asked|score|cost|state"):
            selector.tell([wrong])
        assert selector.table.count(State.PENDING).sum() == 2

    def test_failures_count_and_void_pairs_do_not(self) -> None:
        selector = self.open(2, 3)
        states = (State.DONE, State.FAILED, State.VOID)
        for _ in range(6):
            [ask] = selector.ask()
            state = states[ask.pair.example]
            selector.tell([Tell(ask.seq, state, 0.75 / state)])
        estimates = selector.answer.estimates()
        assert (estimates.n.tolist(), selector.table.count(State.VOID).tolist()) == ([2, 2], [1, 1])
        np.testing.assert_allclose(selector.table.mean(), (0.75 / 2 + 0.75 / 3) / 2)

    def test_estimates_are_in_range_and_the_callers_to_keep(self) -> None:
        run = WorldRun(self.open(), World.with_failures((K, N), 13), 4).go(30)
        estimates = run.selector.answer.estimates()
        known = ~np.isnan(estimates.mean)
        assert ((estimates.mean[known] >= 0) & (estimates.mean[known] <= 1)).all()
        assert (estimates.lower >= 0).all()
        assert (estimates.upper <= 1).all()
        assert (estimates.lower <= estimates.upper).all()
        for array in (estimates.mean, estimates.lower, estimates.n):
            array[:] = 0
        assert run.selector.answer.estimates().n.sum() > 0
        assert run.selector.table.count(State.PENDING).sum() > 0

    def test_a_single_candidate_is_the_best(self) -> None:
        selector = WorldRun(self.open(1), World.with_failures((1, N), 14)).go(3).selector
        assert selector.answer.best().best == 0

    def test_it_beats_uniform_sampling_on_an_easy_problem(self) -> None:
        if not self.learns:
            pytest.skip("the rule does not look at scores")
        assert wins_more_often(
            self.make, self.easy_budget, EASY_WORLDS, than=_uniform_wins(self.easy_budget)
        )

    @pytest.mark.parametrize("in_flight", [1, 32])
    def test_best_is_exact_when_all_is_known(self, in_flight: int) -> None:
        world = World.bernoulli(np.linspace(0.2, 0.8, K), N, seed=3)
        selector = WorldRun(self.open(), world, in_flight).finish().selector
        truth = world.mean(K, N)
        estimates, verdict = selector.answer.estimates(), selector.answer.best()
        assert estimates.guarantee is verdict.guarantee is Guarantee.EXACT
        assert truth[verdict.best] == truth.max()
        np.testing.assert_allclose(estimates.mean, truth)
        np.testing.assert_allclose(estimates.lower, truth)
        np.testing.assert_allclose(estimates.upper, truth)

    @pytest.mark.parametrize("state", [State.FAILED, State.VOID])
    def test_a_candidate_that_never_works_stops_none(self, state: State) -> None:
        world = World.bernoulli([0.2, 0.3, 0.9, 0.4, 0.5, 0.1], N, seed=6)
        world.states[4], world.scores[4] = state, 0.0
        run = WorldRun(self.open(), world, 8).finish()
        assert len(run.pairs) == K * N
        assert run.selector.answer.best().best == 2
        assert run.selector.answer.ranking()[-1] == 4 or state is State.FAILED

    def test_a_run_may_begin_without_candidates(self) -> None:
        run = WorldRun(self.open(0, N, budget=40 * N), World.with_failures((2, N), 11))
        assert run.ask(3) == []
        with pytest.raises(ValueError, match="no candidate"):
            run.selector.answer.best()
        run.grow(candidates=2)
        assert len(run.finish().pairs) == 2 * N

    def test_there_is_always_an_answer(self) -> None:
        run = WorldRun(self.open(), World.with_failures((K, N), 12), 4)
        for _ in range(12):
            verdict, ranking = run.selector.answer.best(), run.selector.answer.ranking()
            assert sorted(ranking) == list(range(K))
            assert verdict.best == ranking[0]
            assert run.selector.answer.leading(3) == ranking[:3]
            run.go(5)


@cache
def _uniform_wins(budget: int) -> float:
    return expected_uniform_wins(budget, EASY_WORLDS)
