"""The driver of a stored certification, from its log alone: no label or file is needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.certification.rounds import Rounds
from bestarm_agent.certifying.audit import audit_of
from bestarm_agent.certifying.driver import LABEL, CertifyingSelector
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
    rounds = _rounds(longest, spec.per_label)
    return CertifyingSelector(problem, audit_of(spec, rounds), [*asks, *rest])


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
