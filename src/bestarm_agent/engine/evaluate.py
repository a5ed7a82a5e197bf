"""One pair, from reservation to outcome: buy or look up its reply, store and score it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.spend import NOTHING, Spend
from bestarm_agent.domain.values import Candidate, Example, Failure, Outcome, Reply, Request, Score
from bestarm_agent.engine.call import AttemptLog, BudgetEndedError, Call, Model, replied_spend
from bestarm_agent.engine.judging import JudgeCalls, JudgeClient
from bestarm_agent.engine.ledger import Reservation
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.engine.scorer_signs import ScorerSigns
from bestarm_agent.errors import Blame, FailureKind, JudgeError, PluginError, ProviderError

_SEEDS = 1_000_000  # between two draws: candidates that differ in their seeds share no draw
# What says something about the candidate alone, whose requests are all built in the same way.
CANDIDATES_OWN = (FailureKind.BAD_REQUEST, FailureKind.INTERNAL)
_IN_A_ROW = 5  # failures that stop a candidate, and two more for each that it had before


@dataclass(slots=True)
class ReadyCandidate:
    """A candidate, ready to be called.

    Attributes:
        bound: highest cost of a pair met so far, judging included, with one attempt;
            starts with the longest example's.
        usd: the most dollars that a call to it can cost, without judging: for the longest example,
            or for any where the objective depends on prices; None if not known.
    """

    candidate: Candidate
    prompt: CompiledPrompt
    model: Model
    bound: Spend
    usd: float | None = None
    price_source: str | None = None  # where its price comes from, for people
    broken: str | None = None  # why it can no longer be asked
    prefix: tuple[str, ...] = ()  # of its prompt, where the provider's cache of it saves something

    def request(self, example: Example) -> Request:
        """Render the prompt for one example; a further draw has a seed of its own."""
        request, offers = request_of(self.candidate, self.prompt, example), self.model.able
        params = request.params
        if example.draw and ("seed" in params or (offers.seed and offers.takes("seed"))):
            seed = params.get("seed", 0)
            first = seed if isinstance(seed, int) else 0
            request = replace(request, params={**params, "seed": first + example.draw * _SEEDS})
        # A worked example that asks the same as this example is left out of its prompt, which then
        # does not begin as the others do.
        is_shared = self.prefix and all(map(str.startswith, request.texts, self.prefix))
        return replace(request, prefix=self.prefix) if is_shared else request

    def call(self, example: Example, log: AttemptLog | None = None) -> Call:
        """Prepare a call for one example; nothing is reserved for it."""
        return Call(self.model, self.request(example), log)


def request_of(candidate: Candidate, prompt: CompiledPrompt, example: Example) -> Request:
    """Render a candidate's prompt for one example."""
    rendered = prompt.render(example.inputs)
    tools, tool_choice = prompt.tools(example.inputs)
    return Request(
        model=candidate.model,
        text=rendered if isinstance(rendered, str) else None,
        messages=() if isinstance(rendered, str) else rendered,
        params=candidate.params,
        candidate=candidate.label,
        example=example.row_id if example.draw else example.id,
        draw=example.draw,
        inputs=example.inputs,
        tools=tools,
        tool_choice=tool_choice,
    )


class Evaluation:
    """One pair under way: its call, what pays for judging the reply, and all that it has cost.

    A pair that was put off is sent again with a new call; what the earlier ones cost stays.

    Args:
        candidate: what is evaluated.
        example: what it answers.
        log: where attempts are logged; None outside a run.
        spend, judge_spend: what earlier processes spent on the candidate's calls and on judging.

    Attributes:
        call: the candidate's call, or the last one.
        judging: pays for the judge's calls.
        obstacle: the fatal error that keeps the pair pending.
    """

    def __init__(
        self,
        candidate: ReadyCandidate,
        example: Example,
        log: AttemptLog | None = None,
        *,
        spend: Spend = NOTHING,
        judge_spend: Spend = NOTHING,
    ) -> None:
        self.candidate, self.example = candidate, example
        self.call = candidate.call(example, log)
        self.judging = Reservation(NOTHING)
        self.judge_spend = judge_spend
        self.obstacle: Exception | None = None
        self._before = spend  # by earlier calls

    @property
    def candidate_spend(self) -> Spend:
        """Cost of the candidate's calls so far."""
        return self._before + self.call.spend

    @property
    def spend(self) -> Spend:
        """Cost of the pair so far, judging included."""
        return self.candidate_spend + self.judge_spend

    def begin_again(self) -> None:
        """Get ready to be sent again after it was put off."""
        self._before = self.candidate_spend
        self.call = self.candidate.call(self.example, self.call.log)
        self.obstacle = None

    def reserve(self, bound: Spend, judging: Spend) -> bool:
        """Reserve the bounds of a call and of judging it, and a pull unless it was paid before.

        Return False, and reserve nothing, if the budget cannot pay them together.
        """
        # a pair counts as one answer, however often it is put off and sent again
        if not self.candidate_spend.answers:
            bound += Spend(answers=1)
        ledger = self.call.model.client.ledger
        # Both or neither: a reply whose judging cannot be paid would be bought for nothing.
        if not ledger.affords(bound + judging):
            return False
        self.call.reservation = ledger.reserve(bound)
        self.judging = ledger.reserve(judging) or Reservation(NOTHING)
        return True

    def close_log(self) -> None:
        """Log what its attempts cost: it stays pending."""
        if self.call.log is not None:
            self.call.log.close()

    def failed(self, error: PluginError) -> Outcome:
        """Return the outcome of a pair that a plug-in's mistake ended."""
        failure = Failure(FailureKind.INTERNAL, Blame.HARNESS, masked(str(error)))
        return _outcome(self, failure=failure)

    def let_go(self) -> None:
        """Give back all that it holds: places, permit, and what is reserved and was not spent."""
        self.call.let_go()
        if self.judging.is_open:
            self.call.model.client.ledger.release(self.judging)


