"""The stages of a run that confirms its winner: it chooses, then asks about the chosen one."""

from __future__ import annotations

import math
from dataclasses import fields

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.confirmed_pairs import ConfirmedPairs
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.run.candidate_pool import CandidatePool
from bestarm_agent.engine.run.stopping import End, Rules
from bestarm_agent.selectors.types import BoolArray, State
from bestarm_agent.store.run_state import RunState

_CUT_OFF = (End.INTERRUPTED, End.FAILURES, End.ERROR)  # these end a run at any stage
_MOST_KEPT = 2  # a half of each cap is kept back at most, so that a choice can be made
_FEWEST_NEW, _SHARE_NEW = 8, 50  # told pairs between looks at who leads: 8, and 2 % of all


class Stages:
    """The stages of one session.

    While a winner is looked for, the ledger keeps back what confirming the leading one would cost.
    A confirmation that an earlier session began is finished before the selection goes on.
    Without ``confirms`` the selection is all there is.
    """

    def __init__(
        self,
        pairs: ConfirmedPairs,
        pool: CandidatePool,
        ledger: Ledger,
        state: RunState,
        rules: Rules,
        *,
        confirms: bool = True,
    ) -> None:
        self._pairs = pairs
        self._pool, self._ledger, self._state, self._rules = pool, ledger, state, rules
        self._confirms = confirms
        self._chosen: End | None = None  # why the selection ended in this session
        self._leader, self._next_look = 0, 0
        ledger.kept_back = Spend()
        pairs.end()
        if confirms and (winner := pairs.unfinished) is not None:
            pairs.begin(winner)

    @property
    def worth(self) -> BoolArray | None:
        """(K,) candidates that it is worth asking; None means all."""
        return None if self._pairs.is_confirming else self._rules.worth

    @property
    def asks_all(self) -> bool:
        """Return whether every pair of this stage is to be asked."""
        return self._pairs.is_confirming

    def end(self, seconds: float, budget: Budget, n_told: int, n_void: int) -> End | None:
        """Return why this stage is over even if more could be asked; arguments as of ``Rules``."""
        if not self._pairs.is_confirming:
            kept = self._keep_back(seconds, budget, n_told) if self._confirms else 0.0
            return self._rules.end(seconds + kept, budget, n_told, n_void)
        end = self._rules.end(seconds, budget, n_told, n_void)
        return None if end is End.SEPARATED else end

    def _keep_back(self, seconds: float, budget: Budget, n_told: int) -> float:
        """Keep the budget of a confirmation back; return the wall-clock seconds that it needs."""
        rows = self._pairs.subjects_of(self._leading(n_told))
        due = {row: self._pairs.n_due(row) for row in rows}
        needed = sum((self._cost(row, n) for row, n in due.items()), Spend())
        self._ledger.kept_back = _at_most_half(needed, budget)
        if budget.seconds is None or not n_told:
            return 0.0
        return min(seconds / n_told * sum(due.values()), budget.seconds / _MOST_KEPT)

    def advance(self, end: End) -> bool:
        """Go on to the next stage after this one's ``end``; return False if there is none."""
        pairs = self._pairs
        if not self._confirms or end in _CUT_OFF or self._chosen is not None:
            return False
        if pairs.is_confirming:  # an earlier session had begun it
            pairs.end()
            return True
        winner = self._winner()
        self._ledger.kept_back = Spend()
        self._chosen = end
        if winner is None:
            return False
        pairs.begin(winner)
        return any(map(pairs.n_due, pairs.subjects_of(winner)))

    def end_of_run(self, end: End) -> End:
        """Return why the run ends: the selection's reason, unless the confirmation was cut off."""
        if self._chosen is None or end in _CUT_OFF:
            return end
        return self._chosen if self._pairs.next_choice() is None else end

    def _winner(self) -> int | None:
        if self._rules.objective is not None:
            return self._rules.objective.state(self._pairs).answer
        best = self._pairs.best().best
        return best if self._pairs.estimates().n[best] else None

    def _leading(self, n_told: int) -> int:
        if n_told >= self._next_look:
            self._next_look = n_told + max(_FEWEST_NEW, n_told // _SHARE_NEW)
            self._leader = self._pairs.ranking()[0]
        return self._leader

    def _cost(self, row: int, n: int) -> Spend:
        """Return what ``n`` pairs of a candidate will cost, by those that it has answered."""
        table = self._pairs.table
        told = int(table.n_trials[row] - table.count(State.PENDING)[row])
        if not n or not told:
            return Spend(pulls=n, calls=n)
        spent = self._state.totals[row].spend
        likely = Spend(
            pulls=n,
            calls=math.ceil(spent.calls * n / told),
            tokens=math.ceil(spent.tokens * n / told),
            usd_nanos=math.ceil(spent.usd_nanos * n / told),
            gpu_seconds=spent.gpu_seconds * n / told,
        )
        return likely + self._pool.candidates[row].bound  # so that the last one can be reserved


def _at_most_half(needed: Spend, budget: Budget) -> Spend:
    """Return an amount to keep back that leaves half of every cap."""
    kept = {}
    for part in fields(Spend):
        amount, cap = getattr(needed, part.name), getattr(budget, part.name)
        kept[part.name] = amount if cap is None else min(amount, type(amount)(cap / _MOST_KEPT))
    return Spend(**kept)
