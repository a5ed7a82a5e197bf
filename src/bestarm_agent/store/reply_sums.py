"""Sums over the replies of a candidate: their length, and the scores of further scorers."""

from __future__ import annotations

from dataclasses import dataclass, field

from bestarm_agent.domain.outcome import Scored


@dataclass(slots=True)
class ReplySums:
    """Sums over the scored replies of a candidate."""

    n: int = 0
    output_tokens: int = 0
    measures: list[float] = field(default_factory=list)  # of each further scorer
    measured: list[int] = field(default_factory=list)  # replies that each could score

    def add(self, outcome: Scored) -> None:
        """Add the next reply."""
        self.n += 1
        self.output_tokens += outcome.usage.output
        missing = len(outcome.measures) - len(self.measures)
        self.measures += [0.0] * missing
        self.measured += [0] * missing
        for k, value in enumerate(outcome.measures):
            if value is not None:
                self.measures[k] += value
                self.measured[k] += 1
