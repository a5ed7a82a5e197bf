"""Filled Subset: evaluate all candidates on the same random examples.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 4.
"""

from __future__ import annotations

from typing import ClassVar

from bestarm_agent.selectors.rules.racing import Uniform


class FilledSubset(Uniform):
    """All candidates on one random example, then on the next.

    So the first unseen example of one shared order is next for the candidate with the fewest asks;
    candidates which join late or were not available catch up.
    """

    name: ClassVar[str] = "filled-subset"
    common_examples: bool = True
    heeds_costs: bool = False
