"""Decides which samples run in a race: one selection rule over candidates with common examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter

import numpy as np

from bestarm_agent._version import __version__
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    ExamplesAdded,
    Started,
    Told,
)
from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.results.standing import Standing, build_standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState, fold


@dataclass(slots=True)
class Samples:
    """One candidate's samples, by their place in the common order.

    A sample waits for the rule while it holds one of its task's slots; with few slots, a sample
    that the rule has asked for may still stand behind others.
    """

    outside: set[int]  # hold no slot yet, or not now: they are tried again
    at_once: int  # the most that run
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)  # and how to let them go
    asked: set[int] = field(default_factory=set)  # of those outside, by the rule
    running: set[int] = field(default_factory=set)
    free_slots: int = 0  # given back, and not taken again yet
    has_begun: bool = False
    is_over: bool = False
    is_lost: bool = False  # over before the race was

    @property
    def coming(self) -> int:
        """Number of samples that are about to take a slot."""
        return min(self.free_slots, len(self.outside))

    @property
    def can_run(self) -> bool:
        """Return whether a sample that is asked for now would run soon."""
        if self.is_over or len(self.running) >= self.at_once:
            return False
        return bool(self.waiting) or self.coming > len(self.asked)


class PairQueue:
    """Runs a rule's asks on the samples that other code brings, in their common order.

    The rule is asked once every candidate has begun. Nothing here waits: ``arrive`` takes a
    callback, which is called when the sample may run, or when the race has ended.

    Attributes:
        end: why nothing more is asked, as in ``Stopped``; None while the race goes on.
    """

    def __init__(
        self,
        name: str,
        at: str,
        rule: Pairs,
        candidates: Sequence[Candidate],
        example_ids: Sequence[str],
        budget: int | None,
        at_once: int | None = None,
    ) -> None:
        self._rule = rule
        if not rule.rule.common_examples:
            raise ValueError(f"rule {rule.name!r} does not take common examples in one order")
        order = rule.rule.order.examples
        self._order: list[int] = order.tolist()  # place -> example
        self._places: list[int] = order.argsort().tolist()  # example -> place
        self._budget = len(candidates) * len(example_ids) if budget is None else budget
        self._seqs: dict[Pair, int] = {}
        self._earlier: list[
            tuple[datetime, int, int, Outcome | None]
        ] = []  # row, place; None: asked
        places = range(len(example_ids))
        self.samples = [Samples({*places}, at_once or len(places)) for _ in candidates]
        self.end: str | None = None
        by_example = [example_ids[place] for place in self._places]
        self.state: RunState = fold(
            [
                Started(name, at, __version__, {}, "."),
                CandidatesAdded(tuple(candidates)),
                ExamplesAdded(tuple(by_example), tuple(by_example)),
                BudgetSet(Budget(pulls=budget)),
            ]
        )

    def arrive(self, row: int, place: int, release: Callable[[], None]) -> None:
        """Note that a sample has a slot; ``release`` is called once it need not wait any more."""
        samples = self.samples[row]
        samples.has_begun = True
        samples.free_slots = max(0, samples.free_slots - 1)
        samples.outside.discard(place)
        samples.waiting[place] = release
        if place in samples.asked:
            samples.asked.remove(place)
            self._run(row, place)
        self.decide()

    def may_run(self, row: int, place: int) -> bool:
        """Return whether a released sample is to run; else it is to be skipped."""
        samples = self.samples[row]
        if place in samples.running:
            return True
        samples.free_slots += 1
        return False

    def put_back(self, row: int, place: int) -> None:
        """Note that a running sample gave its slot back, and is tried again later."""
        samples = self.samples[row]
        samples.running.discard(place)
        samples.outside.add(place)
        samples.asked.add(place)
        samples.free_slots += 1
        self.decide()

    def tell(self, row: int, place: int, outcome: Outcome) -> None:
        """Record an outcome, once; Inspect may have reused that of a sample nobody asked for."""
        self._ask_up_to(row, place, "resumed")
        self._record(row, place, outcome)
        self.decide()

    def remember(
        self, row: int, place: int, outcome: Outcome, began: datetime, ended: datetime
    ) -> None:
        """Keep an outcome of an earlier race, to be told once every candidate has begun.

        Asks and outcomes come back in the order of time: who leads at a place must be known before
        a score at that place is.
        """
        self._earlier += [(began, row, place, None), (ended, row, place, outcome)]

    def _record(self, row: int, place: int, outcome: Outcome) -> None:
        samples = self.samples[row]
        seq = self._seqs[self._pair(row, place)]
        if seq in self.state.told:
            return
        samples.free_slots += place in samples.running
        for places in (samples.running, samples.asked, samples.outside):
            places.discard(place)
        score = outcome.value if isinstance(outcome, Scored) else None
        state = State.VOID if score is None else State.DONE
        self.state.take([line_of(Told(seq, outcome, score))])
        self._rule.tell([Tell(seq, state, score or 0.0)])

    def is_told(self, row: int, place: int) -> bool:
        """Return whether a sample has its outcome."""
        return self._seqs.get(self._pair(row, place), -1) in self.state.told

    def start_without_the_missing(self, void: Outcome) -> None:
        """Begin; candidates none of whose samples has come yet take no part."""
        for row, samples in enumerate(self.samples):
            if not samples.has_begun:
                self.leave(row, void)

    def leave(self, row: int, void: Outcome) -> None:
        """Note that a candidate's task is over; what it was asked and never ran becomes void."""
        samples = self.samples[row]
        samples.is_lost = samples.is_lost or (self.end is None and not samples.is_over)
        samples.is_over, samples.has_begun = True, True
        samples.waiting.clear()
        for place in sorted(samples.asked | samples.running):
            self.tell(row, place, void)
        self.decide()

    def stop(self, reason: str) -> None:
        """Ask for nothing more, and let all samples go."""
        self.end = self.end or reason
        self.decide()

    def decide(self) -> None:
        """Ask the rule for as many pairs as can run now; at the end, let all go."""
        if self.end is None and not all(samples.has_begun for samples in self.samples):
            return
        earlier, self._earlier = sorted(self._earlier, key=itemgetter(0)), []
        for _, row, place, outcome in earlier:
            self._ask_up_to(row, place, "resumed")
            if outcome is not None:
                self._record(row, place, outcome)
        while self.end is None and self._ask_rule():
            pass
        if self.end is None and self._is_stuck():
            self._pass_over()
        if self.end is not None:
            for samples in self.samples:
                while samples.waiting:
                    samples.waiting.popitem()[1]()

    def standing(self, seconds: float) -> Standing:
        """Build the standing of a race that has lasted ``seconds``, as that of a study is built."""
        labels = [candidate.label for candidate in self.state.candidates]
        unseen = self._rule.table.n_unseen
        lost = [i for i, s in enumerate(self.samples) if s.is_lost and unseen[i]]
        return build_standing(
            self.state,
            self._rule,
            run_id=self.state.name,
            budget=self.state.budget,
            spent=self.state.spend,
            seconds=seconds,
            broken={labels[i]: "its task ended before the race did" for i in lost},
            in_flight=sum(len(samples.running) for samples in self.samples),
        )

    def _pair(self, row: int, place: int) -> Pair:
        return Pair(row, self._order[place])

    def _ask_rule(self) -> bool:
        """Ask for one more pair; return False if there is none now, or never again."""
        stop = self._rule.stopped()
        if stop is not None or len(self.state.asks) >= self._budget:
            self.end = "budget" if stop is None else stop.value
            return False
        can_run = np.array([samples.can_run for samples in self.samples])
        is_busy = ~can_run & [bool(samples.running) for samples in self.samples]  # it can run soon
        asks = self._rule.ask(allowed=can_run | is_busy, busy=is_busy)
        for ask in asks:
            self._note(ask)
        return bool(asks)

    def _ask_up_to(self, row: int, place: int, reason: str) -> None:
        """Ask for a candidate's samples up to a place, without the rule."""
        for earlier in range(place + 1):
            pair = self._pair(row, earlier)
            if pair not in self._seqs:
                ask = Ask(len(self.state.asks), pair, reason)
                self._rule.adopt([ask])
                self._note(ask)

    def _note(self, ask: Ask) -> None:
        row, place = ask.pair.candidate, self._places[ask.pair.example]
        self._seqs[ask.pair] = ask.seq
        self.state.take([line_of(Asked(ask.seq, *ask.pair, ask.reason))])
        if place in self.samples[row].waiting:
            self._run(row, place)
        else:
            self.samples[row].asked.add(place)

    def _run(self, row: int, place: int) -> None:
        self.samples[row].running.add(place)
        self.samples[row].waiting.pop(place)()

    def _is_stuck(self) -> bool:
        """Return whether samples wait, and nothing will happen that lets the rule go on."""
        going = [samples for samples in self.samples if not samples.is_over]
        return any(s.waiting for s in going) and not any(s.running or s.coming for s in going)

    def _pass_over(self) -> None:
        """Run a sample that the rule does not want yet, where one that it wants stands behind it.

        The order stays the common one, so the evidence stays valid; it may cost a sample more.
        """
        for row, samples in enumerate(self.samples):
            if samples.asked and samples.waiting:
                self._ask_up_to(row, min(samples.waiting), "in the way")
                return
        self.end = "exhausted"
