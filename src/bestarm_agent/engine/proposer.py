"""The calls of a proposer of prompts: paid by a run, and in its log."""

from __future__ import annotations

from bestarm_agent.domain.events import Proposed
from bestarm_agent.domain.values import Message, Reply, Request
from bestarm_agent.engine.call import AttemptLog, BudgetEndedError, Call, Model
from bestarm_agent.engine.judging import fitted
from bestarm_agent.engine.run import Run
from bestarm_agent.judges.base import JudgeModel


class Proposer:
    """Asks models for prompts, paid by a run, and counts the rounds of proposals."""

    def __init__(self, run: Run) -> None:
        self._run = run

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
            BudgetEndedError: the budget cannot pay for it, or the study is to end.
        """
        if self._run.stop.is_set:
            raise BudgetEndedError("the study was asked to stop")
        judge_model = _parsed(model)
        asked = self._run.candidates.model(judge_model)
        await self._run.start_providers()
        messages = (Message("user", prompt),)
        request = Request(
            judge_model.name, messages=messages, candidate="proposer", attempt=attempt
        )
        self._run.loop.set_budget(self._run.loop.own_budget)  # not that of one call of ``run``
        return (await self._asked(request, asked)).text

    async def _asked(self, request: Request, model: Model) -> Reply:
        """Ask; what an earlier process of the run asked is taken from the cache."""
        run = self._run
        # A proposer's calls have no ask: the log knows their attempts by the keys of their replies.
        # Of those that no process lived to settle, the ones of this call may have brought its
        # reply.
        known = run.record.state.attempts_of(None)
        log = AttemptLog(None, run.record.record, run.record.flush, begun={*known.keys})
        call = Call(model, fitted(request, model.able), log)
        log.lost = [attempt for attempt in known.open if attempt.key == call.key]
        try:
            async with call.in_turn():
                return await run.replies.obtain(call)
        finally:
            log.close()

    def check(self, model: str) -> None:
        """Raise ConfigError if ``ask`` could not ask a model."""
        self._run.candidates.model(_parsed(model))

    @property
    def rounds(self) -> int:
        """Rounds of proposals that are over."""
        return self._run.record.state.rounds

    async def end_rounds(self, rounds: int) -> None:
        """Record that so many rounds of proposals are over; a resumed run goes on from there."""
        self._run.record.record(Proposed(rounds))
        await self._run.record.flush()


def _parsed(model: str) -> JudgeModel:
    provider, _, name = model.partition("/")
    return JudgeModel(provider, name)
