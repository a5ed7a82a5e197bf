"""The cache of replies: whose reply a call gets, and who buys it.

A reply is stored before anything else is done with it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Reply, canonical
from bestarm_agent.engine.call import Call, Model, Tries
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.errors import ProviderError, StoreError
from bestarm_agent.providers.base import EFFORT
from bestarm_agent.store.store import Claim, Store

_NAMED = 5  # candidates that a note names
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0  # for a reply that somebody else is buying


class ReplyCache:
    """Gets replies from the cache or from their provider.

    Args:
        own: who neither uses replies bought by other pairs or runs nor leaves them any, such as a
            run's id; "" where they are shared. A call that may have been sent before is looked up
            in either case.
    """

    def __init__(self, store: Store, ledger: Ledger, *, own: str = "") -> None:
        self._store = store
        self._ledger = ledger
        ledger.own = own
        self._remarks: Counter[tuple[str, str]] = Counter()
        self._recalled: set[str] = set()  # fingerprints of models
        self._left_out: dict[tuple[str, frozenset[str]], set[str]] = {}  # efforts, as JSON
        self._equal: dict[str, str] = {}  # by model: which candidates became equal
        self.n_refused = 0  # times that something was learned of what models do not take

    def remarks(self) -> tuple[str, ...]:
        """Return notes for the user from this session's replies, the most frequent first."""
        refused = (
            f"{model} does not take {' and '.join(f'`{name}`' for name in sorted(names))}"
            f"{_at(efforts)}: not sent, since the server refuses it{self._equal.get(model, '')}"
            for (model, names), efforts in self._left_out.items()
        )
        counted = (
            f"{model} {notice} ({count:,} repl{'y' if count == 1 else 'ies'})"
            for (model, notice), count in self._remarks.most_common()
        )
        return (*refused, *counted)

    def note_equal(self, model: str, label: str, others: Sequence[str]) -> None:
        """Note for users that a candidate stands for ``others`` of its model, which are equal."""
        rest = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        said = f"; {label} stands for {', '.join(others[:_NAMED])}{rest}, too"
        if said not in self._equal.get(model, ""):
            self._equal[model] = self._equal.get(model, "") + said

    async def recall(self, models: Iterable[Model]) -> None:
        """Learn what earlier runs found out that models do not take."""
        for model in models:
            if model.able.rate_limited and model.fingerprint not in self._recalled:
                self._recalled.add(model.fingerprint)
                await self._learn(model)

    async def _learn(self, model: Model) -> None:
        """Share what a model was found not to take with the runs of the store."""
        name = f"refused by {model.client.provider.name}/{model.fingerprint}"
        version, data = await self._store.get_state(name) or (0, b"{}")
        for effort, names in json.loads(data).items():
            model.client.provider.learn(model.name, effort, names)
        known = model.client.provider.not_taken.get(model.name)
        self.n_refused += known is not None
        if known is not None and (grown := json.dumps(known).encode()) != data:
            # another process may store its own in this moment: then the next run finds ours out
            # by a call that costs nothing, and whatever else is wrong ends this one soon
            with suppress(StoreError):
                await self._store.put_state(name, grown, after=version)

    async def obtain(self, call: Call) -> Reply:
        """Return the reply to a call; it is durable on return.

        Of all that share the store, only one buys a reply at a time; the others wait for it. Where
        the model does not take a parameter, it is asked again without it, once that is stored: the
        request, and with it the key of the reply, is another one, which may have been bought.

        Raises:
            ProviderError: the call failed for good, or too often.
            BudgetEndedError: it does not fit into the budget.
            StoreError: the cache could not be read or written.
        """
        while True:
            try:
                return await self._obtained(call)
            except ProviderError as error:
                if not call.is_refitted(error):
                    raise
            await self._learn(call.model)
            call.tries = Tries()

    def claim(self, call: Call) -> None:
        """Claim the reply of a call that is about to be logged, in one transaction with its log."""
        if self._is_shared(call):
            call.claim = self._store.claim_reply(call.key)

    def _is_shared(self, call: Call) -> bool:
        # A run without the cache shares no replies, so nobody else waits for this one. What an
        # earlier process of the run may have bought is looked up all the same.
        return not self._ledger.own or call.resent

    async def _obtained(self, call: Call) -> Reply:
        if not self._is_shared(call):
            return await self._buy(call)
        claim = await self._claimed(call)
        try:
            if claim.reply is None:
                return await self._buy(call)  # a reply that is stored is claimed no more
        except BaseException:
            claim.release()
            raise
        claim.release()
        return self._found(call, claim.reply)

    async def _claimed(self, call: Call) -> Claim:
        """Return the claim of a reply, once it is ours, or the reply is there."""
        claim, call.claim = call.claim or self._store.claim_reply(call.key), None
        if not await claim and claim.reply is None:
            claim = await self._waited_for(call)
        if claim.key == call.key:
            return claim
        claim.release()  # what its model does not take was learned meanwhile: another request
        return await self._claimed(call)

    async def _waited_for(self, call: Call) -> Claim:
        # The buyer may wait for the very places that this call would keep. It is polled, since it
        # may be another process of the same store, which can wake nobody here.
        call.slot.leave()
        call.refund_permit()
        client, seconds = call.model.client, _FIRST_WAIT
        with client.board.waiting(
            client.provider.name, "another call is buying the reply", math.inf
        ):
            while not await (claim := self._store.claim_reply(call.key)) and claim.reply is None:
                await client.clock.sleep(seconds)
                seconds = min(2 * seconds, _LONGEST_WAIT)
        try:
            await call.slot.reenter()
        # the claim is ours by now, and nobody else could buy the reply
        except asyncio.CancelledError:
            claim.release()
            raise
        return claim

    async def _buy(self, call: Call) -> Reply:
        try:
            reply = await call.model.client.send(call)
        finally:
            self._remark(call, call.tries.notices)
        # paid for: nothing comes before this
        await self._store.put_reply(call.key, reply, call.stored)
        self._remark(call, reply.notices)
        return reply

    def _found(self, call: Call, reply: Reply) -> Reply:
        """Record a reply from the cache: free, unless an earlier process of this run bought it.

        Then the bound of the attempt that brought it was charged, and its cost takes the place.
        """
        # Three sums. The reservation made with the pair is settled at the answer that it counts as,
        # 0 or 1. The ledger has the bound of a lost attempt, and is charged what its true cost is
        # above it: ``change``, which is negative for nearly all. The pair has cost both.
        call.found = True
        call.refund_permit()
        reservation, call.reservation = call.reservation, None
        answers = Spend() if reservation is None else Spend(answers=reservation.amount.answers)
        if reservation is not None:
            self._ledger.settle(reservation, answers)
        change = Spend() if call.log is None else call.log.found(call, reply, answers)
        self._ledger.charge(change)
        call.spend += answers + change
        self._remark(call, reply.notices)
        return reply

    def _remark(self, call: Call, notices: Iterable[str]) -> None:
        for notice in notices:
            self._remarks[str(call.model), notice] += 1
        fitted = call.fitted
        if fitted is not call.request and (gone := call.request.names - fitted.names):
            gone = frozenset(name.replace("_schema", "_format") for name in gone)  # as users say
            effort = canonical(call.request.params.get(EFFORT))
            self._left_out.setdefault((str(call.model), gone), set()).add(effort)


def _at(efforts: Collection[str]) -> str:
    """Say at which efforts something is not taken; nothing where none was named."""
    named = sorted(effort.strip('"') for effort in efforts if effort != "null")
    return f" at effort {', '.join(named)}" if named else ""
