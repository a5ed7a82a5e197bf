"""The base of selection rules: one looks at the table and says which pair comes next."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.answer import Answer
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Belief, Choice, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.costs import expected_costs, pull_weights
from bestarm_agent.stats.keyed_random import KeyedRandom

_UNSEEN = int(State.UNSEEN)


class Rule(ABC):
    """Decides which (candidate, example) pair is asked next; ``Pairs`` asks for it.

    A subclass writes ``choose``. One that remembers more than the table writes ``told``, and one
    with a model of the scores ``belief``; ``changed`` is for those that hold something for every
    candidate. A rule learns by these calls alone, live or from a log, and its choices depend on
    nothing else: fed the same log, a new one chooses the same pairs.

    Attributes:
        name: for users.
        anytime: whether it chooses the same pairs whatever ``Problem.budget`` is. Else its answer
            is meant for the end of that budget.
        heeds_costs: whether ``Problem.costs`` change which pairs it chooses.
        exogenous: whether examples are drawn without regard to any score (uniformly among the
            candidate's unseen ones, or by a fixed random order). Only then do the intervals hold at
            every stopping time, and only then may they stop a run.
        common_examples: whether all candidates take their examples from one random order, drawn
            before any score is seen. Then ``draw_unseen`` follows ``order``, and candidates are
            also compared in pairs. Set before ``__init__`` if it depends on arguments.
        seeks_best: whether it looks for the best candidate. A plan with another aim ends by a
            ``Stop`` of its own, bars nobody, and lets others take the turn of a busy candidate.
        top_k: how many candidates are wanted; 1 unless the rule looks for a set.
        problem: candidates and budget may have grown since the start.
        table: everything asked and told so far; read only.
        answer: what the table says about the candidates.
        order: of the examples, where they are common.
    """

    name: ClassVar[str]
    anytime: bool = True
    heeds_costs: bool = True
    exogenous: ClassVar[bool] = True
    common_examples: bool = False
    seeks_best: ClassVar[bool] = True
    top_k: int = 1
    order: SharedOrder  # only with common examples

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table = ScoreTable(problem.n_candidates, problem.n_examples)
        if self.common_examples:
            self.order = SharedOrder(self.table, problem.seed)
        self.answer = Answer(
            problem, self.table, self.belief, exogenous=self.exogenous, paired=self.common_examples
        )

    @abstractmethod
    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
        """Pick the next pair among the ``allowed`` (K,) candidates, each with an unseen example.

        ``rng`` belongs to this ask number alone. Return None to wait until something is told, or
        why nothing will be asked any more. Must change nothing: a choice may not be followed.
        """

    def told(self, tell: Tell) -> None:  # noqa: B027
        """Take in an outcome, once per ask; the table holds it already."""

    @property
    def until_look(self) -> float:
        """Number of outcomes until it looks at the table, that one included; infinite if never.

        A rule without a ``told`` of its own never does. Any other does so at each outcome, unless
        it says otherwise here: of a log it is then told some outcomes alone, those at which it
        looks among them.
        """
        return math.inf if type(self).told is Rule.told else 1

    def belief(self) -> Belief:
        """Return the estimates of the candidates' means: here, the means of the scores seen."""
        return Belief(self.table.mean())

    def changed(self) -> None:  # noqa: B027
        """Note that candidates or budget have joined, or candidates have left."""

    def draw_unseen(self, candidate: int, rng: np.random.Generator) -> int:
        """Draw one of a candidate's unseen examples; the next where they are common."""
        if self.common_examples:
            return self.order.next_of(candidate)
        return self.table.draw_unseen(candidate, rng)

    @property
    def n_tried(self) -> int:
        """Number of candidates that the rule means to ask; usually all."""
        return self.table.n_candidates

    @property
    def askable(self) -> BoolArray:
        """(K,) candidates that have unseen examples and are in the competition."""
        return (self.table.n_unseen > 0) & ~self.answer.barred

    def expected_costs(self) -> FloatArray | None:
        """(K,) expected cost of one more pull, by what pulls have cost; None if none were given."""
        costs = self.problem.costs
        if costs is None:
            return None
        n_told = self.table.n_trials - self.table.count(State.PENDING)
        return expected_costs(np.array(costs), n_told, self.table.spent)

    @property
    def weights(self) -> FloatArray:
        """(K,) weight of a pull of each candidate where a rule spreads pulls.

        1 where the rule works per pull, and on common examples: examples that only one of two
        candidates has seen say nothing about their difference, so both are pulled alike.
        """
        # On common examples, cheaper candidates would be pulled ahead of the others, onto examples
        # that only they have seen.
        costs = None if self.common_examples else self.expected_costs()
        if costs is None or not len(costs):
            return np.ones(self.table.n_candidates)
        return pull_weights(costs)


class SharedOrder:
    """A random order of the examples, fixed before any score is seen.

    Candidates that follow it are compared on common examples: what makes an example hard for all
    of them cancels in the differences. A candidate's next example is its first unseen one.

    Attributes:
        examples: (N,) in their order; not to be written.
        places: (N,) place of every example in the order, from 0; not to be written.
    """

    def __init__(self, table: ScoreTable, seed: int) -> None:
        self._table = table
        random = KeyedRandom(seed, "shared-order").at(0)
        self.examples: IntArray = np.argsort(random.random(table.n_examples), kind="stable")
        self.places: IntArray = np.argsort(self.examples)
        self._next_place: dict[int, int] = {}  # by candidate: all places before it are seen

    def next_of(self, candidate: int) -> int:
        """Return the candidate's next example; raise ValueError if none is left."""
        # Cells are never unseen again, so the search goes on from where it last ended. A run that
        # asked some pairs in another order may have left holes, hence the look at every cell.
        row, place = self._table.cells[candidate], self._next_place.get(candidate, 0)
        while place < len(row) and row[self.examples[place]] != _UNSEEN:
            place += 1
        self._next_place[candidate] = place
        if place == len(row):
            raise ValueError(f"candidate {candidate} has no unseen example left")
        return int(self.examples[place])
