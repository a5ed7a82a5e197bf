"""SySRs: Successive Rejects on examples that all candidates share."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.rounds import RoundRule, Schedule


class SuccessiveRejects(RoundRule):
    """Drop the worst candidate after each of K - 1 phases; see ``RoundRule``.

    Audibert & Bubeck 2010, "Best Arm Identification in Multi-Armed Bandits", section 4. Near-
    optimal when all that is known is the budget. Weak where one or two candidates stand far above
    the rest and the budget is large. All surviving candidates see the same examples (Lyu et al.
    2026, arXiv 2606.07726), so that what makes an example hard for all of them cancels.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("sysrs", Problem(n_candidates=3, n_examples=20, budget=30))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "sysrs"

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Plan n_k = ceil((T - K) / (L (K + 1 - k))) >= 1 pulls, L = 1/2 + sum_{i=2..K} 1/i."""
        survivors = n_active + 1 - np.arange(1, n_active)  # K + 1 - k for k = 1..K-1
        log_bar = 0.5 + (1.0 / np.arange(2, n_active + 1)).sum()
        targets = np.ceil((budget - n_active) / (log_bar * survivors) - 1e-9)
        return Schedule(*np.unique(np.maximum(targets, 1).astype(np.int64), return_counts=True))
