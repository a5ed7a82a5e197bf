"""A run's state, with its rule and its objective, built one event at a time.

No log has to fit into memory. One path leads from an event to the state of a run: a log that is
read goes through it, and so does everything that happens in a live run, so the log alone rebuilds
the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from bestarm_agent.domain.events import (
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
)
from bestarm_agent.domain.spend import NANOS_PER_USD, Budget, usd
from bestarm_agent.domain.values import Candidate, Example, Outcome, Slice
from bestarm_agent.engine.earlier import EarlierOrder
from bestarm_agent.engine.results.objectives import ObjectiveTracker, track_objective
from bestarm_agent.errors import Blame
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import MOVE, Moves, Problem, State, Tell
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.store.chunks import LogColumns
from bestarm_agent.store.codec import Line, line_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import RunLog, Store

# Rules weigh candidates by what they cost. A free one would weigh infinitely much, and nothing else
# would be asked: it counts as this many times cheaper than the dearest.
_MOST_SPREAD = 1e4  # of costs, as selectors see them


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the problem when its first pair is asked."""

    n_candidates: int  # K
    n_examples: int  # N
    budget: Budget = field(default_factory=Budget)  # the caps
    # (K,) most dollars that a call can cost; None where unknown, or as a whole
    costs: tuple[float | None, ...] | None = None
    slices: tuple[Slice, ...] = ()  # of the examples
    independent: tuple[int, ...] = ()  # one of each cluster; empty: no example depends on another

    def problem(self, *, per_dollar: bool) -> Problem:
        """Return the selector's problem, without the rule's own settings."""
        costs = known_costs(self.costs or ()) if per_dollar else None
        return Problem(
            self.n_candidates,
            self.n_examples,
            budget=planned_answers(self.budget, costs),
            open_ended=self.budget == Budget(),
            costs=costs,
            independent=self.independent,
        )


class RunRecord:
    """State, rule and objective of a run, fed with its events.

    The rule is made for the problem as it is at the first ask; until then it is made anew whenever
    the problem changes, so nobody but the record holds it.

    Args:
        open_pairs: makes the source of pairs.
        log: the log of a run that this process writes.
    """

    def __init__(
        self, open_pairs: Callable[[Size, Sequence[Candidate]], Pairs], log: RunLog | None = None
    ) -> None:
        self.state = RunState()
        self.order = EarlierOrder()  # of an earlier run of the study, which a new one follows
        self.log = log
        self._columns = LogColumns(self.state)
        self._open_pairs = open_pairs
        # The rule and the objective belong to the size of the problem at the first ask. Before that
        # they are made when somebody looks (for notices, say), and thrown away when the problem
        # changes.
        self._made: tuple[Pairs, ObjectiveTracker | None] | None = None

    @property
    def pairs(self) -> Pairs:
        """The source of pairs, fed the log."""
        return self._open()[0]

    @property
    def objective(self) -> ObjectiveTracker | None:
        """The objective; None if it is simply the best."""
        return self._open()[1]

    def _open(self) -> tuple[Pairs, ObjectiveTracker | None]:
        if self._made is None:
            pairs = self._open_pairs(size_of(self.state), self.state.candidates)
            self._made = pairs, track_objective(self.state, pairs)
            if self.state.barred:
                pairs.bar([*self.state.barred])
        return self._made

    def record(self, *events: Event, is_known: bool = True) -> None:
        """Take in what happens now, in order; it is durable after the next ``flush``.

        ``is_known``: a pair that is asked was chosen by the source of pairs itself.
        """
        # One line is made of each event. The state takes it in as it would from a log, and the log
        # gets the same line: what a resumed run reads is what this run went by. The state comes
        # first, since it refuses an event that cannot come here, and such an event must not get
        # into the log. Several at once, as a page of a log, take half the time.
        lines = [*map(line_of, events)]
        self._feed(self._columns.take(lines), is_known=is_known)
        if self.log is not None:
            for event, line in zip(events, lines, strict=True):
                self.log.append(event, line)

    async def flush(self) -> None:
        """Wait until everything recorded is durable; raise StoreError if it cannot be written."""
        if self.log is not None:
            await self.log.flush()
            await self._columns.write(self.log.store, self.log.run_id)

    def take(self, page: Sequence[Line]) -> None:
        """Take in the next events of a log; raise StoreError if one cannot come there."""
        # The live run made its rule at the first ask, for the candidates, examples and caps of that
        # moment; what came later was added to it. A page may hold both, so it is cut at its first
        # ask: else the rule would be made for the later problem, and choose other pairs than the
        # run did.
        if not self.state.n_asked:
            asked = (place for place, (tag, _) in enumerate(page) if tag == "asked")
            first = next(asked, len(page))
            self._feed(self._columns.take(page[:first]))
            page = page[first:]
            if page:
                self._open()
        self._feed(self._columns.take(page))

    async def take_all(self, store: Store, run_id: str) -> None:
        """Take in the log of a run, in a thread; raises StoreError as ``take``."""
        await self._columns.read(store, run_id, self.take, self._feed)

    def _feed(self, moves: Sequence[IntArray | Event], *, is_known: bool = False) -> None:
        """Feed the source of pairs what the state has taken in, and made ``moves`` of."""
        # Asks and outcomes come in arrays of numbers, in their order: an ask by its number (>= 0),
        # an outcome by the complement ``~seq`` of the number of its ask (< 0). All other events
        # come as they are.
        for move in moves:
            if isinstance(move, np.ndarray):
                self._feed_pairs(move, is_known=is_known)
            elif self.state.n_asked:
                feed_rare(self.pairs, move)
            else:
                wanted = None if self._made is None else self._made[0].wanted
                self._made = None
                if wanted is not None:  # by ``Study.complete``, before the first ask
                    self.pairs.complete(wanted)

    def _feed_pairs(self, numbers: IntArray, *, is_known: bool) -> None:
        """Feed asks and outcomes, by the numbers that the state has of them."""
        if not is_known:
            self.pairs.replay(moves_of(self.state, numbers))
            return
        for number in numbers.tolist():
            if number < 0:  # an ask that the source of pairs chose itself is known to it
                self.pairs.tell([tell_of(self.state, ~number)])


