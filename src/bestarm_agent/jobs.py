"""A pair that is to be evaluated: what it can cost, what is set aside for it, why it is put off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ProviderError
from bestarm_agent.judging import Panel
from bestarm_agent.roster import Entry, Roster
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger, Reservation
from bestarm_agent.schedule.purse import Purse


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
        purse: what is set aside for judging, and what that has cost so far.
        inherited: whether an earlier process sent it and ended before the outcome was logged.
        resent: whether this or an earlier process sent it before.
    """

    seq: int
    entry: Entry
    example: Example
    request: Request
    slot: Slot
    attempts: Attempts
    purse: Purse
    inherited: bool = False
    resent: bool = False

    @property
    def spend(self) -> Spend:
        """What the pair has cost so far, judging included."""
        return self.attempts.spend + self.purse.spent


@dataclass(frozen=True, slots=True)
class Deferred:
    """A pair that stays pending: it can be evaluated once something has been put right.

    Attributes:
        spend: what calling the candidate has cost so far, booked already.
        judge_spend: what judging has cost so far, booked already.
        error: the fatal error in the way; None if the budget ended.
        judge: whether the error is the judge's.
        inherited: whether an earlier process sent it, and what that may have cost is not booked.
    """

    spend: Spend = field(default_factory=Spend)
    judge_spend: Spend = field(default_factory=Spend)
    error: ProviderError | None = None
    judge: bool = False
    inherited: bool = False


def deferred(job: Job, error: ProviderError | None = None, *, judge: bool = False) -> Deferred:
    """Put a pair off, with what it has cost so far."""
    inherited = job.inherited and job.spend == Spend()
    return Deferred(job.attempts.spend, job.purse.spent, error, judge, inherited)


def note_trouble(roster: Roster, job: Job, put_off: Deferred) -> None:
    """Let nothing more be asked that what is in a pair's way makes pointless, if anything is."""
    if put_off.error is not None and put_off.judge:
        roster.close(f"the judge cannot be called: {put_off.error}")
    elif put_off.error is not None:
        roster.withdraw(job.entry, put_off.error)


@dataclass(frozen=True, slots=True)
class Quote:
    """The most that a pair can cost.

    Attributes:
        entry: the candidate.
        example: what it is to be tried on.
        request: the rendered prompt.
        attempt: one attempt at the call.
        judging: all calls of the judge.
    """

    entry: Entry
    example: Example
    request: Request
    attempt: Spend
    judging: Spend

    def job(
        self,
        seq: int,
        ledger: Ledger,
        place: Callable[[Entry], Slot],
        prior: Deferred | None = None,
        *,
        inherited: bool = False,
    ) -> Job | None:
        """Set the cost aside and take a place; None if the budget cannot pay it.

        Args:
            seq: the ask's number.
            ledger: the budget.
            place: makes the pair's place in the gates.
            prior: how far the pair came before it was put off, if it was.
            inherited: as in ``Job``.
        """
        before = prior or Deferred()
        reserved = self._reserved(ledger, pulls=0 if before.spend.pulls else 1)
        if reserved is None:
            return None
        return Job(
            seq=seq,
            entry=self.entry,
            example=self.example,
            request=self.request,
            slot=place(self.entry),
            attempts=Attempts(reserved[0], before.spend),
            purse=Purse(ledger, reserved[1], before.judge_spend),
            inherited=inherited,
            resent=before != Deferred(),
        )

    def _reserved(self, ledger: Ledger, pulls: int) -> tuple[Reservation, Reservation] | None:
        """Set the attempt and the judging aside: both or none."""
        call = self.attempt + Spend(pulls=pulls)
        if not ledger.affords(call + self.judging):
            return None
        first, second = ledger.reserve(call), ledger.reserve(self.judging)
        return None if first is None or second is None else (first, second)


def quoted(entry: Entry, example: Example, panel: Panel) -> Quote:
    """Render a candidate's prompt for an example, and bound what calling and judging can cost."""
    request = entry.request(example)
    attempt = entry.line.provider.bound(request)
    return Quote(entry, example, request, attempt, panel.bound(example))
