"""Rules in rounds on examples of its own for each candidate, as their papers have them."""

from __future__ import annotations

from typing import ClassVar

from bestarm_agent.selectors.rules import opt_mai


class SequentialHalving(opt_mai.SequentialHalving):
    """Karnin, Koren & Somekh 2013, but the pulls of earlier rounds count in later ones."""

    name: ClassVar[str] = "sequential-halving, own examples"
    common_examples: bool = False


class SuccessiveRejects(opt_mai.SuccessiveRejects):
    """Audibert & Bubeck 2010, section 4."""

    name: ClassVar[str] = "successive-rejects"
    common_examples: bool = False
