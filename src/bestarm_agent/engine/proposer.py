"""Models that are asked for something else than an answer, such as a better prompt.

Their calls belong to no pair, but to the budget and the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bestarm_agent.domain.events import Proposed, ProposerCalled
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Message, Reply, Request
from bestarm_agent.engine.call import AttemptLog, Call, Model
from bestarm_agent.engine.judging import fitted
from bestarm_agent.engine.run import Run
from bestarm_agent.judges.base import JudgeModel


class Proposer:
    """Calls of proposers, and how far a run is in their rounds."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._n_asking = 0  # calls of ``ask`` under way
        self._held = run.ledger.budget  # the caps that hold again after them

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
        judge_model = _parsed(model)
        asked = self._run.candidates.model(judge_model)
        await self._run.start_providers()
        messages = (Message("user", prompt),)
        request = Request(
            judge_model.name, messages=messages, candidate="proposer", attempt=attempt
        )
        with self._own_caps():
            return (await self._asked(request, asked)).text

    async def _asked(self, request: Request, model: Model) -> Reply:
        """Ask; what an earlier process of the run asked is taken from the cache."""
        run, priced = self._run, model.able.priced
        call = Call(model, fitted(request, model.able))
        known = run.record.state.proposer_calls.get(call.key)
        before = Spend() if known is None else known.cost

        def note(more: Spend, *, at_most: bool) -> None:
            cost = before + call.spend + more
            run.record.record(ProposerCalled(call.key, cost, at_most, priced))

        async def attempted(_key: str, cost: Spend, _is_judges: bool) -> None:
            note(cost, at_most=True)
            await run.record.flush()

        call.log = AttemptLog(attempted, resent=known is not None)
        if known is not None and known.at_most:
            call.log.charged[call.key] = known.cost
        try:
            async with call.in_turn():
                return await run.replies.obtain(call)
        finally:
            note(Spend(), at_most=False)

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

    @contextmanager
    def _own_caps(self) -> Iterator[None]:
        """Let the run's own caps hold, not those of the last call of ``run``; may be nested."""
        ledger = self._run.ledger
        if not self._n_asking:
            self._held, ledger.budget = ledger.budget, self._run.loop.own_budget
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
