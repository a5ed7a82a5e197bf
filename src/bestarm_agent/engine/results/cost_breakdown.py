"""The cost of a run by provider and purpose; the lines add up to what it spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bestarm_agent.domain.spend import Spend
from bestarm_agent.store.run_state import RunState


@dataclass(frozen=True, slots=True)
class CostLine:
    """One thing that money went into."""

    what: str  # for people
    spend: Spend  # what it cost; pairs are counted where candidates were called
    priced: bool = True  # whether its price is known; else ``spend`` lacks dollars


def cost_breakdown(state: RunState, spent: Spend) -> tuple[CostLine, ...]:
    """Part a run's spend: each provider's calls with and without an answer, judging, proposing."""
    answered: dict[str, Spend] = {}
    lost: dict[str, Spend] = {}
    judging = Spend()
    for candidate, totals in zip(state.candidates, state.totals, strict=True):
        provider = candidate.provider
        judging += totals.judge_spend
        lost[provider] = lost.get(provider, Spend()) + totals.lost_spend
        rest = totals.spend - totals.judge_spend - totals.lost_spend
        answered[provider] = answered.get(provider, Spend()) + rest
    unpriced = {
        candidate.provider
        for candidate, cost in zip(state.candidates, state.costs, strict=True)
        if cost is None
    }
    judge_priced = state.started is None or state.started.judge_priced
    lines = [
        *_by_provider("answered calls of candidates", answered, unpriced),
        *_by_provider("attempts that brought no answer", lost, unpriced),
        CostLine("judging", judging, judge_priced),
        CostLine(
            "proposing prompts",
            state.proposer_spend,
            all(call.priced for call in state.proposer_calls.values()),
        ),
        CostLine("pairs that are not told yet", spent - state.spend, judge_priced and not unpriced),
    ]
    return tuple(line for line in lines if not _is_nothing(line.spend))


def _by_provider(
    what: str, spends: Mapping[str, Spend], unpriced: Collection[str]
) -> list[CostLine]:
    return [
        CostLine(f"{provider}: {what}", spend, provider not in unpriced)
        for provider, spend in sorted(spends.items())
    ]


def _is_nothing(spend: Spend) -> bool:
    """Sums of seconds are not exact."""
    return replace(spend, gpu_seconds=0.0) == Spend() and abs(spend.gpu_seconds) < 1e-6
