"""One pair, from reservation to outcome: buy or look up its replies, store and score them."""

from __future__ import annotations

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.attempt import replied_spend
from bestarm_agent.engine.calls.judge_calls import JudgeCalls, JudgeClient, JudgeUnavailableError
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import BudgetEndedError, Call, Origin
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.errors import FailureKind, JudgeError, ProviderError

_NOTHING = Spend()
_BAD_REQUESTS = 5  # in a row that stop a candidate which was answered before


class PairEvaluator:
    """Turns candidates' calls into outcomes; cancellation is the only thing that it raises."""

    def __init__(self, replies: ReplyCache, judge_client: JudgeClient, ledger: Ledger) -> None:
        self.judge_client = judge_client
        self.replies = replies
        self._ledger = ledger
        self._bad_requests: dict[str, int] = {}  # by candidate: since its last answer

    def reserve(self, call: Call, bound: Spend, judging: Spend) -> bool:
        """Reserve the bounds of a call and of judging it, and a pull unless it was paid before.

        Return False, and reserve nothing, if the budget cannot pay them together.
        """
        if not call.spend.pulls:
            bound += Spend(pulls=1)
        if not self._ledger.affords(bound + judging):
            return False
        spent = call.judging.spent if call.judging is not None else Spend()
        call.reservation = self._ledger.reserve(bound)
        reserved = self._ledger.reserve(judging) if judging != _NOTHING else None
        call.judging = SharedReserve(self._ledger, reserved, spent)
        return True

    async def evaluate(self, call: Call, example: Example) -> Outcome | None:
        """Evaluate one pair and give up everything that its call holds; the call is reserved.

        Return None if the pair stays pending, for lack of budget or because of ``call.obstacle``.
        """
        try:
            return await self._outcome(call, example)
        except BudgetEndedError:
            return None
        except (JudgeUnavailableError, ProviderError) as error:
            call.obstacle = error
            return None
        finally:
            call.let_go()

    async def _outcome(self, call: Call, example: Example) -> Outcome:
        """Evaluate one pair; raise what keeps it pending."""
        try:
            reply = await self.replies.obtain(call)
        except ProviderError as error:
            if error.fatal and not self._is_about_one_example(call, error):
                raise
            lost, judging = lost_spend(call), call.pair_spend - call.spend
            return Failed(
                error.kind,
                error.blame,
                str(error),
                call.pair_spend,
                judge_spend=judging,
                lost_spend=lost,
            )
        self._bad_requests[call.request.candidate] = 0
        is_paid = not call.found or call.origin is not Origin.FRESH
        lost = lost_spend(call, reply if is_paid else None)
        if not self.judge_client.judge.models:
            return await self._judged(call, example, reply, lost)
        call.slot.keep_last()
        return await self._judged(call, example, reply, lost)

    def _is_about_one_example(self, call: Call, error: ProviderError) -> bool:
        """Return whether a refused request says little about its candidate's other requests."""
        candidate = call.request.candidate
        if error.kind is not FailureKind.BAD_REQUEST or candidate not in self._bad_requests:
            return False
        self._bad_requests[candidate] += 1
        return self._bad_requests[candidate] < _BAD_REQUESTS

    async def _judged(self, call: Call, example: Example, reply: Reply, lost: Spend) -> Outcome:
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
                lost_spend=lost,
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
            lost_spend=lost,
            usd_nanos=reply.usd_nanos,
            gold=score.gold,
            measures=score.measures,
        )


def lost_spend(call: Call, reply: Reply | None = None) -> Spend:
    """Return the cost of a candidate's call beyond the attempt that was answered."""
    answered = Spend() if reply is None else replied_spend(reply, pulls=0)
    return call.spend - (answered + Spend(pulls=call.spend.pulls)).capped(call.spend)
