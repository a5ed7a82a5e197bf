"""Lets Inspect tell of errors and retries, which its protocol for early stopping leaves out."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from bestarm_agent.errors import ConfigError

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample  # type: ignore[import-not-found, unused-ignore]


class Raced(Protocol):
    """A task of a race."""

    def sample_ended(self, sample: EvalSample) -> None:
        """Note that a sample has ended, with an error or without."""

    def sample_put_back(self, id: str | int) -> None:
        """Note that Inspect tries a sample again, behind those that wait."""


TASKS_OF_RUN: dict[str, int] = {}  # number of tasks, by Inspect's id of the run
RACED: WeakValueDictionary[str, Raced] = WeakValueDictionary()  # by Inspect's id of the eval


@cache
def install_hooks() -> None:
    """Pass on what Inspect tells, from now on; raises ConfigError without inspect-ai."""
    try:
        from inspect_ai import hooks  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigError("a race needs inspect-ai: pip install 'bestarm-agent[inspect]'") from None

    @hooks.hooks(name="bestarm_agent/race", description="ends samples of a race")
    class RaceHooks(hooks.Hooks):  # type: ignore[misc, unused-ignore]
        """Passes what Inspect tells to the tasks of races."""

        async def on_run_start(self, data: hooks.RunStart) -> None:
            TASKS_OF_RUN[data.run_id] = len(data.task_names)

        async def on_run_end(self, data: hooks.RunEnd) -> None:
            TASKS_OF_RUN.pop(data.run_id, None)

        async def on_sample_end(self, data: hooks.SampleEnd) -> None:
            if (task := RACED.get(data.eval_id)) is not None:
                task.sample_ended(data.sample)

        async def on_sample_attempt_end(self, data: hooks.SampleAttemptEnd) -> None:
            if data.will_retry and (task := RACED.get(data.eval_id)) is not None:
                task.sample_put_back(data.summary.id)