class Evaluator:
    """Turns pairs into outcomes; cancellation is the only thing that it raises."""

    def __init__(self, replies: ReplyCache, judge_client: JudgeClient) -> None:
        self.judge_client = judge_client
        self.replies = replies
        self._signs = ScorerSigns(judge_client.judge.main)
        # by candidate: failures before its last answer, and since; none if it was not called
        self._failures: dict[str, tuple[int, int]] = {}

    async def evaluate(self, pair: Evaluation) -> Outcome | None:
        """Evaluate a pair that is reserved, once it has its places; give up all that it holds.

        Return None if it stays pending, for lack of budget or because of ``pair.obstacle``.
        """
        try:
            await pair.call.slot.reenter()
            return await self._outcome(pair)
        except BudgetEndedError:
            return None
        except (JudgeError, ProviderError) as error:
            pair.obstacle = error
            return None
        finally:
            pair.let_go()

    async def _outcome(self, pair: Evaluation) -> Outcome:
        """Evaluate a pair; raise what keeps it pending."""
        call = pair.call
        try:
            reply = await self.replies.obtain(call)
        except ProviderError as error:
            if self._concerns_all(call, error):
                raise
            return _outcome(pair, failure=Failure(error.kind, error.blame, str(error)))
        except PluginError as error:
            return pair.failed(error)
        label = call.request.candidate
        self._failures[label] = sum(self._failures.get(label, ())), 0
        # The provider's place is free for the next call. That in the run's gate is kept, so that no
        # more replies wait for the judge than pairs may be in flight.
        if self.judge_client.judge.models:
            call.slot.keep_last()
        return await self._judged(pair, reply)

    def _concerns_all(self, call: Call, error: ProviderError) -> bool:
        """Return whether a failure is probably one of all the candidate's calls, and count it."""
        # a refusal that is not fatal is a gap in a recording
        if not (error.fatal or error.kind is FailureKind.INTERNAL):
            return False
        if error.kind not in CANDIDATES_OWN:
            return True
        candidate = call.request.candidate
        # A candidate that was never answered may send what its model takes from nobody. After an
        # answer, and where a program raises, the example is the likelier cause, until several in a
        # row fail: more of them where some failed before, as those come in a row by chance.
        if error.fatal and candidate not in self._failures:
            return True
        before, in_row = self._failures.get(candidate, (0, 0))
        self._failures[candidate] = before, in_row + 1
        return in_row + 1 >= _IN_A_ROW + 2 * before

    async def _judged(self, pair: Evaluation, reply: Reply) -> Outcome:
        call, judge_client = pair.call, self.judge_client
        # ``calls.spent`` is added in any case: also a judge that fails, or is cut off, has its
        # price.
        label = call.request.candidate
        calls = JudgeCalls(judge_client, self.replies, label, pair.judging, call.log)
        try:
            try:
                score = await calls.score(pair.example, reply)
            finally:
                pair.judge_spend += calls.spent
        except JudgeError as error:
            failed = Failure(error.kind, error.blame, str(error))
            sign = self._sign(pair, reply, None, error.kind)
            is_own = error.blame is Blame.CANDIDATE
            return _outcome(pair, reply, failure=failed, sign=sign if is_own else "")
        except ProviderError as error:  # not the candidate's: no reply can be judged any more
            raise JudgeError(str(error), kind=error.kind, blame=Blame.JUDGE) from error
        return _outcome(pair, reply, score=score, sign=self._sign(pair, reply, score.value))

    def _sign(
        self,
        pair: Evaluation,
        reply: Reply,
        score: float | None,
        failure: FailureKind | None = None,
    ) -> str:
        if reply.score is not None:  # it was scored elsewhere, whatever its text
            return ""
        prompt = pair.candidate.candidate.prompt.name
        return self._signs.of(prompt, pair.example, reply, score, failure)


def _outcome(
    pair: Evaluation,
    reply: Reply | None = None,
    *,
    score: Score | None = None,
    failure: Failure | None = None,
    sign: str = "",
) -> Outcome:
    lost = lost_spend(pair, reply)
    if reply is None:
        return Outcome(score, failure, pair.spend, pair.judge_spend, lost)
    return Outcome(
        score,
        failure,
        pair.spend,
        pair.judge_spend,
        lost,
        sign=sign,
        reply_key=pair.call.key,
        cached=pair.call.found and not pair.call.resent,
        usage=reply.usage,
        seconds=round(reply.seconds, 6),
        usd_nanos=reply.usd_nanos,
    )


def lost_spend(pair: Evaluation, reply: Reply | None) -> Spend:
    """Return the cost of a candidate's calls beyond the attempt that was answered.

    A reply from the cache was paid for if the pair may have bought it before.
    """
    # ``resent`` says that an earlier process may have bought the reply, not that it did: then
    # another pair has, and less may stand in ``spend`` than the reply cost. So it is capped.
    spend = pair.candidate_spend
    is_paid = reply is not None and (pair.call.resent or not pair.call.found)
    answered = replied_spend(reply, answers=0) if reply is not None and is_paid else NOTHING
    counted = Spend(answers=spend.answers) + answered
    return NOTHING if counted == spend else spend - counted.capped(spend)
