"""One pair, end to end: render, look up or buy the reply, store it, score it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import JudgeError, ProviderError
from bestarm_agent.judges.base import Judge
from bestarm_agent.roster import Entry
from bestarm_agent.schedule.caller import Attempts, BudgetEndedError, replied_spend
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger, Reservation
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
        reservation: set aside for the pull and the first attempt.
        inherited: whether an earlier sitting sent it and ended before the outcome was logged.
        prior: what earlier attempts in this sitting have cost, booked already.
    """

    seq: int
    entry: Entry
    example: Example
    request: Request
    slot: Slot
    reservation: Reservation
    inherited: bool = False
    prior: Spend = field(default_factory=Spend)


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
    return digest([entry.line.provider.name, entry.fingerprint, request.as_json()], length=32)


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

    async def _bought(self, job: Job, key: str) -> Outcome | Deferred:
        attempts = Attempts(job.reservation, spend=job.prior)
        if job.inherited:
            attempts.spend += self._lost_attempt(job)
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
        """Book a reply from the cache: free, unless an earlier sitting of this run bought it."""
        spend = replied_spend(reply, pulls=1) if job.inherited else Spend(pulls=1)
        self._ledger.settle(job.reservation, spend)
        return spend + job.prior

    def _lost_attempt(self, job: Job) -> Spend:
        """Book a call that a crash cut off: it may have been billed, so its bound counts."""
        lost = replace(job.reservation.amount, pulls=0)
        self._ledger.charge(lost)
        return lost
