"""Rules that spend a known budget in rounds: pull all active candidates equally, then thin them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import ceil

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.round_schedule import Field, Schedule, fit_schedule
from bestarm_agent.selectors.types import (
    Belief,
    BoolArray,
    Choice,
    FloatArray,
    IntArray,
    Pair,
    Problem,
    State,
    Stop,
    Tell,
)
from bestarm_agent.stats.keyed_random import KeyedRandom

_PENDING, _VOID = int(State.PENDING), int(State.VOID)


class RoundRule(Rule):
    """A rule that works in rounds; a subclass adds its schedule and says who leaves.

    Within a round the active candidate with the fewest pulls is next (ties at random), until all
    have as many as the round wants. A void pull counts as a pull and leaves the mean alone; a
    candidate with void pulls only is ranked below all others. When candidates, examples or budget
    are added, the rest of the budget is scheduled anew over the active and the new candidates.

    In flight: a round ends when every pull that it wants is told, and is decided on these pulls
    alone, the first so many of each candidate in ask order; so latency moves no decision. Until
    then free slots go to the next round as it would be if this one ended on the scores told so far
    (a candidate that has none yet counts as 1), then to the one after it, and so on. Such pulls are
    lost if their candidate leaves after all; the hard budget then cuts the last round short.

    With costs, the budget is what ``problem.budget`` pulls cost at the mean of ``problem.costs``. A
    round wants 1 / weight as many pulls of an expensive candidate (of all the same on common
    examples), and the rest of the money is planned anew after each round.
    """

    anytime: bool = False
    common_examples: bool = True

    def __init__(self, problem: Problem) -> None:
        if problem.budget is None:
            raise ValueError(
                f"selector {self.name!r} plans for a number of pairs, but `budget` is not given;"
                " set it (in pairs), or take a rule that needs none, such as 'auto' or 'ucb-e'"
            )
        super().__init__(problem)
        self._budget = problem.budget
        self._round_ties = KeyedRandom(problem.seed, "round-ties")
        self._n_closed = 0
        self._reached = np.zeros(problem.n_candidates, dtype=np.int64)  # pulls decided upon
        self._field = Field(np.arange(problem.n_candidates))
        self._plan_rest()

    @abstractmethod
    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Plan rounds of ``n_active`` >= 2 candidates for a budget of pulls (need not be whole)."""

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        """Decide who leaves: by default the ``leaving`` active candidates of the lowest means.

        At least two are active; the worst leaves first. ``means`` (K,) are those of the round, -1
        where all pulls are void; ``ties`` (K,) put equals in order.
        """
        worst_first = np.lexsort((ties[field.active], means[field.active]))
        return field.drop(*field.active[worst_first[:leaving]].tolist())

    def belief(self) -> Belief:
        """Rank accepted candidates first, then active ones, then who left last, and so on."""
        field, tier = self._field, np.ones(self.table.n_candidates, dtype=np.int64)
        tier[list(field.accepted)] = 0
        tier[list(field.dropped)] = 1 + np.arange(len(field.dropped), 0, -1)
        return Belief(self.table.mean(), tier=tier)

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
        """Pick who is furthest behind what the round wants; see above on rounds to come."""
        if self._stage >= len(self._plan) or self._left() <= 0:
            return Stop.BUDGET
        n_trials = self.table.n_trials
        for field, targets in self._outlook():
            active = field.active
            owed = allowed[active] & (n_trials[active] < targets[active])
            if owed.any():
                done = np.where(owed, n_trials[active] / self._shares[active], np.inf)
                ties = active[done == done.min()]
                candidate = int(ties[rng.integers(len(ties))])
                example, propensity = self.draw_unseen(candidate, rng)
                return Choice(Pair(candidate, example), propensity, self.name)
        return None

    def _outlook(self) -> Iterator[tuple[Field, IntArray]]:
        """Yield this round and those to follow if each ended on what is told; (K,) targets."""
        field = self._field
        for level, stage in enumerate(range(self._stage, len(self._plan))):
            if level > 0:
                field = self._field_ahead(level, field, stage - 1)
            if len(field.active) < 2:
                return
            yield field, self._wanted if level == 0 else self._targets(stage)

    def _field_ahead(self, level: int, field: Field, stage: int) -> Field:
        if len(self._ahead) < level:
            self._ahead.append(self._closed(field, stage, self._means_so_far(), level - 1))
        return self._ahead[level - 1]

    def told(self, tell: Tell) -> None:
        """Close the round if this was the last outcome that it waits for."""
        self._ahead.clear()
        candidate = int(self.table.candidate[tell.seq])
        if self._stage < len(self._plan) and self._is_wanted[candidate]:
            self._n_owed -= int(self.table.position[tell.seq] < self._wanted[candidate])
            self._close_rounds()

    def changed(self) -> None:
        """Plan the rest anew, for those in the race that did not leave and those that joined."""
        field, out = self._field, self.answer.barred
        n_known = len(field.active) + len(field.accepted) + len(field.dropped)
        active = np.concatenate([field.active, np.arange(n_known, self.table.n_candidates)])
        kept = tuple(who for who in field.accepted if not out[who])
        left = [who for who in (*active.tolist(), *field.accepted) if out[who]]
        self._field = Field(active, kept, field.dropped).drop(*left)
        if not left:
            self._reached = np.zeros(self.table.n_candidates, dtype=np.int64)
        self._budget = self.problem.budget or self._budget
        self._plan_rest()

    def _left(self) -> float:
        """Return the rest of the budget: pulls, or money for so many at the first mean cost."""
        costs = self.expected_costs()
        if costs is None or not self.problem.costs:
            return self._budget - self.table.n_asked
        pending = float(self.table.count(State.PENDING) @ costs)
        total = self._budget * float(np.mean(self.problem.costs))
        return total - float(self.table.spent.sum()) - pending

    def _pulls_left(self, active: IntArray) -> int:
        """Count the pulls of active candidates that the rest pays for, in the planned shares."""
        costs = self.expected_costs()
        left = max(0.0, self._left())
        if costs is None or not len(active):
            return int(left)
        return int(left / (costs[active] * self._shares[active]).mean())

    def _plan_rest(self) -> None:
        active, table = self._field.active, self.table
        n_active = len(active)
        self._shares = 1 / self.weights
        most = table.n_examples
        if n_active:
            self._shares /= self._shares[active].max()
            most = ceil(most / self._shares[active].min())
        counted = int((table.n_trials[active] / self._shares[active]).sum())
        budget = self._pulls_left(active) + counted
        self._plan = Schedule(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        if n_active > 1:
            self._plan = fit_schedule(
                lambda nominal: self._schedule(n_active, nominal),
                n_active,
                most,
                budget,
            )
        self._stage = 0
        self._begin_round()
        self._close_rounds()

    def _begin_round(self) -> None:
        """Count the outcomes that the round waits for."""
        self._ahead: list[Field] = []
        self._is_wanted = np.zeros(self.table.n_candidates, dtype=bool)
        self._is_wanted[self._field.active] = True
        if self._stage < len(self._plan):
            self._wanted = self._targets(self._stage)
            n_wanted = int(self._wanted[self._field.active].sum())
            self._n_owed = n_wanted - int(self._round_trials().sum())

    def _close_rounds(self) -> None:
        while self._stage < len(self._plan) and self._n_owed == 0:
            self._reached = np.maximum(self._reached, self._wanted)
            self._field = self._closed(self._field, self._stage, self._round_means(), 0)
            self._n_closed += 1
            self._stage += 1
            if self.problem.costs is not None and len(self._field.active) > 1:
                self._plan_rest()  # by what pulls have cost, and by who is left to be paid for
                return
            if len(self._field.active) < 2:  # nothing is left to decide
                self._stage = len(self._plan)
            self._begin_round()

    def _closed(self, field: Field, stage: int, means: FloatArray, ahead: int) -> Field:
        ties = self._round_ties.at(self._n_closed + ahead).random(self.table.n_candidates)
        return self._thin(field, means, int(self._plan.leaving[stage]), ties)

    def _targets(self, stage: int) -> IntArray:
        """(K,) pulls that each candidate has in all when the round ends."""
        planned = np.ceil(self._plan.targets[stage] * self._shares - 1e-9).astype(np.int64)
        targets: IntArray = np.minimum(np.maximum(planned, self._reached), self.table.n_examples)
        return targets

    def _round_trials(self) -> BoolArray:
        """(asked,) mask of the told pulls that a round's decision rests on."""
        table = self.table
        within = table.position < self._wanted[table.candidate]
        within &= self._is_wanted[table.candidate]
        told: BoolArray = within & (table.state != _PENDING)
        return told

    def _round_means(self) -> FloatArray:
        """(K,) means over the pulls that the round rests on; -1 where there is no score."""
        table = self.table
        scored = self._round_trials() & (table.state != _VOID)
        who = table.candidate[scored]
        counts = np.bincount(who, minlength=table.n_candidates)
        totals = np.bincount(who, weights=table.score[scored], minlength=table.n_candidates)
        return np.where(counts > 0, totals / np.maximum(counts, 1), -1.0)

    def _means_so_far(self) -> FloatArray:
        """(K,) means of all that is told; where nothing is, 1 or, if all pulls are void, -1."""
        table = self.table
        is_void = (table.count(State.VOID) > 0) & (table.count(State.PENDING) == 0)
        means = table.mean()
        return np.where(np.isnan(means), np.where(is_void, -1.0, 1.0), means)


def all_decided(field: Field, means: FloatArray, top_k: int) -> Field:
    """Accept the rest if all of them are wanted; drop it if none is."""
    wanted = top_k - len(field.accepted)
    rest: IntArray = field.active[np.argsort(means[field.active], kind="stable")]
    if wanted <= 0:
        return field.drop(*rest.tolist())
    if wanted >= len(rest):
        return field.accept(*rest[::-1].tolist())
    return field
