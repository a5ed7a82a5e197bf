"""The pairs of a run between ask and outcome: what is held for each, and the task it is in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.jobs import Deferred, Job, deferred, note_trouble, quoted
from bestarm_agent.roster import Roster
from bestarm_agent.schedule.ledger import Ledger


class Dispatch:
    """Sets aside what pairs need, sends them, and hands over what became of them.

    Args:
        roster: the candidates.
        examples: the dataset.
        evaluator: turns pairs into outcomes.
        ledger: the budget.

    Attributes:
        examples: the dataset, as it is now.
        active: how many pairs were sent and not handed over yet.
        news: set when there may be an outcome, or a free place.
        put_off: the pairs that stay pending, by number.
    """

    def __init__(
        self, roster: Roster, examples: Sequence[Example], evaluator: Evaluator, ledger: Ledger
    ) -> None:
        self.examples = list(examples)
        self.active = 0
        self.news = asyncio.Event()
        self.put_off: dict[int, Deferred] = {}
        self._roster = roster
        self._evaluator = evaluator
        self._ledger = ledger
        self._finished: deque[tuple[Job, Outcome | Deferred | Exception]] = deque()
        self._unsent: dict[int, Job] = {}  # hold places and money, and their tasks never began

    @property
    def has_outcomes(self) -> bool:
        """Whether something is finished and was not handed over yet."""
        return bool(self._finished)

    @property
    def short_of_money(self) -> list[int]:
        """Numbers of the pairs that were put off only because the budget could not pay them."""
        return [seq for seq, put_off in self.put_off.items() if put_off.error is None]

    def begin(self) -> None:
        """Begin a sitting: forget what the last one left under way, which stays pending."""
        self.active = 0
        self._finished.clear()

    def prepare(self, asked: Asked, *, inherited: bool = False) -> Job | None:
        """Set a pair's cost aside and take its place in the gates.

        Args:
            asked: the pair.
            inherited: whether an earlier process may have sent it.

        Returns:
            What to send; None if the budget cannot pay it now: then it is put off.
        """
        prior = self.put_off.pop(asked.seq, Deferred())
        inherited = inherited or prior.inherited
        entry = self._roster.entries[asked.candidate]
        quote = quoted(entry, self.examples[asked.example], self._evaluator.panel)
        self._roster.raise_bound(entry, quote.attempt + quote.judging)
        job = quote.job(asked.seq, self._ledger, self._roster.slot, prior, inherited=inherited)
        if job is None:
            self.put_off[asked.seq] = replace(prior, inherited=inherited)
            return None
        job.attempts.permit = entry.lane.take(quote.request, quote.attempt)
        self._unsent[asked.seq] = job
        return job

    def send(self, tasks: asyncio.TaskGroup, job: Job) -> None:
        """Evaluate a pair in a task of its own."""
        self.active += 1
        tasks.create_task(self._work(job))

    def outcomes(self) -> Iterator[tuple[Job, Outcome]]:
        """Hand over what is finished; what cannot be evaluated now is put off.

        Raises:
            Exception: what an evaluation raised though nothing should.
        """
        while self._finished:
            job, result = self._finished.popleft()
            self.active -= 1
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Deferred):
                self.put_off[job.seq] = result
                note_trouble(self._roster, job, result)
            else:
                yield job, result

    def send_again(
        self, tasks: asyncio.TaskGroup, asked: Asked, *, inherited: bool = False
    ) -> None:
        """Prepare and send a pair that was asked before, if the budget can pay it."""
        job = self.prepare(asked, inherited=inherited)
        if job is not None:
            self.send(tasks, job)

    def let_unsent_go(self) -> None:
        """Give back what is held for pairs that were asked, and not sent before the end."""
        for job in self._unsent.values():
            self._evaluator.let_go(job)
            self.put_off[job.seq] = deferred(job)
        self._unsent.clear()

    async def _work(self, job: Job) -> None:
        del self._unsent[job.seq]
        result: Outcome | Deferred | Exception
        try:
            result = await self._evaluator.evaluate(job, self.news.set)
        except asyncio.CancelledError:
            self.put_off[job.seq] = deferred(job)  # booked; it stays pending
            raise
        except Exception as error:  # raised again by the loop, which must not wait for it forever
            result = error
        self._finished.append((job, result))
        self.news.set()
