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

from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import BudgetEndedError, Call
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.run.candidate_pool import CandidatePool
from bestarm_agent.engine.run.event_log import judged
from bestarm_agent.engine.run.stopping import End
from bestarm_agent.engine.setup.candidates import prepare
from bestarm_agent.engine.setup.open_run import (
    Options,
    catalog_of,
    first_events,
    loaded_study,
    relative,
    store_of,
)
from bestarm_agent.engine.setup.study_parts import StudyParts, assemble
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.preselection.answers import Answer, Served
from bestarm_agent.preselection.embedder import Embedder, embedder_of, text_of
from bestarm_agent.preselection.feedback import Record
from bestarm_agent.preselection.mode import open_preselection
from bestarm_agent.preselection.router import Router
from bestarm_agent.preselection.serving_log import RoundLog
from bestarm_agent.preselection.settings import RoutedCandidate, RouterSettings
from bestarm_agent.store.store import open_store


class RoutedCandidates:
    """A study's candidates ready to be called, and the budget that they share."""

    def __init__(self, parts: StudyParts, options: Options) -> None:
        self.ledger = Ledger(parts.budget)
        prepared = prepare(parts, parts.candidates, self.ledger, options.clock)
        self.factory = prepared.factory
        self.by_name = {entry.candidate.label: entry for entry in prepared.entries}
        if len(self.by_name) < len(parts.candidates):
            labels = [candidate.label for candidate in parts.candidates]
            twice = next(label for label in labels if labels.count(label) > 1)
            raise ConfigError(f"two candidates are called {twice!r}; a router needs labels apart")

    def facts(self) -> list[RoutedCandidate]:
        """Return the candidates as a new router knows them; a price is the most a call can cost."""
        return [
            RoutedCandidate(name, entry.usd, family=entry.candidate.model)
            for name, entry in self.by_name.items()
        ]

    def check_known(self, router: Router) -> None:
        """Check that a router knows them all; raises ConfigError."""
        known = [candidate.name for candidate in router.candidates]
        for name in self.by_name:
            if name not in known:
                raise ConfigError(
                    f"router {router.name!r} does not know the study's candidate {name!r}; "
                    f"{nearest(name, known)}; `bestarm-agent preselect add` lets it join"
                )


