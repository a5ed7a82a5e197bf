"""One pair, end to end: render, look up or buy the reply, store it, score it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import JudgeError, ProviderError
from bestarm_agent.judges.base import Judge
from bestarm_agent.roster import Entry
from bestarm_agent.schedule.caller import Attempts, BudgetEndedError, replied_spend
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.store.base import RunStore


@dataclass(frozen=True, slots=True)
class Job:
    """An asked pair on its way.

    Attributes:
        seq: the ask's number.
        entry: the candidate, with all that is needed to call it.
        example: what it is tried on.
        request: the rendered prompt.
        slot: its place in the gates.
        attempts: what is set aside for the next attempt, and what was spent so far.
        inherited: whether an earlier process sent it and ended before the outcome was logged.
    """

    seq: int
    entry: Entry
    example: Example
    request: Request
    slot: Slot
    attempts: Attempts
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """A pair that stays pending: it can be evaluated once something has been put right.

    Attributes:
        spend: what it has cost so far, booked already.
        error: the fatal error in the way; None if the budget ended.
    """

    spend: Spend
    error: ProviderError | None


def reply_key(entry: Entry, request: Request) -> str:
    """Key of a reply in the cache: whoever asks, the same request to the same model is one key."""
    provider = entry.line.provider
    able = provider.capabilities(request.model)
    asked_for: list[Json] = [request.example] if able.by_example else []
    if able.by_inputs:
        asked_for.append(dict(request.inputs))
    return digest([provider.name, entry.fingerprint, request.as_json(), asked_for], length=32)


class Evaluator:
    """Turns jobs into outcomes; no expected failure raises, cancellation always does.

    Args:
        store: holds the reply cache.
        judge: scores replies.
        ledger: what a job costs is booked here.
        use_cache: whether replies bought by other pairs or runs may be used.
    """

    def __init__(self, store: RunStore, judge: Judge, ledger: Ledger, *, use_cache: bool) -> None:
        self._store = store
        self._judge = judge
        self._ledger = ledger
        self._use_cache = use_cache

    async def evaluate(self, job: Job) -> Outcome | Deferred:
        """Evaluate one pair and give its place in the gates up."""
        try:
            key = reply_key(job.entry, job.request)
            look_up = self._use_cache or job.inherited
            found = await self._store.get_reply(key) if look_up else None
            if found is not None:
                spend = self._take(job, found)
                return await self._judged(job, found, key, spend, cached=not job.inherited)
            return await self._bought(job, key)
        finally:
            job.slot.leave()
            if job.attempts.reservation is not None:  # cancelled before the first attempt
                self._ledger.release(job.attempts.reservation)

    async def _bought(self, job: Job, key: str) -> Outcome | Deferred:
        attempts = job.attempts
        if job.inherited:
            attempts.spend += self._lost_attempt(attempts)
        try:
            reply = await job.entry.line.caller.call(job.request, job.slot, attempts)
        except BudgetEndedError:
            return Deferred(attempts.spend, None)
        except ProviderError as error:
            if error.fatal:
                return Deferred(attempts.spend, error)
            return Failed(error.kind, error.blame, str(error), attempts.spend)
        await self._store.put_reply(key, reply)  # paid for: nothing comes before this
        return await self._judged(job, reply, key, attempts.spend, cached=False)

    async def _judged(
        self, job: Job, reply: Reply, key: str, spend: Spend, *, cached: bool
    ) -> Outcome:
        try:
            score = await self._judge.score(job.example, reply)
        except JudgeError as error:
            return Failed(error.kind, error.blame, str(error), spend, reply.seconds, key)
        return Scored(
            value=score.value,
            answer=score.answer,
            usage=reply.usage,
            spend=spend + score.spend,
            seconds=reply.seconds,
            reply_key=key,
            cached=cached,
        )

    def _take(self, job: Job, reply: Reply) -> Spend:
        """Book a reply from the cache: free, unless an earlier process of this run bought it."""
        attempts = job.attempts
        reservation, attempts.reservation = attempts.reservation, None
        if reservation is not None:
            pulls = reservation.amount.pulls
            cost = replied_spend(reply, pulls=pulls) if job.inherited else Spend(pulls=pulls)
            self._ledger.settle(reservation, cost)
            attempts.spend += cost
        return attempts.spend

    def _lost_attempt(self, attempts: Attempts) -> Spend:
        """Book a call that a crash cut off: it may have been billed, so its bound counts."""
        if attempts.reservation is None:
            return Spend()
        lost = replace(attempts.reservation.amount, pulls=0)
        self._ledger.charge(lost)
        return lost
