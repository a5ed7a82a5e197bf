"""Parts of a run's state: its sessions, and what pairs without an outcome cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from bestarm_agent.domain.events import Attempted, Stopped
from bestarm_agent.domain.spend import Spend


@dataclass(frozen=True, slots=True)
class Session:
    """One stretch of work on a run, from its start or resumption to its stop."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # of the package
    stopped: Stopped | None = None  # how it ended; None while it runs, or if it was killed


@dataclass(frozen=True, slots=True)
class PendingCost:
    """Cost of a pair without an outcome."""

    spend: Spend = field(default_factory=Spend)  # of the candidate's call, as far as known exactly
    judge_spend: Spend = field(default_factory=Spend)  # of judging, as far as known exactly
    # whether the first attempt may have been sent, at a cost not counted here
    first_sent: bool = True
    # further attempts that may have been sent, at most at these costs
    attempts: tuple[Attempted, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True if the whole cost is known."""
        return not self.first_sent and not self.attempts
