"""Decides which samples of a race run: one selection rule, candidates with common examples.

A candidate's sample at each place of the common order is in one of five states::

                  the rule asks
    OUTSIDE ------------------------> ASKED <----------+
       |                                |              |
       | it takes a slot                | a slot       | it is tried again
       v          the rule asks         v              |
    WAITING -----------------------> RUNNING ----------+
                                        |
                                        | its outcome
                                        v
                                      TOLD

A sample that waits holds one of its task's slots; with few slots, one that the rule has asked for
may still stand behind others. The end of the race lets those that wait go without running. An
outcome ends every state: Inspect may reuse that of a sample that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter

import numpy as np

from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    ExamplesAdded,
    Started,
    Told,
)
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, Outcome
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.standing import Standing, build_standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, Pair


class Lane:
    """One candidate's samples, by their place in the common order: a set for each state above."""

    def __init__(self, n_samples: int, at_once: int) -> None:
        self.outside = set(range(n_samples))
        self.asked: set[int] = set()
        self.waiting: dict[int, Callable[[], None]] = {}  # and how to let them go
        self.running: set[int] = set()
        self.told: set[int] = set()
        self._at_once = at_once  # the most that run
        self.free_slots = 0  # given back, and not taken again yet
        self.has_begun = self.is_over = False
        self.is_lost = False  # over before the race was

    def move(self, place: int, to: set[int]) -> None:
        """Bring a sample into another state; if it waited, let it go."""
        for places in (self.outside, self.asked, self.running, self.told):
            places.discard(place)
        to.add(place)
        if (release := self.waiting.pop(place, None)) is not None:
            release()

    def arrive(self, place: int, release: Callable[[], None]) -> None:
        """Note that a sample took a slot."""
        self.has_begun, self.free_slots = True, max(0, self.free_slots - 1)
        self.waiting[place] = release
        self.outside.discard(place)
        if place in self.asked:
            self.move(place, self.running)

    def ask(self, place: int) -> None:
        """Let a sample run, at once if it has a slot."""
        self.move(place, self.running if place in self.waiting else self.asked)

    def let_go(self) -> None:
        """Let the samples that wait go, without running them."""
        for place in [*self.waiting]:
            self.move(place, self.outside)

    @property
    def coming(self) -> int:
        """Number of samples that are about to take a slot."""
        return min(self.free_slots, len(self.outside) + len(self.asked))

    @property
    def can_run(self) -> bool:
        """Return whether a sample that is asked for now would run soon."""
        if self.is_over or len(self.running) >= self._at_once:
            return False
        return bool(self.waiting) or self.coming > len(self.asked)