def feed_rare(pairs: Pairs, event: Event) -> None:
    """Tell a source of pairs of candidates, examples or budget that were added after its making."""
    costs, axes = pairs.rule.problem.costs, pairs.rule.problem.axes
    match event:
        case CandidatesAdded():  # with costs if it works per dollar, axes if it knows them
            pairs.add_candidates(
                len(event.candidates),
                costs and known_costs(event.costs, max(costs)),
                None if axes is None else axes_of(event.candidates),
            )
        case CandidatesBarred():
            pairs.bar(event.candidates)
        case ExamplesAdded():
            pairs.add_examples(len(event.ids))
        # A rule plans for a number of answers, which may grow and never shrinks: caps that are
        # lowered end the run earlier by the ledger.
        case BudgetSet() if (planned := pairs.rule.problem.budget) is not None:
            answers = planned_answers(event.budget, costs)
            if answers is not None and answers > planned:
                pairs.add_budget(answers - planned)
        case _:
            return


def examples_added(
    examples: Sequence[Example], slices: Sequence[Slice] = (), independent: tuple[int, ...] = ()
) -> ExamplesAdded:
    """Record examples by id and content."""
    return ExamplesAdded(
        ids=tuple(example.id for example in examples),
        digests=tuple(example.digest for example in examples),
        slices=tuple(slices),
        independent=independent,
    )


def score_of(outcome: Outcome, failed_score: float) -> float | None:
    """Return a pair's score; None if it is void: only its own failure counts against a candidate.

    ``failed_score`` is that of a pair on which the candidate itself failed.
    """
    if outcome.score is not None:
        return outcome.score.value
    # A failure of the provider or the judge says nothing of the candidate. Were it scored 0, an
    # unreliable server would make a good model lose.
    is_own = outcome.failure is not None and outcome.failure.blame is Blame.CANDIDATE
    return failed_score if is_own else None


def moves_of(state: RunState, numbers: IntArray) -> Moves:
    """Return asks and outcomes as selectors take them, with a certification's further scores.

    ``numbers``: of an ask its number, of an outcome ``~number`` of its ask.
    """
    # A reply from the cache costs what it would have cost: the next one has to be bought, and a run
    # asked again chooses as it did.
    seqs, moves = np.where(numbers < 0, ~numbers, numbers), np.empty(len(numbers), MOVE)
    asks, told, moves["number"] = state.asks[seqs], state.told[seqs], numbers
    for columns, names in ((asks, ("candidate", "example")), (told, ("state", "score", "gold"))):
        for name in names:
            moves[name] = columns[name]
    moves["cost"] = np.fmax(told["usd_nanos"], told["price"]) / NANOS_PER_USD
    return moves


def tell_of(state: RunState, seq: int) -> Tell:
    """Return an outcome as selectors are told it."""
    names = ["state", "score", "gold", "usd_nanos", "price"]
    kind, score, gold, nanos, price = state.told[names][seq].item()
    known, golden = (0.0 if isnan(score) else score), (None if isnan(gold) else gold)
    # the price is NaN where it is unknown, and NaN is not greater than anything
    return Tell(seq, State(kind), known, max(nanos, price) / NANOS_PER_USD, golden)


def axes_of(candidates: Sequence[Candidate]) -> IntArray:
    """Return the (K, 4) numbers of the candidates' models, prompts, parameters and shots."""
    return np.array([candidate.levels for candidate in candidates], dtype=np.int64).reshape(-1, 4)


def known_costs(costs: Sequence[float | None], highest: float = 0.0) -> tuple[float, ...] | None:
    """Return the expected cost of a pull of each candidate before any was made, > 0.

    ``costs`` are the most dollars that a call of each can cost, ``highest`` the most among other
    candidates. A free one counts as a ten-thousandth of the most expensive. None where a price is
    not known, or everything is free.
    """
    known = [cost for cost in costs if cost is not None]
    least = max([highest, *known], default=0.0) / _MOST_SPREAD
    if len(known) < len(costs) or not least > 0:
        return None
    return tuple(max(cost, least) for cost in known)


def planned_answers(budget: Budget, costs: tuple[float, ...] | None) -> int | None:
    """Return the answers that a rule may plan for: the caps, or what the dollars pay on average.

    An answer takes one call at least.
    """
    caps = [budget.answers, budget.calls]
    if costs and budget.usd_nanos is not None:
        # Asked evenly, K candidates take sum(costs) for K answers: the dollars pay K / sum(costs)
        # answers each. A rule that prefers cheap candidates gets more, and then meets the end later
        # than planned.
        caps.append(max(1, int(usd(budget.usd_nanos) * len(costs) / sum(costs))))
    return min((cap for cap in caps if cap is not None), default=None)


def size_of(state: RunState) -> Size:
    """Return the size of the problem as it is now."""
    return Size(
        len(state.candidates),
        len(state.example_ids),
        state.budget,
        tuple(state.costs),
        state.slices,
        state.independent,
    )
