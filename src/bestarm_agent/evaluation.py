"""One pair, end to end: render, look up or buy the reply, store it, score it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import JudgeError, ProviderError
from bestarm_agent.jobs import Deferred, Job, deferred
from bestarm_agent.judging import Hearing, JudgeOutOfOrderError, Panel
from bestarm_agent.replies import Errand, Obtained, Replies
from bestarm_agent.schedule.caller import BudgetEndedError, replied_spend
from bestarm_agent.schedule.ledger import Ledger


class Evaluator:
    """Turns jobs into outcomes; no expected failure raises, cancellation always does.

    Args:
        replies: the reply cache, and the way to the providers.
        panel: scores replies.
        ledger: what is set aside for a job is given back here.
    """

    def __init__(self, replies: Replies, panel: Panel, ledger: Ledger) -> None:
        self.panel = panel
        self._replies = replies
        self._ledger = ledger

    def remarks(self) -> tuple[str, ...]:
        """What the replies so far showed that users should know, a sentence each."""
        return self._replies.remarks()

    async def evaluate(self, job: Job, answered: Callable[[], None]) -> Outcome | Deferred:
        """Evaluate one pair and give its place in the gates up.

        Args:
            job: the pair.
            answered: called when a judge's model takes over, and the place at the candidate's
                provider is free again.
        """
        try:
            obtained = await self._replies.obtain(_errand(job))
            if self.panel.judge.models:
                job.slot.keep_last()
                answered()
            async with self.panel.court.session(job.slot, answered):
                return await self._judged(job, obtained)
        except BudgetEndedError:
            return deferred(job)
        except JudgeOutOfOrderError as out_of_order:
            return deferred(job, out_of_order.error, judge=True)
        except ProviderError as error:
            if error.fatal:
                return deferred(job, error)
            lost = replace(job.attempts.spend, pulls=0)
            return Failed(error.kind, error.blame, str(error), job.spend, lost_spend=lost)
        finally:
            self.let_go(job)

    def let_go(self, job: Job) -> None:
        """Give back what a job holds: its places, its permit, and what is left of its money."""
        job.slot.leave()
        job.purse.close()
        if job.attempts.permit is not None:
            job.entry.lane.limiter.refund(job.attempts.permit)
        if job.attempts.reservation is not None:  # cancelled before the first attempt
            self._ledger.release(job.attempts.reservation)

    async def _judged(self, job: Job, obtained: Obtained) -> Outcome:
        reply, key = obtained.reply, obtained.key
        hearing = Hearing(
            self.panel,
            self._replies,
            job.purse,
            job.entry.candidate.label,
            inherited=job.inherited and obtained.found,
            own=job.resent,
        )
        try:
            score = await hearing.score(job.example, reply)
        except JudgeError as error:
            return Failed(
                error.kind,
                error.blame,
                str(error),
                job.spend,
                reply.seconds,
                key,
                judge_spend=job.purse.spent,
                lost_spend=lost_spend(job, reply),
                usd_nanos=reply.usd_nanos,
            )
        return Scored(
            value=score.value,
            answer=score.answer,
            usage=reply.usage,
            spend=job.spend,
            seconds=reply.seconds,
            reply_key=key,
            cached=obtained.found and not job.inherited,
            judge_spend=job.purse.spent,
            votes=score.votes,
            lost_spend=lost_spend(job, reply),
            usd_nanos=reply.usd_nanos,
            gold=score.gold,
            guesses=score.guesses,
        )


def lost_spend(job: Job, reply: Reply) -> Spend:
    """What the candidate's call cost beyond the attempt that was answered."""
    spend = job.attempts.spend
    return spend - replied_spend(reply, pulls=spend.pulls).capped(spend)


def _errand(job: Job) -> Errand:
    entry = job.entry
    return Errand(
        entry.line,
        entry.fingerprint,
        job.request,
        job.slot,
        job.attempts,
        inherited=job.inherited,
        own=job.inherited or job.resent,
    )
