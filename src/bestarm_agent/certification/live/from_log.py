"""The order and the plan of a stored certification, from its log alone: no label is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bestarm_agent.certification.label_plan import PoolPlan, Rounds
from bestarm_agent.certification.live.pairs import LABEL, in_order_of_trying
from bestarm_agent.certification.live.trials import Plan
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.domain.events import Asked, Event


def recorded_order(
    spec: CertifySpec, n_candidates: int, events: Sequence[Event]
) -> tuple[int, ...]:
    """Return the order of the candidates, by their first asks; those never asked come last."""
    asked = list(_asks(events))
    rest = [i for i in range(n_candidates) if i not in asked]
    return tuple(in_order_of_trying([*asked, *rest], spec.correction))


def recorded_plan(spec: CertifySpec, n_examples: int, events: Sequence[Event]) -> Plan:
    """Return the plan of labels and guesses, as far as the log shows it.

    All candidates follow one plan, so the one that was asked most shows as much as any needs.
    """
    longest = max(_asks(events).values(), key=len, default=[])
    return _pool(longest, n_examples) if spec.pool else _rounds(longest, spec.per_label)


def _asks(events: Sequence[Event]) -> Mapping[int, list[Asked]]:
    asks: dict[int, list[Asked]] = {}
    for event in events:
        if isinstance(event, Asked):
            asks.setdefault(event.candidate, []).append(event)
    return asks


def _pool(asks: Sequence[Asked], n_examples: int) -> PoolPlan:
    """Return the plan of a pool; its end may be any, for nothing counts before all was asked."""
    labelled = [ask.example for ask in asks if ask.reason == LABEL]
    guessed = [ask.example for ask in asks if ask.reason != LABEL]
    rest = sorted(set(range(n_examples)).difference(labelled, guessed))
    return PoolPlan(np.array(labelled, dtype=np.intp), np.array(guessed + rest, dtype=np.intp))


def _rounds(asks: Sequence[Asked], ratio: int | None) -> Rounds:
    """Return the rounds that were asked; the last one is filled up with anything.

    Without a second label the length of a round may be unknown; then none is complete.
    """
    starts = [place for place, ask in enumerate(asks) if ask.reason == LABEL]
    if ratio is not None:
        width = 1 + ratio
    else:
        width = starts[1] if len(starts) > 1 else 1 + max(1, len(asks))
    examples = [ask.example for ask in asks]
    examples += [0] * (-len(examples) % width)
    plan = np.array(examples, dtype=np.intp).reshape(-1, width)
    return Rounds(plan[:, 0], plan[:, 1:])
