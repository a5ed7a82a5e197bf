"""Pairs of a selection on some of the examples, then of its winner on those kept back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bestarm_agent.engine.pair_source import PlannedPairs
from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    Pair,
    Problem,
    State,
    Stop,
)
from bestarm_agent.stats.keyed_random import KeyedRandom

# reasons of asks on examples kept back; the log tells these asks from others by them
CONFIRMING = CONFIRM, CONFIRM_BASELINE = "confirm", "confirm baseline"


class Answers(NamedTuple):
    """Known scores of a candidate on the examples kept back, in their order."""

    # each in [0, 1] as a range; (0, 1) if it could not be measured; up to the first one pending
    ranges: tuple[tuple[float, float], ...]
    n: int  # scores
    void: int
    pending: int


def held_back(n_examples: int, share: float, seed: int, n_draws: int = 1) -> tuple[int, ...]:
    """Draw the examples that the selection does not see, in the order in which they are asked.

    Where an example is one of ``n_draws`` of a row (``each_drawn``), all of the row are kept back.
    """
    n_rows = n_examples // n_draws
    order = KeyedRandom(seed, "confirm-order").at(0).permutation(n_rows)
    rows = order[: max(1, round(share * n_rows))]
    return tuple(int(row) + draw * n_rows for draw in range(n_draws) for row in rows)


class ConfirmedPairs(RulePairs):
    """A rule that sees the examples that are not ``held``; the winner then answers these.

    No score on a held example changes what is chosen, so the winner's scores there are like those
    on new examples. The run decides when the choice is made (``begin``). Statements about the
    candidates are the rule's.

    Args:
        problem: all N examples.
        rule: of a problem without those held; its column j is the j-th of the others.
        held: from ``held_back``.
        baseline: row of a candidate that answers them too, or None.
        n_draws: draws of each row of the dataset that are examples. Those of one row are alike, so
            the winner answers the first.

    Attributes:
        confirming: those of the held examples that the winner answers.
        winners: rows that were confirmed, in the order in which that began.
    """

    def __init__(
        self,
        problem: Problem,
        rule: Selector,
        held: Sequence[int],
        baseline: int | None = None,
        n_draws: int = 1,
    ) -> None:
        super().__init__(problem, rule, held)
        self.confirming = self.held[: len(held) // n_draws]
        self.baseline = baseline
        self.winners: list[int] = []
        self._asked_of: dict[int, list[int]] = {}  # by row: numbers of its asks on held examples
        self._subjects: tuple[int, ...] = ()  # rows that are being confirmed

    @property
    def is_confirming(self) -> bool:
        """Return whether the examples kept back are being asked."""
        return bool(self._subjects)

    def subjects_of(self, winner: int) -> tuple[int, ...]:
        """Return the rows that answer when ``winner`` is confirmed: it, and the baseline."""
        return tuple(dict.fromkeys(row for row in (winner, self.baseline) if row is not None))

    def n_due(self, row: int) -> int:
        """Return the number of held examples that were not asked of a candidate yet."""
        return len(self.confirming) - len(self._asked_of.get(row, ()))

    @property
    def unfinished(self) -> int | None:
        """The winner whose confirmation was begun and not ended, or None."""
        rows = [row for row in self.winners if any(map(self.n_due, self.subjects_of(row)))]
        return rows[-1] if rows else None

    def begin(self, winner: int) -> None:
        """Turn to the examples kept back."""
        self._subjects = self.subjects_of(winner)

    def end(self) -> None:
        """Turn back to the selection."""
        self._subjects = ()

    def answers(self, row: int) -> Answers:
        """Return what is known of a candidate on the examples kept back."""
        table, seqs = self.table, self._asked_of.get(row, [])
        states = [State(table.state[seq]) for seq in seqs]
        known = next((i for i, one in enumerate(states) if one is State.PENDING), len(states))
        ranges = tuple(
            (0.0, 1.0) if state is State.VOID else (float(table.score[seq]),) * 2
            for seq, state in zip(seqs[:known], states, strict=False)
        )
        void, pending = states.count(State.VOID), states.count(State.PENDING)
        return Answers(ranges, len(states) - void - pending, void, pending)

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        """Ask for up to ``n`` pairs, of the rule or of those being confirmed."""
        asking = PlannedPairs.ask if self.is_confirming else RulePairs.ask
        return asking(self, n, allowed=allowed, busy=busy)

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return the next pair; of those to confirm that may be asked, the one furthest behind."""
        if not self.is_confirming:
            return super().next_choice(allowed)
        rows = [
            row for row in self._subjects if self.n_due(row) and (allowed is None or allowed[row])
        ]
        if not rows:
            return None
        row = max(rows, key=self.n_due)
        example = self.confirming[len(self._asked_of.get(row, ()))]
        reason = CONFIRM if row == self._subjects[0] else CONFIRM_BASELINE
        return Choice(Pair(row, example), None, reason)

    def stopped(self) -> Stop | None:
        """Return why nothing will be asked any more, or None."""
        is_due = self.is_confirming and self.next_choice() is not None
        return None if is_due else super().stopped()

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending; whether they confirm, their reason tells."""
        for ask in asks:
            if ask.reason not in CONFIRMING:
                super().adopt([ask])
                continue
            self.table.ask(ask)
            self._asked_of.setdefault(ask.pair.candidate, []).append(ask.seq)
            if ask.reason == CONFIRM and ask.pair.candidate not in self.winners:
                self.winners.append(ask.pair.candidate)
