"""Rules that spend a budget in rounds: after each, some candidates leave.

1. ``Schedule`` holds how many pulls everybody has at the end of a round, and how many leave then.
2. ``Field`` holds who is in the race, who was chosen and who left.
3. ``RoundRule`` asks what the round wants, closes it once all of that is told, and looks ahead with
   the slots that are free meanwhile. ``SuccessiveRejects`` is a schedule for it; ``opt_mai`` also
   decides who leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Belief, Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.keyed_random import KeyedRandom

_PENDING, _VOID = int(State.PENDING), int(State.VOID)
_BISECTIONS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The rounds to come."""

    # (rounds,) pulls that each active candidate has in all at the end; never falling
    targets: IntArray
    leaving: IntArray  # (rounds,) how many candidates leave at the end

    def __len__(self) -> int:
        return len(self.targets)

    def n_pulls(self, n_active: int, most: int) -> int:
        """Count the pulls if no candidate can be pulled more than ``most`` times."""
        sizes = n_active - np.cumsum(self.leaving) + self.leaving
        return int((sizes * np.diff(np.minimum(self.targets, most), prepend=0)).sum())


def fit_schedule(
    make: Callable[[float], Schedule], n_active: int, most: int, budget: int
) -> Schedule:
    """Return the schedule for ``budget`` pulls of candidates with ``most`` examples each.

    Where examples run out, it is that of the largest nominal budget which costs no more than
    ``budget``. Where even the first round is too expensive, the budget cuts the schedule short.
    Fewer than two candidates need no round.
    """
    if n_active < 2:
        return Schedule(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    schedule = make(budget)
    if schedule.n_pulls(n_active, most) <= budget and not (schedule.targets > most).any():
        return schedule
    # A nominal budget that examples cap costs less than it says. The largest one whose capped cost
    # fits is found by doubling and then halving: cost never falls in the nominal budget.
    low, high = 0.0, 2.0 * budget
    while (wider := make(high)).n_pulls(n_active, most) <= budget:
        if (wider.targets >= most).all():
            return wider
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = make(middle).n_pulls(n_active, most) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return make(low)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Candidates in the race and out of it."""

    active: IntArray  # candidates under test, ascending
    accepted: tuple[int, ...] = ()  # candidates chosen for good, in the order of acceptance
    dropped: tuple[int, ...] = ()  # candidates out for good, in the order of leaving

    def accept(self, *candidates: int) -> Field:
        """Choose candidates for good."""
        rest = np.setdiff1d(self.active, candidates)
        return Field(rest, self.accepted + candidates, self.dropped)

    def drop(self, *candidates: int) -> Field:
        """Let candidates leave for good."""
        rest = np.setdiff1d(self.active, candidates)
        return Field(rest, self.accepted, self.dropped + candidates)


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
    """

    anytime: bool = False
    heeds_costs: bool = False
    common_examples: bool = True

    def __init__(self, problem: Problem) -> None:
        if problem.budget is None:
            raise ValueError(
                f"selector {self.name!r} plans for a number of answers, but `budget` is not"
                " given; set it (in answers), or take a rule that needs none, as 'auto' or 'ucb-e'"
            )
        super().__init__(problem)
        self._ties = KeyedRandom(problem.seed, "round-ties")
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
        if self._stage >= len(self._plan) or not self._left:
            return Stop.BUDGET
        n_trials = self.table.n_trials
        for field, targets in self._outlook():
            active = field.active
            owed = allowed[active] & (n_trials[active] < targets[active])
            if owed.any():
                equals = active[owed & (n_trials[active] == n_trials[active][owed].min())]
                candidate = int(equals[rng.integers(len(equals))])
                example = self.draw_unseen(candidate, rng)
                return Choice(Pair(candidate, example), self.name)
        return None

    def _outlook(self) -> Iterator[tuple[Field, IntArray]]:
        """Yield this round and those to follow if each ended on what is told; (K,) targets."""
        field = self._field
        yield field, self._wanted
        # Free slots look ahead: if this round ended on what is told, who would be in the next one?
        # Each round ahead is worked out once and kept until the next outcome (``told``), as it
        # depends on outcomes only.
        for ahead, stage in enumerate(range(self._stage + 1, len(self._plan))):
            if ahead == len(self._ahead):
                self._ahead.append(self._closed(field, stage - 1, self._means_so_far(), ahead))
            field = self._ahead[ahead]
            if len(field.active) < 2:
                return
            yield field, self._targets(stage)

    def told(self, tell: Tell) -> None:
        """Close the round if this was the last outcome that it waits for."""
        self._ahead.clear()
        self._close_rounds()

    def changed(self) -> None:
        """Plan the rest anew, for those in the race that did not leave and those that joined."""
        field, out = self._field, self.answer.barred
        n_known = len(field.active) + len(field.accepted) + len(field.dropped)
        active = np.concatenate([field.active, np.arange(n_known, self.table.n_candidates)])
        kept = tuple(candidate for candidate in field.accepted if not out[candidate])
        # Where nobody left, candidates or budget were added: rounds are planned from the first pull
        # on, so that those who joined are compared with the others on as many pulls. Where somebody
        # left, no round wants fewer pulls than were decided upon already.
        barred = [row for row in (*active.tolist(), *field.accepted) if out[row]]
        self._field = Field(active, kept, field.dropped).drop(*barred)
        if not barred:
            self._reached = np.zeros(self.table.n_candidates, dtype=np.int64)
        self._plan_rest()

    @property
    def _left(self) -> int:
        """The rest of the budget, in pulls."""
        return max(0, (self.problem.budget or 0) - self.table.n_asked)

    def _plan_rest(self) -> None:
        """Plan rounds of the active candidates for the rest of the budget and what they have."""
        active, table = self._field.active, self.table
        budget = self._left + int(table.n_trials[active].sum())
        make = partial(self._schedule, len(active))
        self._plan = fit_schedule(make, len(active), table.n_examples, budget)
        self._stage = 0
        self._begin_round()
        self._close_rounds()

    def _begin_round(self) -> None:
        self._ahead: list[Field] = []  # the rounds to come if this one ended on what is told
        self._wanted: IntArray = np.zeros(self.table.n_candidates, dtype=np.int64)
        if self._stage < len(self._plan):
            self._wanted[self._field.active] = self._targets(self._stage)[self._field.active]

    def _close_rounds(self) -> None:
        """Close the round, and those after it, while all outcomes that it waits for are told."""
        while self._stage < len(self._plan):
            # Two conditions, as pending pulls count among a row's first so many: every candidate
            # has as many outcomes as the round wants, and these are outcomes of its first pulls.
            n_told = self.table.n_trials - self.table.count(State.PENDING)
            if (n_told < self._wanted).any() or self._round_trials().sum() < self._wanted.sum():
                return
            self._reached = np.maximum(self._reached, self._wanted)
            self._field = self._closed(self._field, self._stage, self._round_means(), 0)
            self._n_closed += 1
            self._stage += 1
            if len(self._field.active) < 2:  # nothing is left to decide
                self._stage = len(self._plan)
            self._begin_round()

    def _closed(self, field: Field, stage: int, means: FloatArray, ahead: int) -> Field:
        # By the number of the round, so that a look ahead breaks ties as the round itself will.
        ties = self._ties.at(self._n_closed + ahead).random(self.table.n_candidates)
        return self._thin(field, means, int(self._plan.leaving[stage]), ties)

    def _targets(self, stage: int) -> IntArray:
        """(K,) pulls that each candidate has in all when the round ends."""
        targets: IntArray = np.maximum(self._plan.targets[stage], self._reached)
        return np.minimum(targets, self.table.n_examples, out=targets)

    def _round_trials(self) -> BoolArray:
        """(asked,) mask of the told pulls that a round's decision rests on."""
        table = self.table
        within = table.position < self._wanted[table.candidate]
        told: BoolArray = within & (table.state != _PENDING)
        return told

    def _round_means(self) -> FloatArray:
        """(K,) means over the pulls that the round rests on; -1 where there is no score."""
        table = self.table
        scored = self._round_trials() & (table.state != _VOID)
        rows = table.candidate[scored]
        counts = np.bincount(rows, minlength=table.n_candidates)
        totals = np.bincount(rows, weights=table.score[scored], minlength=table.n_candidates)
        return np.where(counts > 0, totals / np.maximum(counts, 1), -1.0)

    def _means_so_far(self) -> FloatArray:
        """(K,) means of all that is told: 1 where nothing is, -1 where all that is told is void."""
        means, is_void = self.table.mean(), self.table.count(State.VOID) > 0
        return np.where(np.isnan(means), np.where(is_void, -1.0, 1.0), means)


class SuccessiveRejects(RoundRule):
    """Drop the worst candidate after each of K - 1 phases; see ``RoundRule``.

    Audibert & Bubeck 2010, "Best Arm Identification in Multi-Armed Bandits", section 4. Near-
    optimal when all that is known is the budget. Weak where one or two candidates stand far above
    the rest and the budget is large. All surviving candidates see the same examples (Lyu et al.
    2026, arXiv 2606.07726), so that what makes an example hard for all of them cancels.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("sysrs", Problem(n_candidates=3, n_examples=20, budget=30))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "sysrs"

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Plan n_k = ceil((T - K) / (L (K + 1 - k))) >= 1 pulls, L = 1/2 + sum_{i=2..K} 1/i."""
        survivors = n_active + 1 - np.arange(1, n_active)  # K + 1 - k for k = 1..K-1
        log_bar = 0.5 + (1.0 / np.arange(2, n_active + 1)).sum()
        targets = np.ceil((budget - n_active) / (log_bar * survivors) - 1e-9)
        return Schedule(*np.unique(np.maximum(targets, 1).astype(np.int64), return_counts=True))
