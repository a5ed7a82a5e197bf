"""The expected cost of pulls, by the last run of a study or by bounds on calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bestarm_agent.config.study.repeats import recorded_repeats
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.engine.run.event_log import known_costs
from bestarm_agent.selectors.pull_costs import pull_weights
from bestarm_agent.store.run_state import RunState

_PULLS = 1000  # mean costs are kept for so many, since amounts are whole numbers


def expected_spend(
    entries: Sequence[ReadyCandidate],
    earlier: Sequence[RunState],
    pulls: int,
    *,
    per_dollar: bool,
    n_draws: int = 1,
) -> tuple[Spend, bool]:
    """Estimate the cost of pulls if no candidate proves better or worse than the others.

    Also return whether an earlier run told what pulls cost; else each costs its bound.
    """
    each, learned = _expected_pulls(entries, _seen_pulls(earlier, n_draws))
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


def _seen_pulls(earlier: Sequence[RunState], n_draws: int) -> dict[str, Spend]:
    """Return the cost of ``_PULLS`` pulls by candidate id, from the latest run that has it."""
    seen: dict[str, Spend] = {}
    for state in earlier:
        config = None if state.started is None else state.started.config
        pulls = _PULLS * n_draws / recorded_repeats(config).draws
        for candidate, spend in zip(state.candidates, state.spend_of, strict=True):
            if spend.calls and spend.pulls:  # replies from the cache say nothing about prices
                seen[candidate.id] = times(spend, pulls / spend.pulls, _PULLS)
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
