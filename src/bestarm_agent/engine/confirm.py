"""Confirming a winner: a second run of it on the examples that the selection never saw.

The run is an ordinary one, under what is left of the budget. Its name, the selection's id with
``SUFFIX``, is the link between the two: whoever has the one finds the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace

from bestarm_agent.config.study import ConfirmSpec
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Candidate, Json
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.confirmation import Confirmation, confirmation
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run import Run, new_run, resumed_run
from bestarm_agent.engine.setup.parts import StudyParts, changed_study, check_unchanged
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.run_state import RunState, folded
from bestarm_agent.store.store import CONFIRMS as SUFFIX
from bestarm_agent.store.store import Store

_CUT_OFF = (End.INTERRUPTED, End.FAILURES, End.ERROR)  # these end a run at any stage
_MOST_KEPT = 2  # a half of each cap is kept back at most, so that a choice can be made
_ASKS_ALL: Mapping[str, Json] = {
    "selector": {"name": "uniform", "stop_when_separated": False},
    **{"objective": "best", "stop": {}, "confirm": None, "slices": {}, "optimize": None},
}


class Confirming:
    """Looks for the winner of a run with a part of the budget, then confirms it with the rest.

    Args:
        of: the run that looks for the winner.

    Attributes:
        spent: what confirming winners of the run has cost so far.
    """

    def __init__(self, of: Run) -> None:
        self.spent = Spend()
        self._of = of
        self._under_way: Run | None = None  # the run on the examples kept back
        self._found: Confirmation | None = None
        self._cut_off: End | None = None  # why that run ended before its time

    async def run(self, caps: Budget) -> None:
        """Run both; ``caps`` are those of the run and of what it is confirmed by."""
        self._cut_off, of = None, self._of
        for _ in range(2):  # once it is known what pairs cost, less may be kept
            kept = kept_for_confirming(of.parts, of.standing(), caps)
            await of.run(_room(less(caps, kept), of.standing()))
            if of.standing().end != End.BUDGET:
                break
        found = of.standing()
        if found.end in _CUT_OFF or found.winner is None or not found.winner.n:
            return
        left = _room(caps, found)
        async with self._opened(found.winner.candidate, left) as self._under_way:
            end = await self._under_way.loop.run()
            self._cut_off = end if end in _CUT_OFF else None
            self.shown(found)
        self._under_way = None
        await self.recall()

    async def recall(self) -> None:
        """Find out what confirming winners of the run has cost so far, by its log."""
        known = await _known(self._of.store, self._of.id)
        self.spent = Spend() if known is None else known.spend + known.pending_spend

    def stop(self) -> None:
        """Stop the run that is under way."""
        (self._under_way or self._of).loop.stop()

    def shown(self, standing: Standing) -> Standing:
        """Add to the standing of the run what is known of its winner by the other one."""
        if self._under_way is not None:
            state, spec = self._under_way.record.state, self._of.parts.config.confirm
            self._found = _confirmation(state, spec, standing)
        end = standing.end if self._cut_off is None else self._cut_off
        return replace(standing, confirmation=self._found, end=end)

    @asynccontextmanager
    async def _opened(self, winner: Candidate, left: Budget) -> AsyncIterator[Run]:
        """Open the run that confirms a winner, to spend at most ``left`` from now on.

        One that confirmed an earlier winner, or was cut off, goes on.
        """
        of = self._of
        name, options = f"{of.id}{SUFFIX}", replace(of.options, store=of.store)
        spec = of.parts.config.confirm
        baseline = [
            one
            for one in of.record.state.candidates
            if spec is not None and one.label == spec.baseline
        ]
        wanted = list({one.id: one for one in (*baseline, winner)}.values())
        study = changed_study(of.parts.study, {"name": name, **_ASKS_ALL})
        own = replace(
            of.parts,
            study=study,
            candidates=tuple(wanted),
            examples=of.parts.kept_back,
            slices=(),
            labels=(),
            budget=left,
            mode=Selection(study.config.selector),
        )
        known = await _known(of.store, of.id)
        if known is not None:
            check_unchanged(own.examples, known.example_digests)
            opening = resumed_run(name, options, lambda _: own)
        else:
            opening = new_run(own, options)
        async with opening as run:
            there = {one.id for one in run.record.state.candidates}
            if new := [one for one in wanted if one.id not in there]:
                run.add(new)
            run.loop.raise_budget(left)
            yield run


async def with_confirmation(store: Store, standing: Standing, started: Started | None) -> Standing:
    """Add to the standing of a stored run what one on the examples kept back says of its winner."""
    if started is None or not started.kept_back or not isinstance(started.config, Mapping):
        return standing
    known = await _known(store, standing.run_id)
    if known is None:
        return standing
    spec = ConfirmSpec.model_validate(started.config["confirm"])
    return replace(standing, confirmation=_confirmation(known, spec, standing))


def kept_for_confirming(parts: StudyParts, standing: Standing, budget: Budget) -> Budget:
    """Return the part of each cap that is kept back while the winner is looked for.

    A pair is taken to cost what the leader's, or all, have cost so far, whichever is more; before
    there is one, half of each cap is kept, but for the cap on pairs.
    """
    spec = parts.config.confirm
    due = len(parts.kept_back) * (1 if spec is None or spec.baseline is None else 2)
    kept: dict[str, float | None] = {}
    for cap in fields(Budget):
        limit = getattr(budget, cap.name)
        each = 1.0 if cap.name == "pulls" else _cost_of_pair(standing, cap.name)
        if limit is not None:
            most = limit / _MOST_KEPT
            kept[cap.name] = type(limit)(most if each is None else min(each * due, most))
    return Budget(**kept)  # type: ignore[arg-type] # each of its cap's type


def less(budget: Budget, taken: Budget | Spend) -> Budget:
    """Return caps without what is taken from them, at least 0."""
    left = {}
    for cap in fields(Budget):
        limit, amount = getattr(budget, cap.name), getattr(taken, cap.name, None)
        left[cap.name] = limit if limit is None or amount is None else max(0, limit - amount)
    return Budget(**left)


def _room(caps: Budget, standing: Standing) -> Budget:
    """Return what caps leave beyond what a run has spent."""
    return less(less(caps, standing.spent), Budget(seconds=standing.seconds))


def _cost_of_pair(standing: Standing, cap: str) -> float | None:
    if not standing.told:
        return None
    if cap == "seconds":
        return standing.seconds / standing.told
    each = [getattr(standing.spent, cap) / standing.told]
    winner = standing.winner
    if winner is not None and winner.spend.pulls:
        each.append(getattr(winner.spend, cap) / winner.spend.pulls)
    return float(max(each))


def _confirmation(
    state: RunState, spec: ConfirmSpec | None, standing: Standing
) -> Confirmation | None:
    """Return what a run on the examples kept back says of the winner now."""
    if spec is None or standing.winner is None:
        return None
    label = standing.winner.candidate.label
    return confirmation(state, label, spec.baseline, standing.confidence)


async def _known(store: Store, run_id: str) -> RunState | None:
    """Read the run that confirms winners of another; None if there is none."""
    try:
        return await folded(store, f"{run_id}{SUFFIX}")
    except RunNotFoundError:
        return None
