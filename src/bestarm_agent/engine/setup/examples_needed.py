"""The examples that a study needs: to tell two candidates apart, and to know the winner's mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bestarm_agent.engine.results.confirmation import widest
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.stats.detectable import examples_to_part
from bestarm_agent.stats.mcnemar import examples_needed

POWER = 0.8  # probability of finding a difference
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of examples on which one of two candidates is right


@dataclass(frozen=True, slots=True)
class Detectable:
    """The examples that finding a difference takes, by the share on which one of two is right."""

    difference: float
    error: float  # probability of a wrong answer
    n_examples: int  # that a run chooses by
    once: Mapping[str, int]  # by a test of a number fixed in advance
    at_all_times: Mapping[str, int]  # by a run, of a rival of its leader

    def as_json(self) -> dict[str, object]:
        """Return the numbers as entries of a JSON object."""
        return {"detect": dict(self.once), "detect_at_all_times": dict(self.at_all_times)}


@dataclass(frozen=True, slots=True)
class KeptBack:
    """The examples kept back for the winner, and what they will tell."""

    examples: int
    half_width: float  # of the interval of its mean, where half of the answers are right


def examples_to_detect(parts: StudyParts, difference: float) -> Detectable:
    """Say how many common examples a difference of accuracy takes, in (0, 1)."""
    error = 1.0 - parts.config.selector.level
    n = len(parts.examples)
    shares = [share for share in (*_SHARES, 1.0) if share >= difference][: len(_SHARES)]
    return Detectable(
        difference,
        error,
        n,
        {f"{s:g}": examples_needed(difference, s, level=error, power=POWER) for s in shares},
        {
            f"{s:g}": examples_to_part(difference, s, n_examples=n, alpha=error, power=POWER)
            for s in shares
        },
    )


def kept_back(parts: StudyParts) -> KeptBack | None:
    """Say what is kept back for the winner; None where nothing is."""
    count = len(parts.kept_back)
    if not count:
        return None
    return KeptBack(count, widest(count, parts.config.selector.level))
