"""One pair, from reservation to outcome: buy or look up the reply, store it, score it."""

from __future__ import annotations

from dataclasses import replace

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.attempt import replied_spend
from bestarm_agent.engine.calls.judge_calls import JudgeCalls, JudgeClient, JudgeUnavailableError
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import BudgetEndedError, Call, Origin
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.errors import JudgeError, ProviderError


class PairEvaluator:
    """Turns candidates' calls into outcomes; cancellation is the only thing that it raises."""

    def __init__(self, replies: ReplyCache, judge_client: JudgeClient, ledger: Ledger) -> None:
        self.judge_client = judge_client
        self.replies = replies
        self._ledger = ledger

    def bounds(self, call: Call, example: Example) -> tuple[Spend, Spend]:
        """Return the most that one attempt at a call, and that judging the reply, can cost."""
        return call.bound(), self.judge_client.bound(example)

    def reserve(self, call: Call, attempt: Spend, judging: Spend) -> bool:
        """Reserve these bounds of an attempt and of judging, and a pull unless it was paid before.

        Return False, and reserve nothing, if the budget cannot pay them together.
        """
        if not call.spend.pulls:
            attempt += Spend(pulls=1)
        if not self._ledger.affords(attempt + judging):
            return False
        spent = call.judging.spent if call.judging is not None else Spend()
        call.reservation = self._ledger.reserve(attempt)
        call.judging = SharedReserve(self._ledger, self._ledger.reserve(judging), spent)
        return True

    async def evaluate(self, call: Call, example: Example) -> Outcome | None:
        """Evaluate one pair and give up everything that its call holds; the call is reserved.

        Return None if the pair stays pending, for lack of budget or because of ``call.obstacle``.
        """
        try:
            reply = await self.replies.obtain(call)
            if not self.judge_client.judge.models:
                return await self._judged(call, example, reply)
            call.slot.keep_last()
            async with self.judge_client.turns.session(call.slot):
                return await self._judged(call, example, reply)
        except BudgetEndedError:
            return None
        except JudgeUnavailableError as error:
            call.obstacle = error
            return None
        except ProviderError as error:
            if error.fatal:
                call.obstacle = error
                return None
            lost = replace(call.spend, pulls=0)
            return Failed(error.kind, error.blame, str(error), call.pair_spend, lost_spend=lost)
        finally:
            call.let_go()

    async def _judged(self, call: Call, example: Example, reply: Reply) -> Outcome:
        judging = call.judging or SharedReserve(self._ledger)
        calls = JudgeCalls(
            self.judge_client,
            self.replies,
            judging,
            call.request.candidate,
            origin=call.origin,
            log=call.log,
        )
        try:
            score = await calls.score(example, reply)
        except JudgeError as error:
            return Failed(
                error.kind,
                error.blame,
                str(error),
                call.pair_spend,
                reply.seconds,
                call.key,
                judge_spend=judging.spent,
                lost_spend=lost_spend(call, reply),
                usd_nanos=reply.usd_nanos,
            )
        return Scored(
            value=score.value,
            answer=score.answer,
            usage=reply.usage,
            spend=call.pair_spend,
            seconds=round(reply.seconds, 6),
            reply_key=call.key,
            cached=call.found and call.origin is not Origin.INHERITED,
            judge_spend=judging.spent,
            votes=score.votes,
            lost_spend=lost_spend(call, reply),
            usd_nanos=reply.usd_nanos,
            gold=score.gold,
            guesses=score.guesses,
            measures=score.measures,
            first_token_seconds=reply.first_token_seconds,
        )


def lost_spend(call: Call, reply: Reply) -> Spend:
    """Return the cost of a candidate's call beyond the attempt that was answered."""
    return call.spend - replied_spend(reply, pulls=call.spend.pulls).capped(call.spend)
