"""Confirming a winner: a second run of it on the examples that the selection never saw.

The mean of a candidate that was chosen for its mean is too high on average: the luck that helped it
to be chosen is in that mean. Scores on examples kept back have no such luck. Given the choice they
are like scores on new examples, so the interval is for the mean over such (draws with replacement,
``betting``), and holds at all times, also if the budget ends early.

It is not for the mean over the N examples of the study. Of N fixed examples, those kept back are
what the choice left over: a candidate chosen for its luck on the one part was unlucky on the other.

The error probability alpha has room for later winners, should the run go on: the j-th one confirmed
gets 0.8 * 0.2^(j-1) of it.

The second run is an ordinary one, under what is left of the budget. Its name, the selection's id
with ``CONFIRMS``, is the link between the two: whoever has the one finds the other.

References:
    Andrews, Kitagawa and McCloskey (2024), "Inference on winners", Quarterly Journal of Economics
    139(1), on the bias. Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 4 (the intervals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Candidate, Json
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.standing import Confirmation, CostLine, Row, Standing
from bestarm_agent.engine.run import Run, check_unchanged, new_run, resumed_run
from bestarm_agent.engine.setup.options import changed_study
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.betting import bet_grid, bounds_on_new
from bestarm_agent.stats.new_examples import OF_WINNER
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import CONFIRMS, Store

_CUT_OFF = (End.INTERRUPTED, End.FAILURES, End.ERROR)  # these end a run at any stage
_MOST_KEPT = 2  # a half of each cap is kept back at most, so that a choice can be made
# Settings of the second run in place of the study's. Its winner is known, so nothing is looked for:
# the interval wants all the examples, whoever would stop early; sections that choose, split or
# improve candidates have no meaning with one.
_ASKS_ALL: Mapping[str, Json] = {
    "selector": {"name": "uniform", "stop_when_separated": False},
    **{"objective": "best", "stop": {}, "confirm": None, "slices": {}, "optimize": None},
}


class Confirming:
    """Looks for the winner of a run with a part of the budget, then confirms it with the rest.

    Args:
        of: the run that looks for the winner.

    Attributes:
        state: of the second run, which an earlier process may have begun; None: there is none.
    """

    def __init__(self, of: Run) -> None:
        self._of = of
        self.state: RunState | None = None

    @property
    def spent(self) -> Spend:
        """The cost so far of confirming winners of the run."""
        return Spend() if self.state is None else self.state.spend + self.state.pending_spend

    @property
    def seconds(self) -> float:
        """The wall-clock seconds so far of confirming winners of the run."""
        return 0.0 if self.state is None else self.state.seconds + self.state.elapsed

    async def run(self, caps: Budget) -> None:
        """Run both; ``caps`` are what the run and confirming its winners may spend in all.

        What winners were confirmed for by now is taken off the caps already.
        """
        of = self._of
        # Before the first answer nobody knows what one costs, so half of most caps is kept; and
        # another candidate may come to lead, so enough is kept for all that was kept back. If the
        # run then ends for want of budget, costs are known, and what the leader has answered needs
        # no budget: less has to be kept, and it goes on with the difference.
        for is_first in (True, False):
            standing = of.standing()
            n = len(of.parts.kept_back) if is_first else self._lacking(standing.winner)
            await of.run(less(caps, kept_for_confirming(n, standing, caps)))
            if of.standing().end != End.BUDGET:
                break
        standing = of.standing()
        if standing.end in _CUT_OFF or standing.winner is None or not standing.winner.n:
            return
        rest = less(caps, standing.spent, standing.seconds)
        await self._confirm(standing.winner.candidate, rest)

    def _lacking(self, leader: Row | None) -> int:
        """Count the examples kept back that the leader has yet to answer; without one, none."""
        n, state = len(self._of.parts.kept_back), self.state
        if leader is None or state is None:
            return 0 if leader is None else n
        own = [k for k, known in enumerate(state.candidates) if known.id == leader.candidate.id]
        is_told = state.told["state"] != State.PENDING
        return n - int((is_told & np.isin(state.asks["candidate"], own)).sum())

    async def _confirm(self, winner: Candidate, budget: Budget) -> None:
        """Let a winner answer what was kept back, and spend at most ``budget``.

        The run that confirmed an earlier winner, or was cut off, goes on.
        """
        of = self._of
        name, options = f"{of.id}{CONFIRMS}", replace(of.options, store=of.store)
        study = changed_study(of.parts.study, {"name": name, **_ASKS_ALL}, is_own=True)
        parts = replace(
            of.parts,
            study=study,
            candidates=(winner,),
            examples=of.parts.kept_back,
            slices=(),
            independent=of.parts.kept_independent,
            labels=(),
            budget=budget,
            mode=Selection(study.config.selector),
        )
        if self.state is None:
            opening = new_run(parts, options)
        else:
            check_unchanged(parts.examples, self.state.example_digests)
            opening = resumed_run(name, options, lambda _: parts)
        async with opening as run:
            run.stop = of.stop  # one study, one flag: also if it was set while this one opened
            if winner.id not in {known.id for known in run.record.state.candidates}:
                run.add([winner])
            taken, seconds = run.ledger.spent, run.loop.seconds  # by confirming earlier
            run.loop.set_budget(run.loop.own_budget.with_room(taken, seconds, budget))
            self.state = run.record.state
            await run.loop.run()


def confirmed(standing: Standing, second: RunState | None) -> Standing:
    """Add to the standing of a run what ``second``, on the examples kept back, says of its winner.

    Where the run itself is over, a second one that goes on, or was cut off, says how all stands.
    """
    if second is None:
        return standing
    is_over = standing.end is not None and standing.end not in _CUT_OFF
    end = second.end if is_over and second.end in (None, *_CUT_OFF) else standing.end
    winner, of_winner = standing.winner, None
    if winner is not None:
        of_winner = confirmation(second, winner.candidate.label, standing.confidence)
    own, seconds = second.spend + second.pending_spend, second.seconds + second.elapsed
    # Money and time are of both, as the study's caps are. Those of a stage are of one of the two:
    # what the other has taken comes on top.
    stage, other = standing.budget, (own, seconds)
    if is_over and end is None:
        stage, other = second.budget, (standing.spent, standing.seconds)
    both = replace(
        standing,
        spent=standing.spent + own,
        costs=(*standing.costs, CostLine("confirming the winner", own, standing.priced)),
        seconds=standing.seconds + seconds,
        budget=stage.with_room(*other, stage),
        to_confirm=own.answers,
        confirmation=of_winner,
        end=end,
    )
    return decided(both)


def confirmation(second: RunState, winner: str, confidence: float) -> Confirmation | None:
    """Work out what a run on the examples kept back says of a candidate; None without an answer.

    Its candidates are all winners so far, in the order in which they won.
    """
    size = len(second.independent or second.example_ids)
    labels = [candidate.label for candidate in second.candidates]
    if winner not in labels:
        return None
    row = labels.index(winner)
    own = second.asks["candidate"] == row
    told, examples = second.told[own], second.asks["example"][own]
    pending = np.flatnonzero(told["state"] == State.PENDING)
    # Only the answers before the first that is awaited count, in the order of asking, which no
    # answer has changed. Of those after it the quick ones are known sooner, and quick answers may
    # be right more often than slow ones: counting them would be a choice by the outcome.
    told = told[: pending[0]] if len(pending) else told
    if second.independent:  # of copies one counts, drawn beforehand
        told = told[np.isin(examples[: len(told)], second.independent)]
    if not len(told):
        return None
    # A pair without an answer could have had any score: it counts as 0 for the lower bound and as 1
    # for the upper one.
    low, high = (np.nan_to_num(told["score"], nan=end) for end in (0.0, 1.0))
    # With s = OF_WINNER the shares s (1 - s)^j of alpha, j = 0, 1, ..., add up to alpha, however
    # many winners there will be; the first gets most, since most runs have one.
    mean = mean_of_new(low, high, size, OF_WINNER * (1.0 - OF_WINNER) ** row * (1.0 - confidence))
    void = int((told["state"] == State.VOID).sum())
    return Confirmation(winner, len(told) - void, void, mean, size, confidence)


def mean_of_new(low: FloatArray, high: FloatArray, n_planned: int, alpha: float) -> Measure:
    """Bound the mean of what (n,) values in [0, 1] are independent draws of, each known as a range.

    ``n_planned`` draws are planned. The value is the mean of those that are known exactly.
    """
    known = low[low == high]
    value = float(known.mean()) if len(known) else float("nan")
    return Measure(value, *bounds_on_new(low, high, alpha, bet_grid(n_planned, alpha / 2)))


async def second_run(store: Store, run_id: str) -> RunState | None:
    """Read the run that confirms winners of another; None if there is none."""
    try:
        return await folded(store, f"{run_id}{CONFIRMS}")
    except RunNotFoundError:
        return None


def kept_for_confirming(n_kept: int, standing: Standing, budget: Budget) -> Budget:
    """Return the part of each cap that is kept for ``n_kept`` answers of the winner meanwhile.

    A pair is taken to cost what the leader's have cost so far; before there is one, half of each
    cap is kept, but for the cap on pairs.
    """
    leader, each = standing.winner, {"answers": 1.0}
    if leader is not None and leader.spend.answers:
        each["seconds"] = standing.seconds / standing.told
        for amount in fields(Spend):
            each[amount.name] = getattr(leader.spend, amount.name) / leader.spend.answers
    kept = {}
    for cap in fields(Budget):
        limit = getattr(budget, cap.name)
        if limit is not None and n_kept:
            most = limit / _MOST_KEPT
            kept[cap.name] = type(limit)(min(each.get(cap.name, most / n_kept) * n_kept, most))
    return Budget(**kept)


def less(budget: Budget, taken: Budget | Spend, seconds: float = 0.0) -> Budget:
    """Return caps without what is taken from them, at least 0; ``seconds`` beside a spend."""
    rest = {}
    for cap in fields(Budget):
        limit, amount = getattr(budget, cap.name), getattr(taken, cap.name, seconds)
        rest[cap.name] = limit if limit is None or amount is None else max(0, limit - amount)
    return Budget(**rest)
