"""A judge in use: its models, what its calls can cost, and the calls themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bestarm_agent.domain.redaction import raised
from bestarm_agent.domain.spend import NOTHING, Spend
from bestarm_agent.domain.values import Example, Reply, Request, Score
from bestarm_agent.engine.call import AttemptLog, BudgetEndedError, Call, Model
from bestarm_agent.engine.ledger import Reservation
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import (
    Blame,
    ConfigError,
    FailureKind,
    JudgeError,
    ProviderError,
    StoreError,
)
from bestarm_agent.judges.base import Judge, JudgeCall, JudgeModel, judge_failed
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.store.codec import as_stored

_MAX_OWN_ATTEMPTS = 10_000  # more than votes x attempts of any judge


class JudgeClient:
    """A judge with its models, by ``JudgeModel.key``."""

    def __init__(self, judge: Judge, models: Mapping[str, Model]) -> None:
        self.judge = judge
        self._models = models
        self._bounds: dict[str, Spend] = {}

    @property
    def providers(self) -> list[Provider]:
        """The providers of its models, each once."""
        providers = [model.client.provider for model in self._models.values()]
        return list({id(provider): provider for provider in providers}.values())

    @property
    def rate_limited(self) -> bool:
        """True if one of its models is called over the network."""
        return any(model.able.rate_limited for model in self._models.values())

    def bound(self, example: Example) -> Spend:
        """Return the most that judging a reply to ``example`` costs if no call is repeated."""
        if not self._models:
            return NOTHING
        if example.id not in self._bounds:
            bounds = (self.call(call).bound() for call in self.judge.longest_calls(example))
            self._bounds[example.id] = sum(bounds, Spend())
        return self._bounds[example.id]

    def call(
        self, judge_call: JudgeCall, candidate: str = "", log: AttemptLog | None = None
    ) -> Call:
        """Prepare a call about a candidate's reply, without what its model does not offer."""
        model = self._models[judge_call.model.key]
        request = fitted(judge_call.request, model.able)
        if candidate:
            # Recordings, and the keys of a run without the cache, go by the example's id: replies
            # of two candidates to one example are judged by two calls.
            example = f"{candidate}/{request.example}"
            request = replace(request, candidate=candidate, example=example)
        made = Call(model, request, log, is_judges=True)
        made.is_first = model.is_untried and not made.resent
        return made


def fitted(request: Request, capabilities: Capabilities) -> Request:
    """Drop from a request what a model does not offer."""
    return replace(
        request,
        params={k: v for k, v in request.params.items() if capabilities.takes(k)},
        response_schema=request.response_schema if capabilities.response_schema else None,
        top_logprobs=request.top_logprobs if capabilities.logprobs else None,
    )


def left_out(
    judge: Judge, examples: Sequence[Example], offered: Callable[[JudgeModel], Capabilities]
) -> list[str]:
    """List what is not sent because a judge's model does not offer it, a sentence per model.

    ``offered`` returns the capabilities of a model.

    Raises:
        ConfigError: the judge cannot do without it.
    """
    notices: dict[str, str] = {}
    # Checks of one example may ask in another way than those of another, also the same model. What
    # one judge asks is alike for all examples, so the prompts of the first one are enough: to
    # render all would take too long.
    firsts: dict[Judge, Example] = {}
    for example in examples:
        for asked, own_example in judge.each_asked(example):
            firsts.setdefault(asked, own_example)
    calls = (call for asked, example in firsts.items() for call in asked.longest_calls(example))
    for call in calls:
        capabilities = offered(call.model)
        _check_offers(judge, call, capabilities)
        missing = sorted(name for name in call.request.params if not capabilities.takes(name))
        if missing and not capabilities.by_example:  # records played back depend on no parameter
            notices[call.model.key] = (
                f"judge model {call.model} does not take {', '.join(missing)}: not sent"
            )
    return list(notices.values())


def _check_offers(judge: Judge, call: JudgeCall, capabilities: Capabilities) -> None:
    if call.request.messages and not capabilities.chat:
        raise ConfigError(
            f"judge `{judge.name}` needs a model that takes chat messages, and {call.model} does "
            f"not; choose another model"
        )
    if call.request.top_logprobs is not None and not capabilities.logprobs:
        raise ConfigError(
            f"judge `{judge.name}` weighs by log probabilities, which {call.model} does not give; "
            f"set `logprobs: false`, or choose another model"
        )


class JudgeCalls:
    """Makes the calls that judging one reply takes.

    Args:
        candidate: label of the candidate whose reply is judged.
        reserve: what was reserved for them; None: each is reserved when it is made.
        log: where attempts are logged; None outside a run.

    Attributes:
        spent: their cost so far, also after an error.

    Example:
        A judge outside a run::

            calls = JudgeCalls(judge_client, replies, "candidate 1")
            score = await calls.score(example, reply)
    """

    def __init__(
        self,
        judge_client: JudgeClient,
        replies: ReplyCache,
        candidate: str,
        reserve: Reservation | None = None,
        log: AttemptLog | None = None,
    ) -> None:
        self.spent = NOTHING
        self._judge_client = judge_client
        self._replies = replies
        self._reserve = reserve or Reservation(NOTHING)
        self._candidate = candidate
        self._log = log

    async def score(self, example: Example, reply: Reply) -> Score:
        """Let the judge score a reply; whatever it hands in is checked here, and nowhere after.

        Raises:
            JudgeError: it could not; says who is to blame.
            ProviderError: one of its models can be called no more.
            BudgetEndedError: the next call does not fit into the budget.
            StoreError: the reply to one of its calls could not be stored.
        """
        judge = self._judge_client.judge
        try:
            return as_stored(await judge.score(example, reply, self), Score)[0]
        except (JudgeError, ProviderError, BudgetEndedError, StoreError):
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled the pair: the judge cancelled a task of its own and let the error
            # out. Passed on, it would end the pair's task without an outcome.
            problem = f"judge {judge.name} let a cancellation of its own get out"
            raise judge_failed(problem) from None
        except (Exception, SystemExit) as error:
            raise judge_failed(raised(f"judge {judge.name}", error)) from error

    async def ask(self, judge_call: JudgeCall) -> Reply:
        """Make one of the judge's calls; a cached reply that cannot be read is not replayed."""
        call = self._judge_client.call(judge_call, self._candidate, self._log)
        try:
            async with call.in_turn():
                ledger = call.model.client.ledger
                # None if the budget lacks it: a reply in the cache costs nothing, and without one
                # the call ends with BudgetEndedError, which leaves the pair pending.
                call.reservation = ledger.draw(self._reserve, call.bound())
                reply = await self._replies.obtain(call)
                call.model.is_tried = True
        except ProviderError as error:
            if error.fatal:
                raise
            raise JudgeError(
                f"judge model {judge_call.model} gave no answer: {error}",
                kind=FailureKind.JUDGE_FAILED,
                blame=Blame.JUDGE,
                transient=error.transient,
            ) from error
        finally:
            self.spent += call.spend
        # A verdict that could not be read may be in the cache, of a run that was cut off or had
        # other attempts left. It would be read as badly each time, so the model is asked anew.
        if call.found and not call.model.able.by_example and not judge_call.is_readable(reply):
            return await self.ask(_again(judge_call))
        return reply


def _again(call: JudgeCall) -> JudgeCall:
    """Return a call with the next number above those of the judge's own attempts."""
    request = replace(call.request, attempt=call.request.attempt + _MAX_OWN_ATTEMPTS)
    return replace(call, request=request)
