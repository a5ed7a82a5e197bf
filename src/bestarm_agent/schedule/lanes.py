"""The ways to the models of one account, and what closes them for good."""

from __future__ import annotations

from collections.abc import Callable

from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.lane import Lane, LaneRules
from bestarm_agent.schedule.waits import WaitBoard

# What makes every further call to the provider, or to the model, pointless.
WHOLE_PROVIDER = (FailureKind.AUTHENTICATION, FailureKind.QUOTA_EXHAUSTED)
_WHOLE_ACCOUNT = (FailureKind.RATE_LIMITED,)  # fatal where the pause asked for is too long
_WHOLE_MODEL = (*_WHOLE_ACCOUNT, FailureKind.MODEL_NOT_FOUND)


class Lanes:
    """One lane for each model of an account, or one for all; made when first asked for.

    Args:
        provider: answers.
        clock: tells the time and sleeps.
        board: is told why calls wait.
        rules: how calls to a model are held back, by name of the model.
        shared: whether all models of the account share what ``rules`` says.
    """

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        board: WaitBoard,
        rules: Callable[[str], LaneRules],
        *,
        shared: bool,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._board = board
        self._rules = rules
        self._shared = shared
        self._lanes: dict[str, Lane] = {}
        self._halted: ProviderError | None = None

    def of(self, model: str) -> Lane:
        """The way to a model."""
        name = "" if self._shared else model
        if name not in self._lanes:
            lane = Lane(self._provider, name, self._rules(model), self._clock)
            if self._halted is not None:
                lane.halt(self._halted)
            self._board.watch(lane.waits)
            self._lanes[name] = lane
        return self._lanes[name]

    def close(self, model: str, error: ProviderError) -> None:
        """Turn away what a fatal error of a call to ``model`` makes pointless, if it is fatal."""
        if not error.fatal:
            return
        if error.kind in WHOLE_PROVIDER:
            self._halted = error
            for lane in self._lanes.values():
                lane.halt(error)
        elif error.kind in (_WHOLE_ACCOUNT if self._shared else _WHOLE_MODEL):
            self.of(model).halt(error)
