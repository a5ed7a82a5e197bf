"""The driver of a stored certification, from its log alone: no label or file is needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.certification.rounds import PoolPlan, Rounds
from bestarm_agent.certifying.audit import audit_of
from bestarm_agent.certifying.driver import LABEL, CertifyingSelector, in_order_of_trying
from bestarm_agent.config.certifying import CertifySpec
from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.selectors.types import Problem


def recorded_driver(
    spec: CertifySpec, problem: Problem, events: Sequence[Event]
) -> CertifyingSelector:
    """Rebuild a driver that has not been fed yet.

    All candidates follow one plan, so the one that was asked most shows as much of it as any needs.
    Candidates were tried in the order of their first asks.

    Args:
        spec: the section of the recorded configuration.
        problem: the size of the run.
        events: its log.
    """
    asks: dict[int, list[Asked]] = {}
    for event in events:
        if isinstance(event, Asked):
            asks.setdefault(event.candidate, []).append(event)
    rest = [i for i in range(problem.n_candidates) if i not in asks]
    longest = max(asks.values(), key=len, default=[])
    plan = _pool(longest, problem) if spec.pool else _rounds(longest, spec.per_label)
    audit = audit_of(spec, plan)
    order = in_order_of_trying([*asks, *rest], audit.correction)
    return CertifyingSelector(problem, audit, order)


def _pool(asks: Sequence[Asked], problem: Problem) -> PoolPlan:
    """The plan of a pool; nothing is settled before all of it was asked, so its end may be any."""
    labelled = [ask.example for ask in asks if ask.reason == LABEL]
    guessed = [ask.example for ask in asks if ask.reason != LABEL]
    rest = sorted(set(range(problem.n_examples)).difference(labelled, guessed))
    return PoolPlan(np.array(labelled, dtype=np.intp), np.array(guessed + rest, dtype=np.intp))


def _rounds(asks: Sequence[Asked], ratio: int | None) -> Rounds:
    """The rounds of a plan, as far as it was asked; the last one is filled up with anything.

    Without a second label it may not be known how long a round is; then none is complete.
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