class Service:
    """Answers prompts by the candidates that a router chooses. Made by ``Service.open``."""

    def __init__(
        self,
        parts: StudyParts,
        router: Router,
        entries: RoutedCandidates,
        replies: ReplyCache,
        embedder: Embedder | None,
        log: RoundLog,
        clock: Clock,
    ) -> None:
        self.parts = parts
        self.router = router
        self.run_id = log.run_id  # id of the log, which `show`, `report` and `export` read
        self._log = log
        self._entries = entries
        self._ledger = entries.ledger
        self._pool = CandidatePool(parts.config.limits.in_flight)
        self._pool.add(list(entries.by_name.values()))
        self._evaluator = PairEvaluator(replies, entries.factory.judge_client, self._ledger)
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
        loaded = loaded_study(source, {**(overrides or {}), "repeats": 1, "confirm": None})
        parts = assemble(loaded, catalog_of(loaded, options), open_preselection, examples=examples)
        entries = await asyncio.to_thread(RoutedCandidates, parts, options)  # digests weights
        async with AsyncExitStack() as stack:
            where = store_of(loaded, options)
            store = await stack.enter_async_context(open_store(where))
            there = await Router.exists(router, store)
            candidates = () if there else entries.facts()
            opening = Router.open(router, store, candidates, settings)
            opened = await stack.enter_async_context(opening)
            entries.check_known(opened)
            replies = ReplyCache(store, entries.ledger, use_cache=options.use_cache)
            name = opened.settings.embedder
            embedder = embedder_of(name, parts, replies, entries.ledger, options) if name else None
            base, ready = relative(loaded.base_dir, where), list(entries.by_name.values())
            events = first_events(parts, ready, base, options.clock)
            log = await RoundLog.begin(store, parts, events, router, options.clock)
            service = cls(parts, opened, entries, replies, embedder, log, options.clock)
            await stack.enter_async_context(log.closed_with(entries.ledger, replies))
            for provider in parts.providers.in_use:
                await stack.enter_async_context(provider)
            yield service

    @property
    def spent(self) -> Spend:
        """The spend so far."""
        return self._ledger.spent

    @property
    def priced(self) -> bool:
        """Return whether the price of every candidate is known."""
        return all(entry.usd is not None for entry in self._entries.by_name.values())

    async def serve(self, example: Example, k: int) -> Served | None:
        """Let the k candidates that the router chooses answer a prompt, and learn who was best.

        Fewer answer where the budget cannot pay k; None if it cannot pay a single one. The router
        learns only where two or more were measured. The example holds a reference, if the judge
        needs one.

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
            calls = {}
        else:
            calls = self._calls(text, example, k)
        if not calls:
            self._log.end = self._why_refused()
            return None
        first = self._log.next_seq
        await self._logged(example, calls)
        outcomes = await self._evaluated(first, example, calls)
        answers = tuple(self._answer(n, calls[n], outcome) for n, outcome in outcomes.items())
        return Served(example, answers, self._learn(text, example, answers))

    def _why_refused(self) -> End:
        is_broken = len(self._pool.broken()) == len(self._entries.by_name)
        return End.FAILURES if is_broken else End.BUDGET

    async def _described(self, text: str, example: Example) -> Example:
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

    def _calls(self, text: str, example: Example, k: int) -> dict[str, Call]:
        """Let the router choose, and reserve what the answers cost, as far as the budget goes."""
        able = self._able()
        if not able:
            return {}
        features = example.features
        calls: dict[str, Call] = {}
        for name in self.router.choose(text, min(k, len(able)), features=features, among=able):
            candidate = self._entries.by_name[name]
            call = candidate.call(example)
            judging = self._evaluator.judge_client.bound(example)
            if self._evaluator.reserve(call, call.bound(), judging):
                gates = candidate.client.gates(candidate.candidate.model)
                call.slot = Slot.outside(*gates, self._pool.gate)
                calls[name] = call
        return calls

    async def _logged(self, example: Example, calls: Mapping[str, Call]) -> None:
        """Log who is asked before a byte leaves."""
        rule = self.router.settings.rule if self.router.ready else "random"
        try:
            await self._log.asked(example, list(calls), rule)
        except BaseException:
            for call in calls.values():
                call.let_go()
            raise

    async def _evaluated(
        self, first: int, example: Example, calls: Mapping[str, Call]
    ) -> dict[str, Outcome | None]:
        """Evaluate the calls of the asks from number ``first`` on, all at once."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(self._evaluate(seq, name, example, call))
                    for seq, (name, call) in enumerate(calls.items(), start=first)
                }
        except ExceptionGroup as several:  # a task group wraps even a single error
            raise several.exceptions[0] from several
        return {name: task.result() for name, task in tasks.items()}

    async def _evaluate(self, seq: int, name: str, example: Example, call: Call) -> Outcome | None:
        try:
            await call.slot.reenter()
        except BaseException:
            call.let_go()
            raise
        outcome = await self._evaluator.evaluate(call, example)
        if outcome is not None:
            self._log.told(seq, outcome)
        elif call.obstacle is not None:
            self._pool.note_obstacle(self._entries.by_name[name], call.obstacle)
        return outcome

    def _answer(self, name: str, call: Call, outcome: Outcome | None) -> Answer:
        if outcome is None:
            cost = self._dollars(name, call.pair_spend)
            return Answer(name, None, None, cost, str(call.obstacle or "the budget ended"))
        _, score = judged(outcome, self.parts.config.limits.failed_score)
        read = outcome.answer if isinstance(outcome, Scored) else None
        problem = outcome.message if isinstance(outcome, Failed) else None
        return Answer(name, score, read, self._dollars(name, outcome.spend), problem)

    def _dollars(self, name: str, spend: Spend) -> float | None:
        return None if self._entries.by_name[name].usd is None else usd(spend.usd_nanos)

    def _learn(self, text: str, example: Example, answers: Sequence[Answer]) -> bool:
        scores = {a.candidate: a.score for a in answers if a.score is not None}
        if not scores:
            return False
        costs = {a.candidate: a.usd for a in answers if a.candidate in scores and a.usd is not None}
        return self.router.learn(
            Record(text, tuple(scores), scores=scores, usd=costs, features=example.features)
        )
