"""Models that are asked for something else than an answer, such as a better prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.events import Proposed
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.engine.live_run import LiveRun
from bestarm_agent.engine.run.proposer_calls import ask_proposer_model
from bestarm_agent.judges.base import JudgeModel


class Proposer:
    """Calls of proposers, and how far a run is in their rounds."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._n_asking = 0  # calls of ``ask`` under way
        self._held = live.ledger.budget  # the caps that hold again after them

    async def ask(self, model: str, prompt: str, *, attempt: int = 0) -> str:
        """Ask a model within the run's budget, limits and retries, through its cache; recorded.

        Between calls of ``Study.run``.

        Args:
            model: `provider/model`.
            prompt: what it is told, as one message.
            attempt: number of equal prompts before this one; those of equal number share a reply.

        Raises:
            ConfigError: there is no such model, or dollars are capped and its price is not known.
            ProviderError: the call failed for good.
            BudgetEndedError: the budget cannot pay for it.
        """
        live, judge_model = self._live, _parsed(model)
        client = live.factory.model_client(judge_model)
        await live.start_providers()
        messages = (Message("user", prompt),)
        request = Request(
            judge_model.name, messages=messages, candidate="proposer", attempt=attempt
        )
        with self._own_caps():
            reply = await ask_proposer_model(request, client, live.replies, live.event_log)
        return reply.text

    def check(self, model: str) -> None:
        """Raise ConfigError if ``ask`` could not ask a model."""
        self._live.factory.model_client(_parsed(model))

    @property
    def rounds(self) -> int:
        """Rounds of proposals that are over."""
        return self._live.event_log.state.rounds

    async def end_rounds(self, rounds: int) -> None:
        """Record that so many rounds of proposals are over; a resumed run goes on from there."""
        self._live.event_log.record(Proposed(rounds))
        await self._live.event_log.flush()

    @contextmanager
    def _own_caps(self) -> Iterator[None]:
        """Let the run's own caps hold, not those of the last call of ``run``; may be nested."""
        ledger = self._live.ledger
        if not self._n_asking:
            self._held, ledger.budget = ledger.budget, self._live.loop.own_budget
        self._n_asking += 1
        try:
            yield
        finally:
            self._n_asking -= 1
            if not self._n_asking:
                ledger.budget = self._held


def _parsed(model: str) -> JudgeModel:
    provider, _, name = model.partition("/")
    return JudgeModel(provider, name)
