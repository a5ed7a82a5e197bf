"""The cost of a study, estimated before any call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.rate_limits import Resource
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.engine.calls.judge_calls import JudgeClient
from bestarm_agent.engine.clock import SystemClock
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.engine.run.event_log import Size, known_costs
from bestarm_agent.engine.setup.candidates import (
    PreparedCandidates,
    check_prices,
    longest_of,
    prepare,
)
from bestarm_agent.engine.setup.placed_models import PlacedModel, placed_models
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.pull_costs import pull_weights
from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of a model, as far as it is known."""

    model: str  # provider and model
    source: str | None  # where the price comes from, for people; None where it is not known
    # the most that one call for the longest example can cost, over the candidates that use the
    # model; None where that is not known
    most_usd_nanos: int | None
    role: str  # "candidate" or "judge"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a study and what running it can cost."""

    n_candidates: int  # K
    n_examples: int  # N
    pulls: int  # pairs that the budget allows, at most the whole grid
    # one attempt for every pair, spread over the candidates (evenly, or as working per dollar
    # spreads them), each at what its pairs cost in the last run of the study, or else at the most
    # that they can cost, less what that overstated for the others
    expected: Spend
    worst: Spend  # every pair at the most expensive candidate, every attempt used; within the caps
    sure_pulls: int  # pairs that the caps pay for even if each costs the most that it can
    learned: bool  # whether ``expected`` rests on an earlier run
    # how long the expected calls take at the pace of an earlier run, and no less than the known
    # rate limits allow; None if neither is known
    minutes: float | None
    prices: tuple[ModelPrice, ...]  # what is known of each model's price
    unpriced: tuple[str, ...]  # models whose price is not known, the judge's included
    budget: Budget  # the caps
    placed: tuple[PlacedModel, ...]  # models that are given devices of this machine
    notices: tuple[str, ...]  # what was done to the grid that the user should know


def make_plan(parts: StudyParts, earlier: Sequence[RunState] = ()) -> Plan:
    """Work out what a study would cost; raise ConfigError if it cannot run."""
    prepared, notices = _prepared(parts)
    entries = prepared.entries
    grid = len(entries) * len(parts.examples)
    pulls = grid if parts.budget.pulls is None else min(grid, parts.budget.pulls)
    attempts = parts.config.limits.max_attempts
    most = _most_expensive(entries)
    per_dollar = parts.config.selector.per == "dollar"
    expected, learned = expected_spend(entries, earlier, pulls, per_dollar=per_dollar)
    worst = times(most, pulls * attempts, pulls)
    judge_prices = _judge_prices(prepared.factory.judge_client, longest_of(parts.examples))
    prices = (*_prices(entries), *judge_prices)
    return Plan(
        n_candidates=len(entries),
        n_examples=len(parts.examples),
        pulls=pulls,
        expected=expected.capped(_caps(parts.budget, expected)),
        worst=worst.capped(_caps(parts.budget, worst)),
        sure_pulls=Ledger(parts.budget).room_for(most + Spend(pulls=1), pulls),
        learned=learned,
        minutes=_minutes(expected, entries, earlier),
        prices=prices,
        unpriced=tuple(sorted(price.model for price in prices if price.most_usd_nanos is None)),
        budget=parts.budget,
        placed=placed_models(_providers(prepared)),
        notices=notices,
    )


def check_study(parts: StudyParts) -> tuple[str, ...]:
    """Check a study as a run would, without a call; return what the user should know."""
    _, notices = _prepared(parts)
    return notices


def _prepared(parts: StudyParts) -> tuple[PreparedCandidates, tuple[str, ...]]:
    prepared = prepare(parts, parts.candidates, Ledger(parts.budget), SystemClock())
    check_prices(parts.config, prepared.entries)
    costs = tuple(entry.usd for entry in prepared.entries)
    size = Size(len(costs), len(parts.examples), parts.budget, costs, parts.slices)
    pairs = parts.mode.pairs(size, parts.candidates)
    return prepared, (*parts.notices, *parts.mode.notices(pairs, size))


def _providers(prepared: PreparedCandidates) -> list[Provider]:
    own = [entry.client.provider for entry in prepared.entries]
    return [*own, *prepared.factory.judge_client.providers]


def _most_expensive(entries: Sequence[ReadyCandidate]) -> Spend:
    return Spend(
        calls=max(entry.bound.calls for entry in entries),
        tokens=max(entry.bound.tokens for entry in entries),
        usd_nanos=max(entry.bound.usd_nanos for entry in entries),
    )


def _caps(budget: Budget, otherwise: Spend) -> Spend:
    """Return the caps as a spend; values without a cap are those of ``otherwise``."""
    return Spend(
        pulls=otherwise.pulls,
        calls=otherwise.calls if budget.calls is None else budget.calls,
        tokens=otherwise.tokens if budget.tokens is None else budget.tokens,
        usd_nanos=otherwise.usd_nanos if budget.usd_nanos is None else budget.usd_nanos,
        gpu_seconds=otherwise.gpu_seconds,
    )


def _minutes(
    expected: Spend, entries: Sequence[ReadyCandidate], earlier: Sequence[RunState]
) -> float | None:
    """Return the time for the expected calls, by the latest earlier run and by rate limits."""
    known = _limited_minutes(expected, entries)
    paced = (s for s in reversed(earlier) if s.seconds > 0 and s.spend.calls > 0)
    if (state := next(paced, None)) is not None:
        known.append(expected.calls / state.spend.calls * state.seconds / 60)
    return max(known, default=None)


