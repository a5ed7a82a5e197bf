"""Replays of one rule on a score matrix, with its answers at several budgets.

1. ``SimulatedCalls`` shuffles the matrix's rows and columns: rules break ties by index, and files
   are often sorted by score.
2. ``replay`` makes the rule, asks it for pairs, and tells it their scores.
3. Whenever as many pairs as a budget allows are evaluated, the rule's answer is noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, Problem, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom

_DONE, _VOID = State.DONE, State.VOID  # looking a member up costs more than a score (Python 3.11)


class SimulatedCalls:
    """The calls of one seed >= 0, answered from (K, N) scores; a NaN comes back void.

    Attributes:
        rows: the matrix's row of each candidate, and ``columns`` the column of each example.
        shape: (K, N).
    """

    def __init__(self, scores: NDArray[Any], seed: int) -> None:
        self._scores = scores
        self.shape: tuple[int, int] = scores.shape
        # Permutations of their own for rows and columns, keyed by the seed: the same seed shuffles
        # alike for all rules, so that rules are compared on the same draws.
        self.rows, self.columns = (
            KeyedRandom(seed, f"simulation {side}").at(0).permutation(n).tolist()
            for side, n in zip(("rows", "columns"), self.shape, strict=True)
        )

    def outcome(self, ask: Ask) -> Tell:
        """Evaluate a pair."""
        score = self._scores.item(self.rows[ask.pair.candidate], self.columns[ask.pair.example])
        if score != score:  # NaN differs from itself
            return Tell(ask.seq, _VOID)
        return Tell(ask.seq, _DONE, score)


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """A rule's answer at a budget. Candidates are rows of the unshuffled matrix."""

    budget: int  # pairs that might be evaluated
    evaluated: int  # pairs that were; fewer if the rule had nothing more to ask
    best: int  # the rule's own verdict
    ranking: tuple[int, ...]  # the rule's order of the candidates, the first ``depth`` of them


@dataclass(frozen=True, slots=True)
class Replay:
    """One rule, replayed."""

    answers: tuple[ReplayAnswer, ...]  # one per budget, in their order
    pulls: int  # pairs evaluated, all reruns together
    cpu_seconds: float  # processor time of asking and telling; 1 to 2 us a pull are simulation


def replay(
    make: Callable[[Problem], Pairs],
    calls: SimulatedCalls,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    batch: int = 1,
    depth: int = 10,
) -> Replay:
    """Run a rule on simulated calls.

    An anytime rule runs once and answers at each budget. A rule that plans for its budget runs
    again for each one. Intervals are not computed.

    Args:
        make: builds the rule for a problem.
        calls: answers what it asks.
        budgets: rising numbers of pairs, from 1.
        seed: the rule's own seed, >= 0.
        batch: pairs asked together, and all told before the next are asked, >= 1.
        depth: places that ``ReplayAnswer.ranking`` keeps.
    """
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ValueError(f"budgets must be rising numbers of at least 1, got {list(budgets)}")

    def start(budget: int) -> Pairs:
        return make(Problem(*calls.shape, seed=seed, budget=budget, track_intervals=False))

    begun = time.process_time()
    pairs = start(budgets[-1])
    # Such a rule asks the same pairs whatever its budget is, so its answer at a smaller budget is
    # the one that it would have given then.
    if pairs.rule.anytime:
        answers = _answers(pairs, calls, budgets, batch, depth)
        pulls = answers[-1].evaluated
    else:
        answers = [_answers(start(limit), calls, [limit], batch, depth)[0] for limit in budgets]
        pulls = sum(answer.evaluated for answer in answers)
    return Replay(tuple(answers), pulls, time.process_time() - begun)


def _answers(
    pairs: Pairs, calls: SimulatedCalls, budgets: Sequence[int], batch: int, depth: int
) -> list[ReplayAnswer]:
    """Ask up to each budget in turn; a rule that stops early says the same at all later ones."""
    answers, evaluated = [], 0
    for budget in budgets:
        # The last batch is cut, so that a budget is met exactly.
        while asks := pairs.ask(min(batch, budget - evaluated)):
            pairs.tell([calls.outcome(ask) for ask in asks])
            evaluated += len(asks)
        # Back to the rows of the file: a rule knows the shuffled ones only.
        best, ranking = calls.rows[pairs.best().best], pairs.top(depth)
        answers.append(ReplayAnswer(budget, evaluated, best, tuple(calls.rows[i] for i in ranking)))
    return answers
