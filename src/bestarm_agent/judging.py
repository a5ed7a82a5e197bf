"""A judge at work: its models, what its calls can cost, and the calls themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError, ProviderError
from bestarm_agent.judges.base import Judge, JudgeCall, JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.replies import Errand, Replies
from bestarm_agent.roster import Line
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.court import Court
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.purse import Purse
from bestarm_agent.schedule.waits import Wait

Able: TypeAlias = Callable[[JudgeModel], Capabilities]


class JudgeOutOfOrderError(Exception):
    """No further call to a judge's model can succeed: the run cannot go on, but be resumed.

    Attributes:
        error: why.
    """

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Seat:
    """A judge's model, ready to be called.

    Attributes:
        line: its provider.
        fingerprint: what decides its replies besides the request.
    """

    line: Line
    fingerprint: str


class Panel:
    """A judge with all that it needs.

    Args:
        judge: scores replies.
        seats: its models, by ``JudgeModel.key``.

    Attributes:
        judge: scores replies.
        court: where replies wait for its models.
    """

    def __init__(self, judge: Judge, seats: Mapping[str, Seat]) -> None:
        self.judge = judge
        self.court = Court([(seats[model.key].line.provider, model.name) for model in judge.models])
        self._seats = seats
        self._bounds: dict[str, Spend] = {}
        self._queueing = 0

    @property
    def providers(self) -> list[Provider]:
        """The providers of its models, each once."""
        found = {id(seat.line.provider): seat.line.provider for seat in self._seats.values()}
        return list(found.values())

    def wait(self) -> Wait | None:
        """How many replies wait for its models, or its calls for a place; None if none do."""
        if self.court.waiting:
            reason = "until it has the memory"
            return Wait(f"judge {self.judge.name}", reason, self.court.waiting, None)
        if not self._queueing:
            return None
        return Wait(f"judge {self.judge.name}", "queue full", self._queueing, None)

    async def enter(self, slot: Slot) -> None:
        """Wait for room in the gates of a slot, and be counted as waiting."""
        self._queueing += 1
        try:
            await slot.reenter()
        finally:
            self._queueing -= 1

    def bound(self, example: Example) -> Spend:
        """What judging a reply to ``example`` can cost, each of its calls made once."""
        if not self._seats:
            return Spend()
        if example.id not in self._bounds:
            total = Spend()
            for call in self.judge.longest_calls(example):
                seat, request = self.prepared(call)
                total += seat.line.provider.bound(request)
            self._bounds[example.id] = total
        return self._bounds[example.id]

    def prepared(self, call: JudgeCall) -> tuple[Seat, Request]:
        """The seat of a call's model, and the request without what the model does not offer."""
        seat = self._seats[call.model.key]
        return seat, fitted(call.request, seat.line.provider.capabilities(call.model.name))


def fitted(request: Request, capabilities: Capabilities) -> Request:
    """Leave out of a request what a model does not offer."""
    return replace(
        request,
        params={k: v for k, v in request.params.items() if k in capabilities.params},
        response_schema=request.response_schema if capabilities.response_schema else None,
        top_logprobs=request.top_logprobs if capabilities.logprobs else None,
    )


def left_out(judge: Judge, examples: Sequence[Example], able: Able) -> list[str]:
    """What a judge's models do not offer and will not be sent, one sentence for each model.

    Args:
        judge: the judge.
        examples: the dataset, not empty.
        able: tells what a model can do.

    Raises:
        ConfigError: the judge cannot do without it.
    """
    notices: dict[str, str] = {}
    for call in judge.longest_calls(examples[0]):
        able_to = able(call.model)
        _check_offers(judge, call, able_to)
        missing = sorted(call.request.params.keys() - able_to.params)
        if missing and not able_to.by_example:  # records played back depend on no parameter
            notices[call.model.key] = (
                f"judge model {call.model} does not take {', '.join(missing)}: not sent"
            )
    return list(notices.values())


def _check_offers(judge: Judge, call: JudgeCall, able_to: Capabilities) -> None:
    if not able_to.chat:
        raise ConfigError(
            f"judge `{judge.name}` needs a model that takes chat messages, and {call.model} does "
            f"not; choose another model"
        )
    if call.request.top_logprobs is not None and not able_to.logprobs:
        raise ConfigError(
            f"judge `{judge.name}` weighs by log probabilities, which {call.model} does not give; "
            f"set `logprobs: false`, or choose another model"
        )


class Hearing:
    """One reply before a judge; makes the judge's calls.

    Args:
        panel: the judge.
        replies: where its calls' answers come from.
        purse: pays the calls.
        candidate: label of the candidate whose reply it is.
        inherited: whether an earlier process may have begun it, and ended before it was booked.
        own: whether this run may have bought some of the answers already.

    Example:
        A judge outside a run, with a purse of its own::

            purse = Purse(ledger, reservation)
            hearing = Hearing(panel, replies, purse, "candidate 1")
            score = await hearing.score(example, reply)
    """

    def __init__(
        self,
        panel: Panel,
        replies: Replies,
        purse: Purse,
        candidate: str,
        *,
        inherited: bool = False,
        own: bool = False,
    ) -> None:
        self._panel = panel
        self._replies = replies
        self._purse = purse
        self._candidate = candidate
        self._inherited = inherited
        self._own = own

    async def score(self, example: Example, reply: Reply) -> Score:
        """Let the judge score a reply.

        Raises:
            JudgeError: it could not; says who is to blame.
            JudgeOutOfOrderError: no further judgement can succeed.
            BudgetEndedError: the next call does not fit into the budget.
        """
        return await self._panel.judge.score(example, reply, self)

    async def ask(self, call: JudgeCall) -> Reply:
        """Answer one of the judge's calls; ``purse.spent`` tells what it cost, also on an error."""
        seat, request = self._panel.prepared(call)
        request = replace(
            request, candidate=self._candidate, example=f"{self._candidate}/{request.example}"
        )
        slot = Slot.outside(*seat.line.gates(request.model))
        attempts = Attempts(None)
        try:
            await self._panel.enter(slot)
            attempts.reservation = self._purse.draw(seat.line.provider.bound(request))
            obtained = await self._replies.obtain(
                Errand(
                    seat.line,
                    seat.fingerprint,
                    request,
                    slot,
                    attempts,
                    inherited=self._inherited,
                    own=self._own or self._inherited,
                )
            )
        except ProviderError as error:
            raise _failed(call, error) from error
        finally:
            slot.leave()
            self._purse.note(attempts)
        if not obtained.found:
            self._inherited = False  # what comes after this call was not sent by an earlier process
        return obtained.reply


def _failed(call: JudgeCall, error: ProviderError) -> Exception:
    if error.fatal:
        return JudgeOutOfOrderError(error)
    return JudgeError(
        f"judge model {call.model} gave no answer: {error}",
        kind=FailureKind.JUDGE_FAILED,
        blame=Blame.JUDGE,
        transient=error.transient,
    )
