"""Replies from the cache or from their provider, stored before anything else is done with them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.attempt import replied_spend
from bestarm_agent.engine.calls.retrying import Call, Origin
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.providers.base import Provider
from bestarm_agent.store.store import Store

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0  # for a reply that another run is buying


def reply_key(provider: Provider, fingerprint: str, request: Request) -> str:
    """Return the cache key of a reply: equal for equal requests to the same model."""
    able = provider.capabilities(request.model)
    asked_for: list[Json] = [request.example] if able.by_example else []
    if able.by_inputs:
        asked_for.append(dict(request.inputs))
    return digest([provider.name, fingerprint, request.as_json(), asked_for], length=32)


class ReplyCache:
    """Gets replies from the cache or from their provider.

    Args:
        use_cache: whether replies bought by other pairs or runs may be used.
    """

    def __init__(self, store: Store, ledger: Ledger, *, use_cache: bool) -> None:
        self._store = store
        self._ledger = ledger
        self._use_cache = use_cache
        self._remarks: Counter[tuple[str, str]] = Counter()

    def remarks(self) -> tuple[str, ...]:
        """Return notes for the user from this session's replies, the most frequent first."""
        return tuple(
            f"{model} {notice} ({count:,} repl{'y' if count == 1 else 'ies'})"
            for (model, notice), count in self._remarks.most_common()
        )

    def key_of(self, call: Call) -> str:
        """Return the key of a call's reply."""
        return reply_key(call.client.provider, call.fingerprint, call.request)

    async def obtain(self, call: Call) -> Reply:
        """Return the reply to a call; it is durable on return.

        Of all that share the store, only one buys a reply at a time; the others wait for it.

        Raises:
            ProviderError: the call failed for good, or too often.
            BudgetEndedError: it does not fit into the budget.
            StoreError: the cache could not be read or written.
        """
        call.key = self.key_of(call)
        if not self._use_cache and call.origin is Origin.FRESH:
            return await self._buy(call)
        await self._claim(call)
        try:
            reply = await self._store.get_reply(call.key)
            return await self._buy(call) if reply is None else self._found(call, reply)
        finally:
            await self._store.release_reply(call.key)

    async def _claim(self, call: Call) -> None:
        if await self._store.claim_reply(call.key):
            return
        call.slot.leave()
        call.refund_permit()
        name, seconds = call.client.provider.name, _FIRST_WAIT
        with call.client.board.waiting(name, "another run is buying the reply", math.inf):
            while not await self._store.claim_reply(call.key):
                await asyncio.sleep(seconds)
                seconds = min(2 * seconds, _LONGEST_WAIT)
        try:
            await call.slot.reenter()
        except asyncio.CancelledError:
            await self._store.release_reply(call.key)
            raise

    async def _buy(self, call: Call) -> Reply:
        call.found = False
        reply = await call.client.send(call)
        await self._store.put_reply(call.key, reply)  # paid for: nothing comes before this
        self._note(call, reply)
        return reply

    def _found(self, call: Call, reply: Reply) -> Reply:
        call.found = True
        self._record_found(call, reply)
        self._note(call, reply)
        return reply

    def _note(self, call: Call, reply: Reply) -> None:
        model = f"{call.client.provider.name}/{call.request.model}"
        for notice in reply.notices:
            self._remarks[model, notice] += 1

    def _record_found(self, call: Call, reply: Reply) -> None:
        """Record a reply from the cache: free, unless an earlier process of this run bought it.

        Then the bound of the attempt that brought it was charged, and its cost takes the place.
        """
        call.refund_permit()
        reservation = call.take_reservation()
        pulls = Spend(pulls=reservation.amount.pulls) if reservation is not None else Spend()
        if reservation is not None:
            self._ledger.settle(reservation, pulls)
        lost = call.log.lost.pop(call.key, None) if call.log is not None else None
        correction = Spend() if lost is None else replied_spend(reply, pulls=0) - lost
        self._ledger.charge(correction)
        call.spend += pulls + correction
