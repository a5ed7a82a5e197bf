"""Confirming a winner: a second run of it on the examples that the selection never saw.

The run is an ordinary one, under what is left of the budget. Its name, the selection's id with
``SUFFIX``, is the link between the two: whoever has the one finds the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace

from bestarm_agent.config.study.confirm import ConfirmSpec
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.confirmation import Confirmation, confirmation
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run import Run, new_run, resumed_run
from bestarm_agent.engine.setup.open_run import check_unchanged, loaded_study
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.run_state import RunState, folded
from bestarm_agent.store.store import CONFIRMS as SUFFIX
from bestarm_agent.store.store import Store

CUT_OFF = (End.INTERRUPTED, End.FAILURES, End.ERROR)  # these end a run at any stage
_MOST_KEPT = 2  # a half of each cap is kept back at most, so that a choice can be made
_ASKS_ALL: Mapping[str, Json] = {
    "selector": {"name": "uniform", "stop_when_separated": False},
    **{"objective": "best", "stop": {}, "confirm": None, "slices": {}, "optimize": None},
}


@asynccontextmanager
async def confirming_run(of: Run, winner: Candidate, left: Budget) -> AsyncIterator[Run]:
    """Open the run that confirms a winner of another, to spend at most ``left`` from now on.

    One that confirmed an earlier winner, or was cut off, goes on.
    """
    parts, name = of.parts, f"{of.id}{SUFFIX}"
    options = replace(of.options, store=of.store)
    wanted = list({one.id: one for one in (*_baseline(of), winner)}.values())
    study = loaded_study(parts.study, {"name": name, **_ASKS_ALL})
    own = replace(
        parts,
        study=study,
        candidates=tuple(wanted),
        examples=parts.kept_back,
        slices=(),
        labels=(),
        budget=left,
        mode=Selection(study.config.selector),
    )
    known = await _known(of.store, name)
    if known is not None:
        check_unchanged(own.examples, known.example_digests)
    opening = new_run(own, options) if known is None else resumed_run(name, options, lambda _: own)
    async with opening as run:
        there = {one.id for one in run.record.state.candidates}
        if new := [one for one in wanted if one.id not in there]:
            run.add(new)
        run.loop.raise_budget(left)
        yield run


def confirmed_by(run: Run, standing: Standing, parts: StudyParts) -> Confirmation | None:
    """Return what a run on the examples kept back says of a winner."""
    spec, winner = parts.config.confirm, standing.winner
    if spec is None or winner is None:
        return None
    state, label = run.record.state, winner.candidate.label
    return confirmation(state, label, spec.baseline, standing.confidence)


async def spent_on_confirming(of: Run) -> Spend:
    """Return what confirming winners of a run has cost so far."""
    known = await _known(of.store, f"{of.id}{SUFFIX}")
    return Spend() if known is None else known.spend + known.pending_spend


async def with_confirmation(store: Store, standing: Standing, started: Started | None) -> Standing:
    """Add to the standing of a stored run what one on the examples kept back says of its winner."""
    if started is None or not started.kept_back or standing.winner is None:
        return standing
    known = await _known(store, f"{standing.run_id}{SUFFIX}")
    if known is None or not isinstance(started.config, Mapping):
        return standing
    label = standing.winner.candidate.label
    spec = ConfirmSpec.model_validate(started.config["confirm"])
    found = confirmation(known, label, spec.baseline, standing.confidence)
    return replace(standing, confirmation=found)


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


def room(caps: Budget, standing: Standing) -> Budget:
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


def _baseline(of: Run) -> Sequence[Candidate]:
    spec, state = of.parts.config.confirm, of.record.state
    label = None if spec is None else spec.baseline
    return [one for one in state.candidates if one.label == label]


async def _known(store: Store, name: str) -> RunState | None:
    try:
        return await folded(store, name)
    except RunNotFoundError:
        return None
