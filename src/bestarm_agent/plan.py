"""What a study would cost, before one call is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bestarm_agent.assembly import Parts
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.errors import ConfigError
from bestarm_agent.roster import Entry
from bestarm_agent.schedule.caller import RetryPolicy
from bestarm_agent.schedule.clock import SystemClock
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.schedule.waits import WaitBoard
from bestarm_agent.store.fold import RunState
from bestarm_agent.workshop import Workshop


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a study and what running it can cost.

    Attributes:
        n_candidates: K.
        n_examples: N.
        pulls: pairs that the budget allows, at most the whole grid.
        expected: one attempt for every pair, spread evenly over the candidates, replies as long as
            they may get.
        worst: every pair at the dearest candidate, every attempt used; within the caps.
        minutes: how long the expected calls take at the pace of an earlier run, or None.
        unpriced: models whose price is not known, the judge's included.
        budget: the caps.
        notices: what was done to the grid that the user should know.
    """

    n_candidates: int
    n_examples: int
    pulls: int
    expected: Spend
    worst: Spend
    minutes: float | None
    unpriced: tuple[str, ...]
    budget: Budget
    notices: tuple[str, ...]


def make_plan(parts: Parts, earlier: Sequence[RunState] = ()) -> Plan:
    """Work out what a study would cost.

    Args:
        parts: the study.
        earlier: earlier runs of it, for their pace.

    Raises:
        ConfigError: a model cannot be used or a prompt names a field that is not there.
    """
    entries = ready_entries(parts)
    grid = len(entries) * len(parts.examples)
    pulls = grid if parts.budget.pulls is None else min(grid, parts.budget.pulls)
    attempts = parts.config.limits.max_attempts
    dearest = _summed(entries, largest=True)
    mean = _summed(entries, largest=False)
    expected = _times(mean, pulls / len(entries), pulls)
    worst = _times(dearest, pulls * attempts, pulls)
    return Plan(
        n_candidates=len(entries),
        n_examples=len(parts.examples),
        pulls=pulls,
        expected=expected.capped(_caps(parts.budget, expected)),
        worst=worst.capped(_caps(parts.budget, worst)),
        minutes=_minutes(expected.calls, earlier),
        unpriced=_unpriced(entries, parts),
        budget=parts.budget,
        notices=parts.notices,
    )


def ready_entries(parts: Parts) -> list[Entry]:
    """Check every candidate as a run would, without a call.

    Raises:
        ConfigError: a model cannot be used or a prompt names a field that is not there.
    """
    workshop = Workshop(
        parts.fleet,
        parts.examples,
        parts.judge,
        Ledger(parts.budget),
        policy=RetryPolicy(),
        clock=SystemClock(),
        board=WaitBoard(),
    )
    entries = [workshop.entry(candidate) for candidate in parts.candidates]
    check_prices(parts.config, entries)
    return entries


def check_prices(config: StudyConfig, entries: Sequence[Entry]) -> None:
    """Check that what is to be decided by dollars can be.

    Raises:
        ConfigError: a price that is needed is not known, or nothing costs anything.
    """
    per_dollar = config.selector.per == "dollar"
    if not (per_dollar or config.objective.by_price):
        return
    key = "selector.per is `dollar`" if per_dollar else f"objective is `{config.objective.name}`"
    for entry in entries:
        if entry.usd is None:
            raise ConfigError(
                f"{key}, but the price of {entry.model} is not known, and an unknown price is not "
                f"$0; give it a price in the model's options"
            )
    if per_dollar and not any(entry.usd for entry in entries):
        raise ConfigError(f"{key}, but no candidate costs anything; leave it at `call`")


def _summed(entries: Sequence[Entry], *, largest: bool) -> Spend:
    pick = max if largest else sum
    return Spend(
        calls=pick(e.bound.calls for e in entries),
        tokens=pick(e.bound.tokens for e in entries),
        usd_nanos=pick(e.bound.usd_nanos for e in entries),
    )


def _times(spend: Spend, factor: float, pulls: int) -> Spend:
    return Spend(
        pulls=pulls,
        calls=round(spend.calls * factor),
        tokens=round(spend.tokens * factor),
        usd_nanos=round(spend.usd_nanos * factor),
    )


def _caps(budget: Budget, otherwise: Spend) -> Spend:
    """The caps as a spend; what has no cap is as in ``otherwise``."""
    return Spend(
        pulls=otherwise.pulls,
        calls=otherwise.calls if budget.calls is None else budget.calls,
        tokens=otherwise.tokens if budget.tokens is None else budget.tokens,
        usd_nanos=otherwise.usd_nanos if budget.usd_nanos is None else budget.usd_nanos,
        gpu_seconds=otherwise.gpu_seconds,
    )


def _minutes(calls: int, earlier: Sequence[RunState]) -> float | None:
    """Time for ``calls`` at the pace of the latest earlier run that ended in good order."""
    for state in reversed(earlier):
        if state.seconds > 0 and state.spend.calls > 0:
            return calls / state.spend.calls * state.seconds / 60
    return None


def _unpriced(entries: Sequence[Entry], parts: Parts) -> tuple[str, ...]:
    judges = {str(model) for model in parts.judge.models if not parts.fleet.able(model).priced}
    names = judges | {
        entry.model
        for entry in entries
        if not entry.line.provider.capabilities(entry.candidate.model).priced
    }
    return tuple(sorted(names))
