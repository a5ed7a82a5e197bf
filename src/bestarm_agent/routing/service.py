"""Prompts answered end to end: the router chooses, the candidates answer, the judge says who won.

Calls are made as in a run: under the study's budget, gates and rate limits, with its retries, and
every reply is stored before anything else happens to it. What is asked, and what becomes of it, is
logged as in a run, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.config.loading import LoadedStudy
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.endings import End
from bestarm_agent.errors import ConfigError
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.jobs import Deferred, Job, note_trouble, quoted
from bestarm_agent.journal import judged
from bestarm_agent.opening import (
    Options,
    catalog_of,
    first_events,
    loaded_study,
    relative,
    store_of,
)
from bestarm_agent.replies import Replies
from bestarm_agent.roster import Entry, Roster
from bestarm_agent.routing.embedding import Embedder, embedder_of
from bestarm_agent.routing.entries import Entries, text_of
from bestarm_agent.routing.records import Record
from bestarm_agent.routing.round_log import RoundLog
from bestarm_agent.routing.router import Router
from bestarm_agent.routing.served import Answer, Served
from bestarm_agent.routing.settings import RouterSettings
from bestarm_agent.schedule.caller import BudgetEndedError
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.store.sql import SqlStore


class Service:
    """Answers prompts by the candidates that a router chooses. Made by ``Service.open``.

    Attributes:
        router: chooses, and learns from every prompt that two or more candidates answered.
        parts: the study that says what the candidates are, how they are judged and what may be
            spent.
        run_id: id of the log, which `show`, `report` and `export` read.
    """

    def __init__(
        self,
        parts: Parts,
        router: Router,
        entries: Entries,
        replies: Replies,
        embedder: Embedder | None,
        log: RoundLog,
        clock: Clock,
    ) -> None:
        self.parts = parts
        self.router = router
        self.run_id = log.run_id
        self._log = log
        self._entries = entries
        self._ledger = entries.ledger
        self._roster = Roster(parts.config.limits.in_flight)
        self._roster.add(list(entries.by_name.values()))
        self._evaluator = Evaluator(replies, entries.workshop.panel, self._ledger)
        self._embedder = embedder
        self._clock = clock
        self._began = clock.now()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: str | Path | Mapping[str, Json] | LoadedStudy,
        *,
        router: str = "default",
        settings: RouterSettings | None = None,
        overrides: Mapping[str, Json] | None = None,
        examples: Sequence[Example] | None = None,
        options: Options | None = None,
    ) -> AsyncIterator[Service]:
        """Open a study's candidates behind a router; what is learnt is saved at the end.

        Args:
            source: path of a study file, or what one holds, or a study that is loaded already.
            router: name of the router in the study's store; made if it is not there, of the
                study's candidates.
            settings: how a new router learns.
            overrides: values that replace the source's, by dotted key.
            examples: the prompts, if they are not to be read from the study's dataset.
            options: how to open it.

        Raises:
            ConfigError: the configuration is wrong, or the router was made for other candidates or
                with other settings.
            StoreError: the store cannot be used.
        """
        options = options or Options()
        loaded = loaded_study(source, overrides or {})
        parts = assemble(loaded, catalog_of(loaded, options), examples=examples)
        entries = await asyncio.to_thread(Entries, parts, options)  # digests weights
        async with AsyncExitStack() as stack:
            where = store_of(loaded, options)
            store = await stack.enter_async_context(await SqlStore.connect(where))
            there = await Router.exists(router, store)
            candidates = () if there else entries.routed()
            opening = Router.open(router, store, candidates, settings)
            opened = await stack.enter_async_context(opening)
            entries.check_known(opened)
            replies = Replies(store, entries.ledger, use_cache=options.use_cache)
            name = opened.settings.embedder
            embedder = embedder_of(name, parts, replies, entries.ledger, options) if name else None
            base, ready = relative(loaded.base_dir, where), list(entries.by_name.values())
            events = first_events(parts, ready, base, options.clock)
            log = await RoundLog.begin(store, parts, events, router, options.clock)
            service = cls(parts, opened, entries, replies, embedder, log, options.clock)
            await stack.enter_async_context(log.closed_with(entries.ledger, replies))
            for provider in parts.fleet.providers:
                await stack.enter_async_context(provider)
            yield service

    @property
    def spent(self) -> Spend:
        """What was spent so far."""
        return self._ledger.spent

    async def serve(self, example: Example, k: int) -> Served | None:
        """Let the k candidates that the router chooses answer a prompt, and learn who was best.

        Fewer answer where the budget cannot pay k.

        Args:
            example: the prompt; its reference, if the judge needs one.
            k: candidates to run, >= 1. The router learns only where two or more were measured.

        Returns:
            The answers, or None if the budget cannot pay a single one.

        Raises:
            ConfigError: k is more than there are candidates.
            ProviderError: the embedder cannot be called.
            StoreError: a reply could not be stored.
        """
        most = len(self._entries.by_name)
        if not 1 <= k <= most:
            raise ConfigError(f"k must be in 1..{most}, the study's candidates, got {k}")
        text = text_of(example)
        try:
            example = await self._described(text, example)
        except BudgetEndedError:
            jobs = {}
        else:
            jobs = self._jobs(text, example, k)
        if not jobs:
            self._log.end = self._why_refused()
            return None
        await self._logged(example, jobs)
        results = await self._evaluated(jobs)
        answers = tuple(self._answer(name, result) for name, result in results.items())
        return Served(example, answers, self._learn(text, example, answers))

    def _why_refused(self) -> End:
        """Why no candidate can answer."""
        is_broken = len(self._roster.broken()) == len(self._entries.by_name)
        return End.FAILURES if is_broken else End.BUDGET

    async def _described(self, text: str, example: Example) -> Example:
        """The example with its prompt's vector as features, if the router goes by that."""
        if self._embedder is None or not self._able():
            return example
        return replace(example, features=await self._embedder.vector(text))

    def _able(self) -> list[str]:
        """Candidates that the budget can pay and that can be called; none once time is over."""
        pull, cap = Spend(pulls=1), self._ledger.budget.seconds
        if cap is not None and self._clock.now() - self._began >= cap:
            return []
        return [
            name
            for name, entry in self._entries.by_name.items()
            if entry.broken is None and self._ledger.affords(entry.bound + pull)
        ]

    def _jobs(self, text: str, example: Example, k: int) -> dict[str, Job]:
        """Let the router choose, and set aside what the answers cost, as far as the budget goes."""
        able = self._able()
        if not able:
            return {}
        features, panel = example.features, self._evaluator.panel
        jobs: dict[str, Job] = {}
        for name in self.router.choose(text, min(k, len(able)), features=features, among=able):
            quote = quoted(self._entries.by_name[name], example, panel)
            seq = self._log.next_seq + len(jobs)
            if (job := quote.job(seq, self._ledger, self._waiting_place)) is not None:
                jobs[name] = job
        return jobs

    async def _logged(self, example: Example, jobs: Mapping[str, Job]) -> None:
        """Log who is asked before a byte leaves."""
        rule = self.router.settings.rule if self.router.ready else "random"
        try:
            await self._log.asked(example, list(jobs), rule)
        except BaseException:
            for job in jobs.values():
                self._evaluator.let_go(job)
            raise

    def _waiting_place(self, entry: Entry) -> Slot:
        """A place that is still to be waited for."""
        return Slot.outside(*entry.line.gates(entry.candidate.model), self._roster.gate)

    async def _evaluated(self, jobs: Mapping[str, Job]) -> dict[str, Outcome | Deferred]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {n: group.create_task(self._evaluate(job)) for n, job in jobs.items()}
        except ExceptionGroup as several:  # a task group wraps even a single error
            raise several.exceptions[0] from several
        return {name: task.result() for name, task in tasks.items()}

    async def _evaluate(self, job: Job) -> Outcome | Deferred:
        try:
            await job.slot.reenter()
        except BaseException:
            self._evaluator.let_go(job)
            raise
        result = await self._evaluator.evaluate(job, _nothing)
        if isinstance(result, Deferred):
            note_trouble(self._roster, job, result)
        else:
            self._log.told(job.seq, result)
        return result

    def _answer(self, name: str, result: Outcome | Deferred) -> Answer:
        if isinstance(result, Deferred):
            cost = usd((result.spend + result.judge_spend).usd_nanos)
            return Answer(name, None, None, cost, str(result.error or "the budget ended"))
        _, score = judged(result, self.parts.config.limits.failed_score)
        read = result.answer if isinstance(result, Scored) else None
        problem = result.message if isinstance(result, Failed) else None
        return Answer(name, score, read, usd(result.spend.usd_nanos), problem)

    def _learn(self, text: str, example: Example, answers: Sequence[Answer]) -> bool:
        scores = {a.candidate: a.score for a in answers if a.score is not None}
        if not scores:
            return False
        spent = {answer.candidate: answer.usd for answer in answers if answer.candidate in scores}
        known = {
            name: cost
            for name, cost in spent.items()
            if self._entries.by_name[name].usd is not None
        }
        return self.router.learn(
            Record(text, tuple(scores), scores=scores, usd=known, features=example.features)
        )


def _nothing() -> None:
    """The service does not wait for a free place at a provider."""
