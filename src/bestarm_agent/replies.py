"""Replies: looked up or bought, and stored before anything else is done with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.providers.base import Provider
from bestarm_agent.roster import Line
from bestarm_agent.schedule.caller import Attempts, BudgetEndedError, replied_spend
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.store.base import RunStore


@dataclass(frozen=True, slots=True)
class Errand:
    """One request on its way, of a candidate or of a judge.

    Attributes:
        line: the provider.
        fingerprint: what decides its replies besides the request.
        request: what is asked.
        slot: its place in the gates.
        attempts: what is set aside for the next attempt, and what was spent so far.
        inherited: whether an earlier process may have sent it, and ended before it was booked.
        own: whether this run may have bought the reply already.
    """

    line: Line
    fingerprint: str
    request: Request
    slot: Slot
    attempts: Attempts
    inherited: bool
    own: bool


@dataclass(frozen=True, slots=True)
class Obtained:
    """A reply, paid for and stored.

    Attributes:
        reply: the answer.
        key: its key in the reply cache.
        found: whether it was there already.
    """

    reply: Reply
    key: str
    found: bool


def reply_key(provider: Provider, fingerprint: str, request: Request) -> str:
    """Key of a reply in the cache: whoever asks, the same request to the same model is one key."""
    able = provider.capabilities(request.model)
    asked_for: list[Json] = [request.example] if able.by_example else []
    if able.by_inputs:
        asked_for.append(dict(request.inputs))
    return digest([provider.name, fingerprint, request.as_json(), asked_for], length=32)


class Replies:
    """Gets replies from the cache or from their provider.

    Args:
        store: holds the reply cache.
        ledger: what a reply costs is booked here.
        use_cache: whether replies bought by other pairs or runs may be used.
    """

    def __init__(self, store: RunStore, ledger: Ledger, *, use_cache: bool) -> None:
        self._store = store
        self._ledger = ledger
        self._use_cache = use_cache
        self._remarks: Counter[tuple[str, str]] = Counter()

    def remarks(self) -> tuple[str, ...]:
        """What the replies of this sitting showed that users should know, a sentence each.

        Such as a server that ignores what it is asked for; the most frequent first.
        """
        return tuple(
            f"{model} {notice} ({count:,} repl{'y' if count == 1 else 'ies'})"
            for (model, notice), count in self._remarks.most_common()
        )

    async def obtain(self, errand: Errand) -> Obtained:
        """Return the reply to a request; it is durable on return.

        Raises:
            ProviderError: the call failed for good, or too often.
            BudgetEndedError: it does not fit into the budget.
            StoreError: the cache could not be read or written.
        """
        key = reply_key(errand.line.provider, errand.fingerprint, errand.request)
        look_up = self._use_cache or errand.own
        found = await self._store.get_reply(key) if look_up else None
        if found is not None:
            self._take(errand, found)
            self._note(errand, found)
            return Obtained(found, key, found=True)
        if errand.inherited:
            self._book_lost_attempt(errand.attempts)
        reply = await errand.line.caller.call(errand.request, errand.slot, errand.attempts)
        await self._store.put_reply(key, reply)  # paid for: nothing comes before this
        self._note(errand, reply)
        return Obtained(reply, key, found=False)

    def _note(self, errand: Errand, reply: Reply) -> None:
        model = f"{errand.line.provider.name}/{errand.request.model}"
        for notice in reply.notices:
            self._remarks[model, notice] += 1

    def _take(self, errand: Errand, reply: Reply) -> None:
        """Book a reply from the cache: free, unless an earlier process of this run bought it."""
        attempts = errand.attempts
        permit, attempts.permit = attempts.permit, None
        if permit is not None:
            errand.line.caller.lane(errand.request.model).limiter.refund(permit)
        reservation, attempts.reservation = attempts.reservation, None
        pulls = reservation.amount.pulls if reservation is not None else 0
        cost = replied_spend(reply, pulls=pulls) if errand.inherited else Spend(pulls=pulls)
        if reservation is not None:
            self._ledger.settle(reservation, cost)
        else:
            self._ledger.charge(cost)
        attempts.spend += cost

    def _book_lost_attempt(self, attempts: Attempts) -> None:
        """Book a call that a crash cut off: it may have been billed, so its bound counts.

        It takes the place of what is set aside to send it again, which is set aside anew: both
        together must fit into the budget.
        """
        reservation, attempts.reservation = attempts.reservation, None
        if reservation is None:
            return
        lost = replace(reservation.amount, pulls=0)
        self._ledger.release(reservation)
        self._ledger.charge(lost)
        attempts.spend += lost
        attempts.reservation = self._ledger.reserve(reservation.amount)
        if attempts.reservation is None:
            raise BudgetEndedError