class Lanes:
    """Runs a rule's asks on the samples that other code brings, in their common order.

    The rule is asked once every candidate has begun. Nothing here waits.

    Attributes:
        end: why nothing more is asked, as in ``Stopped``; None while the race goes on.
        record: what the race amounts to, as that of a run.
    """

    def __init__(
        self,
        started: Started,
        rule: Pairs,
        candidates: Sequence[Candidate],
        ids: Sequence[str],
        at_once: int | None = None,
    ) -> None:
        """Raise ValueError if the rule gives each candidate other examples."""
        if not rule.rule.common_examples:
            raise ValueError(f"rule {rule.name!r} does not take common examples in one order")
        self._rule = rule
        self.record = RunRecord(lambda *_: rule)
        order = rule.rule.order.examples
        self._order: list[int] = order.tolist()  # place -> example
        self._places: list[int] = order.argsort().tolist()  # example -> place
        self._seqs: dict[Pair, int] = {}
        # when, candidate and place of an earlier race's asks (None) and outcomes
        self._earlier: list[tuple[datetime, int, int, Outcome | None]] = []
        self.lanes = [Lane(len(ids), at_once or len(ids)) for _ in candidates]
        self.end: str | None = None
        by_example = tuple(ids[place] for place in self._places)
        for event in (
            started,
            CandidatesAdded(tuple(candidates)),
            ExamplesAdded(by_example, by_example),
            BudgetSet(Budget(pulls=rule.problem.budget)),
        ):
            self.record.record(event)

    def arrive(self, row: int, place: int, release: Callable[[], None]) -> None:
        """Note that a sample has a slot; ``release`` is called when it need not wait any more."""
        self.lanes[row].arrive(place, release)
        self._go_on()

    def is_running(self, row: int, place: int) -> bool:
        """Return whether a released sample is to run; else it is to be skipped."""
        return place in self.lanes[row].running

    def put_back(self, row: int, place: int) -> None:
        """Note that a running sample gave its slot back, and is tried again later."""
        self.lanes[row].move(place, self.lanes[row].asked)
        self.lanes[row].free_slots += 1
        self._go_on()

    def tell(self, row: int, place: int, outcome: Outcome) -> None:
        """Record a sample's outcome; only the first counts."""
        self._record(row, place, outcome)
        self._go_on()

    def remember(
        self, row: int, place: int, outcome: Outcome, began: datetime, ended: datetime
    ) -> None:
        """Keep an outcome of an earlier race, to be told once every candidate has begun.

        Asks and outcomes come back in the order of time: who leads at a place must be known before
        a score at that place is.
        """
        self._earlier += [(began, row, place, None), (ended, row, place, outcome)]

    def start_without_the_missing(self, void: Outcome) -> None:
        """Begin; candidates none of whose samples has come yet take no part."""
        for row, lane in enumerate(self.lanes):
            if not lane.has_begun:
                self.leave(row, void)

    def leave(self, row: int, void: Outcome) -> None:
        """Note that a candidate's task is over; what it was asked and never ran becomes void."""
        lane = self.lanes[row]
        lane.is_lost = lane.is_lost or (self.end is None and not lane.is_over)
        lane.is_over = lane.has_begun = True
        lane.let_go()
        for place in sorted(lane.asked | lane.running):
            self._record(row, place, void)
        self._go_on()

    def stop(self, reason: str) -> None:
        """Ask for nothing more, and let all samples go."""
        self.end = self.end or reason
        self._go_on()

    def standing(self, seconds: float) -> Standing:
        """Build the standing of a race that has lasted ``seconds``, as that of a study is built."""
        state, unseen = self.record.state, self._rule.table.n_unseen
        lost = [row for row, lane in enumerate(self.lanes) if lane.is_lost and unseen[row]]
        return build_standing(
            state,
            self._rule,
            state.name,
            spent=state.spend,
            seconds=seconds,
            broken={state.candidates[i].label: "its task ended before the race did" for i in lost},
            in_flight=sum(len(lane.running) for lane in self.lanes),
        )

    def _go_on(self) -> None:
        """Ask the rule for as many pairs as can run now; at the end, let all go."""
        if self.end is None and not all(lane.has_begun for lane in self.lanes):
            return
        earlier, self._earlier = sorted(self._earlier, key=itemgetter(0)), []
        for _, row, place, outcome in earlier:
            if outcome is None:
                self._ask_up_to(row, place, "resumed")
            else:
                self._record(row, place, outcome)
        while self.end is None and self._ask_rule():
            pass
        if self.end is None and self._is_stuck():
            self._pass_over()
        if self.end is not None:
            for lane in self.lanes:
                lane.let_go()

    def _record(self, row: int, place: int, outcome: Outcome) -> None:
        lane = self.lanes[row]
        if place in lane.told:
            return
        self._ask_up_to(row, place, "resumed")
        lane.free_slots += place in lane.running
        lane.move(place, lane.told)
        seq = self._seqs[Pair(row, self._order[place])]
        score = outcome.score.value if outcome.score else None
        self.record.record(Told(seq, outcome, score))

    def _ask_rule(self) -> bool:
        """Ask for one more pair; return False if there is none now, or never again."""
        stop, budget = self._rule.stopped(), self._rule.problem.budget
        if stop is not None or (budget is not None and self._rule.table.n_asked >= budget):
            self.end = "budget" if stop is None else stop.value
            return False
        can_run = np.array([lane.can_run for lane in self.lanes])
        runs = [bool(lane.running) for lane in self.lanes]
        is_busy = ~can_run & runs  # it can run soon
        asks = self._rule.ask(allowed=can_run | is_busy, busy=is_busy)
        for ask in asks:
            self._note(ask, is_known=True)
        return bool(asks)

    def _ask_up_to(self, row: int, place: int, reason: str) -> None:
        """Ask for a candidate's samples up to a place, without the rule."""
        for example in self._order[: place + 1]:
            if (pair := Pair(row, example)) not in self._seqs:
                ask = Ask(self._rule.table.n_asked, pair, reason)
                self._note(ask, is_known=False)

    def _note(self, ask: Ask, *, is_known: bool) -> None:
        self._seqs[ask.pair] = ask.seq
        event = Asked(ask.seq, *ask.pair, ask.reason)
        self.record.record(event, is_known=is_known)
        self.lanes[ask.pair.candidate].ask(self._places[ask.pair.example])

    def _is_stuck(self) -> bool:
        """Return whether samples wait, and nothing will happen that lets the rule go on."""
        going = [lane for lane in self.lanes if not lane.is_over]
        moves = any(lane.running or lane.coming for lane in going)
        return not moves and any(lane.waiting for lane in going)

    def _pass_over(self) -> None:
        """Run a sample that the rule does not want yet, where one that it wants stands behind it.

        The order stays the common one, so the evidence stays valid; it may cost a sample more.
        """
        for row, lane in enumerate(self.lanes):
            waiting = lane.waiting
            if waiting and lane.asked:
                self._ask_up_to(row, min(waiting), "in the way")
                return
        self.end = "exhausted"
