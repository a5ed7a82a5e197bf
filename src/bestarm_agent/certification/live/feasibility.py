"""Warnings before a certification spends anything: too few labels, an arbitrary order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bestarm_agent.certification.certificate import single_goal
from bestarm_agent.certification.label_plan import Rounds
from bestarm_agent.certification.live.setup import Audit
from bestarm_agent.certification.live.trials import Cell, new_trial
from bestarm_agent.certification.screening import DrawScreen, Verdict
from bestarm_agent.report.certificate import e_value

_MOST_LABELS = 10_000  # how far to look for a number that suffices


def warnings(audit: Audit, n_candidates: int, costs: Sequence[float | None]) -> tuple[str, ...]:
    """Return what should be known before a call is paid for, a sentence each."""
    found = [_too_few_labels(audit, n_candidates), _fewer_than_allowed(audit)]
    if audit.order == "cost" and len(costs) > 1 and len(set(costs)) == 1:
        found.append(
            "certify.order is `cost`, and all candidates cost the same: their order is that of the "
            "file; list them from the most to the least likely to be good enough, or say "
            "`order: prompt`"
        )
    return tuple(text for text in found if text is not None)


def _too_few_labels(audit: Audit, n_candidates: int) -> str | None:
    """Warn if not even a candidate without an error could be certified."""
    goal = single_goal(audit.goal, n_candidates, audit.correction)
    trial = new_trial(audit.plan, goal, audit.method, audit.n_autoevaluators)
    nothing = np.zeros(audit.n_autoevaluators)
    for place in range(len(audit.plan.sequence)):
        if trial.verdict is Verdict.CERTIFIED:
            return None
        trial.tell(place, Cell(nothing, nothing, 0.0))
    if trial.verdict is Verdict.CERTIFIED:
        return None
    best = trial.summed_up(0).log_e_value
    needed = _labels_needed(audit, n_candidates) if isinstance(audit.plan, Rounds) else None
    more = "" if needed is None else f"; at least {needed:,} labels are needed"
    return (
        f"certify: {len(audit.plan.labelled)} labels cannot suffice: a candidate without a single "
        f"error reaches an e-value of {e_value(best)}, and {math.exp(goal.enough):.3g} is "
        f"needed{more}, or a higher `risk`, or a lower `confidence`"
    )


def _labels_needed(audit: Audit, n_candidates: int) -> int | None:
    goal = single_goal(audit.goal, n_candidates, audit.correction)
    screen = DrawScreen(goal, audit.method, audit.n_autoevaluators)
    nothing = np.zeros(audit.n_autoevaluators)
    for n in range(1, _MOST_LABELS):
        screen.push(0.0, nothing, nothing)
        if screen.verdict is Verdict.CERTIFIED:
            return n
    return None


def _fewer_than_allowed(audit: Audit) -> str | None:
    """Warn if unlabelled examples run out before the labels do."""
    plan, n, max_labels = audit.plan, len(audit.plan.labelled), audit.max_labels
    if max_labels is None or n >= max_labels or not isinstance(plan, Rounds):
        return None
    return (
        f"certify.max_labels is {max_labels}, and only {n} labels will be used: each takes "
        f"{plan.width - 1} further examples, which are only guessed, and there are "
        f"{plan.sequence.size} examples in the plan; add examples, or lower `per_label`"
    )
