"""Calls of the proposer of prompts: they belong to no pair, but to the budget and the log."""

from __future__ import annotations

from bestarm_agent.domain.events import ProposerCalled
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.judge_calls import JudgeModelClient, fitted
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import Call, Origin
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.run.event_log import EventLog


class _CallLog:
    """Logs what one call costs; ``lost`` is as in ``AttemptLog``."""

    def __init__(self, event_log: EventLog, call: Call, *, priced: bool) -> None:
        known = event_log.state.proposer_calls.get(call.key)
        self._before = Spend() if known is None else known.cost
        self.lost = {call.key: known.cost} if known is not None and known.at_most else {}
        self._event_log, self._call, self._priced = event_log, call, priced
        call.origin = Origin.FRESH if known is None else Origin.INHERITED

    async def attempt(self, key: str, cost: Spend, *, judge: bool) -> None:
        """Log an attempt that costs at most ``cost``; durable on return."""
        self._note(cost, at_most=True)
        await self._event_log.flush()

    def ended(self) -> None:
        """Log what the call did cost."""
        self._note(Spend(), at_most=False)

    def _note(self, more: Spend, *, at_most: bool) -> None:
        cost = self._before + self._call.spend + more
        self._event_log.record(ProposerCalled(self._call.key, cost, at_most, self._priced))


async def ask_proposer_model(
    request: Request, model: JudgeModelClient, replies: ReplyCache, event_log: EventLog
) -> Reply:
    """Ask a model; what an earlier process of the run asked is taken from the cache.

    Raises:
        ProviderError: it failed for good, or too often.
        BudgetEndedError: it does not fit into the budget.
        StoreError: the store cannot be used.
    """
    client = model.client
    able = client.provider.capabilities(request.model)
    call = Call(client, model.fingerprint, fitted(request, able))
    call.key = replies.key_of(call)
    call.slot = Slot.outside(*client.gates(request.model))
    call.log = log = _CallLog(event_log, call, priced=able.priced)
    try:
        await call.slot.reenter()
        return await replies.obtain(call)
    finally:
        call.let_go()
        log.ended()