def _limited_minutes(expected: Spend, entries: Sequence[ReadyCandidate]) -> list[float]:
    """Return the minutes that each rate limit needs, with the calls spread evenly.

    Prompt and generated tokens are planned together, so limits of either alone are left out.
    """
    needs = {Resource.REQUESTS: expected.calls, Resource.TOKENS: expected.tokens}
    limiters = Counter(entry.limiter for entry in entries)
    return [
        needs[resource] * n / len(entries) / bucket.per_minute
        for limiter, n in limiters.items()
        for resource, bucket in limiter.rate.buckets.items()
        if resource in needs
    ]


def _prices(entries: Sequence[ReadyCandidate]) -> tuple[ModelPrice, ...]:
    found: dict[str, ModelPrice] = {}
    for entry in entries:
        most = None if entry.usd is None else nanos(entry.usd)
        _note(found, ModelPrice(entry.model, entry.price_source, most, "candidate"))
    return tuple(found.values())


def _judge_prices(judge_client: JudgeClient, longest: Example) -> tuple[ModelPrice, ...]:
    found: dict[str, ModelPrice] = {}
    for judge_call in judge_client.judge.longest_calls(longest):
        call = judge_client.call(judge_call)
        able = call.client.provider.capabilities(call.request.model)
        most = call.bound().usd_nanos if able.priced else None
        _note(found, ModelPrice(str(judge_call.model), able.price_source, most, "judge"))
    return tuple(found.values())


def _note(found: dict[str, ModelPrice], price: ModelPrice) -> None:
    before = found.get(price.model)
    if before is None or (price.most_usd_nanos or 0) > (before.most_usd_nanos or 0):
        found[price.model] = price


_PULLS = 1000  # mean costs are kept for so many, since amounts are whole numbers


def expected_spend(
    entries: Sequence[ReadyCandidate],
    earlier: Sequence[RunState],
    pulls: int,
    *,
    per_dollar: bool,
) -> tuple[Spend, bool]:
    """Estimate the cost of pulls if no candidate proves better or worse than the others.

    Also return whether an earlier run told what pulls cost; else each costs its bound.
    """
    each, learned = _expected_pulls(entries, _seen_pulls(earlier))
    return _mixed(each, _shares(entries, per_dollar=per_dollar), pulls), learned


def _shares(entries: Sequence[ReadyCandidate], *, per_dollar: bool) -> list[float]:
    """Share of the pulls that each candidate gets if none proves better or worse; they sum to 1."""
    costs = known_costs([entry.usd for entry in entries]) if per_dollar else None
    weights = [1.0] * len(entries) if costs is None else pull_weights(np.array(costs)).tolist()
    whole = sum(1 / weight for weight in weights)
    return [1 / weight / whole for weight in weights]


def _expected_pulls(
    entries: Sequence[ReadyCandidate], seen: Mapping[str, Spend]
) -> tuple[list[Spend], bool]:
    """Return the cost of ``_PULLS`` pulls of each candidate, and whether an earlier run told it."""
    bounds = [times(entry.bound, _PULLS, _PULLS) for entry in entries]
    known = [
        (bound, seen[e.candidate.id])
        for e, bound in zip(entries, bounds, strict=True)
        if e.candidate.id in seen
    ]
    if not known:
        return bounds, False
    foreseen = sum((bound for bound, _ in known), Spend())
    cost = sum((pull for _, pull in known), Spend())
    guesses = [_scaled(bound, cost, foreseen) for bound in bounds]
    return [seen.get(e.candidate.id, g) for e, g in zip(entries, guesses, strict=True)], True


def _seen_pulls(earlier: Sequence[RunState]) -> dict[str, Spend]:
    """Return the cost of ``_PULLS`` pulls by candidate id, from the latest run that has it."""
    seen: dict[str, Spend] = {}
    for state in earlier:
        for candidate, totals in zip(state.candidates, state.totals, strict=True):
            spend = totals.spend
            if spend.calls and spend.pulls:  # replies from the cache say nothing about prices
                seen[candidate.id] = times(spend, _PULLS / spend.pulls, _PULLS)
    return seen


def _scaled(bound: Spend, cost: Spend, foreseen: Spend) -> Spend:
    """Scale a bound by the share of it that other candidates really cost."""

    def share(name: str) -> float:
        whole = getattr(foreseen, name)
        return float(min(1.0, getattr(cost, name) / whole)) if whole else 1.0

    return replace(
        bound,
        calls=round(bound.calls * share("calls")),
        tokens=round(bound.tokens * share("tokens")),
        usd_nanos=round(bound.usd_nanos * share("usd_nanos")),
    )


def _mixed(each: Sequence[Spend], shares: Sequence[float], pulls: int) -> Spend:
    parts = [(spend, share * pulls / _PULLS) for spend, share in zip(each, shares, strict=True)]
    return Spend(
        pulls=pulls,
        calls=round(sum(spend.calls * n for spend, n in parts)),
        tokens=round(sum(spend.tokens * n for spend, n in parts)),
        usd_nanos=round(sum(spend.usd_nanos * n for spend, n in parts)),
    )


def times(spend: Spend, factor: float, pulls: int) -> Spend:
    """Multiply a spend and set its pulls; worker seconds are left out."""
    return Spend(
        pulls=pulls,
        calls=round(spend.calls * factor),
        tokens=round(spend.tokens * factor),
        usd_nanos=round(spend.usd_nanos * factor),
    )
