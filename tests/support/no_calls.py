"""Calls for judges that call no model."""

from __future__ import annotations

from bestarm_agent.domain.values import Reply
from bestarm_agent.judges.base import JudgeCall


class NoCalls:
    """Fails the test if a judge calls a model."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Fail."""
        raise AssertionError(f"{call.model} was called")
