"""What a study would cost, before one call is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bestarm_agent.assembly import Parts
from bestarm_agent.certifying.audit import trial_order
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.domain.allowance import Resource
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.errors import ConfigError
from bestarm_agent.expecting import expected_spend, times
from bestarm_agent.judging import Panel
from bestarm_agent.roster import Entry
from bestarm_agent.schedule.clock import SystemClock
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.store.fold import RunState
from bestarm_agent.wording import unpriced
from bestarm_agent.workshop import Workshop, longest_of, workshop_of


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """What is known of a model's price.

    Attributes:
        model: provider and model.
        source: where the price comes from, for people; None where it is not known.
        most_usd_nanos: the most that one call for the longest example can cost, the dearest of the
            candidates that use the model; None where that is not known.
        role: "candidate" or "judge".
    """

    model: str
    source: str | None
    most_usd_nanos: int | None
    role: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a study and what running it can cost.

    Attributes:
        n_candidates: K.
        n_examples: N.
        pulls: pairs that the budget allows, at most the whole grid.
        expected: one attempt for every pair, spread over the candidates (evenly, or as working per
            dollar spreads them), each at what its pairs cost in the last run of the study, or
            else at the most that they can cost, less what that overstated for the others.
        worst: every pair at the dearest candidate, every attempt used; within the caps.
        sure_pulls: pairs that the caps pay for even if each costs the most that it can.
        learned: whether ``expected`` rests on an earlier run.
        minutes: how long the expected calls take at the pace of an earlier run, and no less than
            the known rate limits allow; None if neither is known.
        prices: what is known of each model's price.
        unpriced: models whose price is not known, the judge's included.
        budget: the caps.
        notices: what was done to the grid that the user should know.
    """

    n_candidates: int
    n_examples: int
    pulls: int
    expected: Spend
    worst: Spend
    sure_pulls: int
    learned: bool
    minutes: float | None
    prices: tuple[ModelPrice, ...]
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
    workshop = _workshop(parts)
    entries = _ready(workshop, parts)
    grid = len(entries) * len(parts.examples)
    pulls = grid if parts.budget.pulls is None else min(grid, parts.budget.pulls)
    attempts = parts.config.limits.max_attempts
    dearest = _dearest(entries)
    per_dollar = parts.config.selector.per == "dollar"
    expected, learned = expected_spend(entries, earlier, pulls, per_dollar=per_dollar)
    worst = times(dearest, pulls * attempts, pulls)
    prices = (*_prices(entries), *_judge_prices(workshop.panel, longest_of(parts.examples)))
    return Plan(
        n_candidates=len(entries),
        n_examples=len(parts.examples),
        pulls=pulls,
        expected=expected.capped(_caps(parts.budget, expected)),
        worst=worst.capped(_caps(parts.budget, worst)),
        sure_pulls=Ledger(parts.budget).room_for(dearest + Spend(pulls=1), pulls),
        learned=learned,
        minutes=_minutes(expected, entries, earlier),
        prices=prices,
        unpriced=tuple(sorted(price.model for price in prices if price.most_usd_nanos is None)),
        budget=parts.budget,
        notices=parts.notices,
    )


def ready_entries(parts: Parts) -> list[Entry]:
    """Check every candidate as a run would, without a call.

    Raises:
        ConfigError: a model cannot be used or a prompt names a field that is not there.
    """
    return _ready(_workshop(parts), parts)


def _ready(workshop: Workshop, parts: Parts) -> list[Entry]:
    entries = workshop.entries(parts.candidates)
    check_prices(parts.config, entries)
    if parts.audit is not None:  # an order that cannot be made is found before a run is begun
        trial_order(parts.audit.order, parts.candidates, [entry.usd for entry in entries])
    return entries


def _workshop(parts: Parts) -> Workshop:
    return workshop_of(parts, Ledger(parts.budget), clock=SystemClock())


def check_prices(config: StudyConfig, entries: Sequence[Entry]) -> None:
    """Check that what is to be decided by dollars can be.

    Raises:
        ConfigError: a price that is needed is not known, or nothing costs anything.
    """
    per_dollar = config.selector.per == "dollar"
    if not (per_dollar or config.objective.by_price):
        return
    key = "selector.per is `dollar`" if per_dollar else f"objective is `{config.objective.name}`"
    if unknown := list(dict.fromkeys(entry.model for entry in entries if entry.usd is None)):
        raise ConfigError(f"{key}, but {unpriced(unknown)}")
    if per_dollar and not any(entry.usd for entry in entries):
        raise ConfigError(f"{key}, but no candidate costs anything; leave it at `call`")


def _dearest(entries: Sequence[Entry]) -> Spend:
    return Spend(
        calls=max(entry.bound.calls for entry in entries),
        tokens=max(entry.bound.tokens for entry in entries),
        usd_nanos=max(entry.bound.usd_nanos for entry in entries),
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


def _minutes(
    expected: Spend, entries: Sequence[Entry], earlier: Sequence[RunState]
) -> float | None:
    """Time for the expected calls, by the latest earlier run in good order and by rate limits."""
    known = _limited_minutes(expected, entries)
    paced = (s for s in reversed(earlier) if s.seconds > 0 and s.spend.calls > 0)
    if (state := next(paced, None)) is not None:
        known.append(expected.calls / state.spend.calls * state.seconds / 60)
    return max(known, default=None)


def _limited_minutes(expected: Spend, entries: Sequence[Entry]) -> list[float]:
    """What each known limit needs, if the calls are spread evenly over the candidates.

    Prompt and generated tokens are planned together, so limits of either alone are left out.
    """
    needs = {Resource.REQUESTS: expected.calls, Resource.TOKENS: expected.tokens}
    lanes = Counter(entry.lane for entry in entries)
    return [
        needs[resource] * n / len(entries) / quota.per_minute
        for lane, n in lanes.items()
        for resource, quota in lane.limiter.quotas.items()
        if resource in needs
    ]


def _prices(entries: Sequence[Entry]) -> tuple[ModelPrice, ...]:
    """The candidates' models, each once."""
    found: dict[str, ModelPrice] = {}
    for entry in entries:
        most = None if entry.usd is None else nanos(entry.usd)
        _note(found, ModelPrice(entry.model, entry.price_source, most, "candidate"))
    return tuple(found.values())


def _judge_prices(panel: Panel, longest: Example) -> tuple[ModelPrice, ...]:
    """The judge's models, each once."""
    found: dict[str, ModelPrice] = {}
    for call in panel.judge.longest_calls(longest):
        seat, request = panel.prepared(call)
        provider = seat.line.provider
        able = provider.capabilities(request.model)
        most = provider.bound(request).usd_nanos if able.priced else None
        _note(found, ModelPrice(str(call.model), able.price_source, most, "judge"))
    return tuple(found.values())


def _note(found: dict[str, ModelPrice], price: ModelPrice) -> None:
    """Keep the dearest call of each model."""
    before = found.get(price.model)
    if before is None or (price.most_usd_nanos or 0) > (before.most_usd_nanos or 0):
        found[price.model] = price
