from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Guarantee, Problem, State, Stop, Tell
from tests.stats.one_by_one import Intervals

IN_FLIGHT, SLOWER, RUNS = 32, 3.0, 100


@dataclass(slots=True)
class SlowWhenWrong:
    """Calls under a virtual clock: an exponential latency, three times longer for wrong answers."""

    selector: Pairs
    scores: NDArray[np.float64]
    rng: np.random.Generator
    now: float = 0.0
    under_way: list[tuple[float, int, Ask]] = field(default_factory=list)

    def send(self) -> None:
        """Fill the free places."""
        for ask in self.selector.ask(IN_FLIGHT - len(self.under_way)):
            latency = self.rng.exponential(1.0 if self.scores[ask.pair] else SLOWER)
            heapq.heappush(self.under_way, (self.now + latency, ask.seq, ask))

    def receive(self) -> Ask:
        """Let the next call return."""
        self.now, _, ask = heapq.heappop(self.under_way)
        self.selector.tell([Tell(ask.seq, State.DONE, float(self.scores[ask.pair]))])
        return ask


def ever_misses(selector: Pairs, seed: int, means: list[float], n_told: int) -> tuple[bool, bool]:
    """Whether a stated interval, and one in order of completion, ever misses a true mean."""
    rng = np.random.default_rng([seed, 5])
    n_rows, n_examples = len(means), selector.problem.n_examples
    scores = (rng.random((n_rows, n_examples)) < np.array(means)[:, None]).astype(float)
    truth = scores.mean(axis=1)
    alpha = (1 - selector.problem.confidence) / n_rows
    naive = Intervals(n_rows, n_examples, alpha)
    calls = SlowWhenWrong(selector, scores, rng)
    missed = naive_missed = False
    for _ in range(n_told):
        calls.send()
        pair = calls.receive().pair
        naive.push(pair.candidate, scores[pair], scores[pair])
        found = selector.estimates()
        missed |= misses(found.lower, found.upper, truth)
        naive_missed |= misses(naive.lower, naive.upper, truth)
    return missed, naive_missed


def misses(
    lower: NDArray[np.float64], upper: NDArray[np.float64], truth: NDArray[np.float64]
) -> bool:
    return bool(((lower > truth + 1e-9) | (upper < truth - 1e-9)).any())


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("means", [[0.5], [0.7, 0.6, 0.5]])
def test_slow_wrong_answers_do_not_bias_the_stated_intervals(means: list[float]) -> None:
    """Level .95 at all times and for all candidates at once: a binomial test at 1e-6.

    The same sequences fed in order of completion fail the same test, so it has power.
    """
    rules: tuple[type[Rule], ...] = (UcbE, Uniform)
    results = [
        ever_misses(
            Pairs(rules[seed % 2](Problem(len(means), 1000, seed=seed, stop_when_separated=False))),
            seed,
            means,
            200,
        )
        for seed in range(RUNS)
    ]
    n_missed, n_naive = np.sum(results, axis=0)
    assert binom.sf(n_missed - 1, RUNS, 0.05) > 1e-6
    assert binom.sf(n_naive - 1, RUNS, 0.05) < 1e-6


def test_a_void_pair_enters_as_anything() -> None:
    selector = Pairs(Uniform(Problem(1, 4, stop_when_separated=False)))
    asks = selector.ask(4)
    for ask, state in zip(asks, (State.DONE, State.VOID, State.DONE, State.FAILED), strict=True):
        selector.tell([Tell(ask.seq, state, 1.0 if state is State.DONE else 0.0)])
    estimates = selector.estimates()
    assert (estimates.lower[0], estimates.upper[0]) == (2 / 4, 3 / 4)
    assert estimates.guarantee is Guarantee.ANYTIME_VALID


def test_scores_behind_a_pending_one_wait() -> None:
    selector = Pairs(Uniform(Problem(1, 4, stop_when_separated=False)))
    asks = selector.ask(3)
    selector.tell([Tell(ask.seq, State.DONE, 1.0) for ask in asks[1:]])
    assert selector.estimates().lower[0] == 0.0
    selector.tell([Tell(asks[0].seq, State.DONE, 1.0)])
    assert selector.estimates().lower[0] >= 3 / 4


def test_a_run_stops_once_the_best_is_separated() -> None:
    selector = Pairs(Uniform(Problem(3, 2000)))
    while asks := selector.ask(8):
        selector.tell([Tell(a.seq, State.DONE, (0.0, 1.0, 0.0)[a.pair.candidate]) for a in asks])
    assert selector.stopped() is Stop.SEPARATED
    verdict = selector.best()
    assert (verdict.best, verdict.tied, verdict.separated) == (1, (), True)
    assert selector.table.n_asked < 400


def test_a_run_stops_once_the_best_are_complete_and_equal() -> None:
    selector = Pairs(UcbE(Problem(3, 400)))
    while asks := selector.ask(8):  # the third one has shown what it is long before the end
        selector.tell([Tell(a.seq, State.DONE, (1.0, 1.0, 0.0)[a.pair.candidate]) for a in asks])
    assert selector.stopped() is Stop.INDIFFERENT
    assert selector.table.n_trials[2] < 200
    verdict = selector.best()
    assert (len(verdict.tied), verdict.separated) == (1, False)
    assert selector.margin() == 0


def test_without_tracking_every_interval_is_open() -> None:
    selector = Pairs(UcbE(Problem(2, 6, track_intervals=False)))
    for ask in selector.ask(12):
        selector.tell([Tell(ask.seq, State.DONE, 1.0)])
    assert selector.estimates().lower.tolist() == [0.0, 0.0]
    assert not selector.problem.seeks_proof  # nothing can be shown
    with pytest.raises(ValueError, match="needs intervals"):
        Problem(2, 6, track_intervals=False, within=0.1)
