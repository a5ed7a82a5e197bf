"""Where a run's money went, line by line; the lines add up to what the run spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bestarm_agent.domain.spend import Spend
from bestarm_agent.store.fold import RunState


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that money went into.

    Attributes:
        what: for people.
        spend: what it cost; pairs are counted where candidates were called.
    """

    what: str
    spend: Spend


def accounts(state: RunState, spent: Spend) -> tuple[Line, ...]:
    """Part a run's spend: each provider's answered calls, attempts without an answer, judging.

    Args:
        state: the folded log.
        spent: what the run has spent; more than the log says while pairs are under way, put off,
            or were cut off by a crash.

    Returns:
        Lines that add up to ``spent``, those of nothing left out.
    """
    answered: dict[str, Spend] = {}
    lost: dict[str, Spend] = {}
    judging = Spend()
    for i, candidate in enumerate(state.candidates):
        provider, whole = candidate.provider, state.spend_of[i]
        judging += state.judge_spend_of[i]
        lost[provider] = lost.get(provider, Spend()) + state.lost_spend_of[i]
        rest = whole - state.judge_spend_of[i] - state.lost_spend_of[i]
        answered[provider] = answered.get(provider, Spend()) + rest
    lines = [
        *_by_provider("answered calls of candidates", answered),
        *_by_provider("attempts that brought no answer", lost),
        Line("judging", judging),
        Line("pairs that are not told yet", spent - state.spend),
    ]
    return tuple(line for line in lines if not _is_nothing(line.spend))


def _by_provider(what: str, spends: Mapping[str, Spend]) -> list[Line]:
    return [Line(f"{provider}: {what}", spend) for provider, spend in sorted(spends.items())]


def _is_nothing(spend: Spend) -> bool:
    """Sums of seconds are not exact."""
    return replace(spend, gpu_seconds=0.0) == Spend() and abs(spend.gpu_seconds) < 1e-6
