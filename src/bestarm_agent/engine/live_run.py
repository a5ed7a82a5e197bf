"""A live run: log, pairs, candidates, ledger and loop, made of a study's parts and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property

from bestarm_agent.domain.events import Event
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.build_standing import LiveState, build_standing
from bestarm_agent.engine.results.objectives import track_objective
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.candidate_pool import CandidatePool, ReadyCandidate
from bestarm_agent.engine.run.event_log import EventLog, Size, initial_size, replay
from bestarm_agent.engine.run.instructions import InstructionReader
from bestarm_agent.engine.run.run_loop import RunLoop
from bestarm_agent.engine.run.stopping import Rules
from bestarm_agent.engine.setup.candidates import PreparedCandidates
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.models.history_validation import HistoryModel
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.run_state import fold


class LiveRun:
    """One run with all that it needs."""

    def __init__(
        self,
        parts: StudyParts,
        prepared: PreparedCandidates,
        pairs: PairSource,
        store: RunStore,
        log: RunLog,
        events: Sequence[Event],
        options: Options,
        history: HistoryModel | None,
    ) -> None:
        self.id = log.run_id  # the run's id in the store
        self.ledger = prepared.ledger
        self.factory = prepared.factory
        self._parts = parts
        self._clock = options.clock
        self._history = history
        self._board = prepared.board
        self._size = initial_size(events)
        replay(events, pairs)
        objective = parts.config.objective
        self._objective = None
        if objective.by_price:
            self._objective = track_objective(objective, parts.config.selector, pairs, events)
        self.event_log = EventLog(
            log, fold(events), None if self._objective is None else self._objective.book
        )
        self.pairs = pairs  # as given, fed the log
        self._entries = prepared.entries
        self._store = store
        self._use_cache = options.use_cache
        self._providers = AsyncExitStack()
        self._started: set[int] = set()

    def fit_to_size(self) -> None:
        """Make the source of pairs anew if the problem changed before the first pair was asked.

        A resumed run rebuilds it for the size at the first ask, so a live one must begin alike.
        """
        state = self.event_log.state
        n_candidates, n_examples = len(state.candidates), len(state.example_ids)
        size = Size(n_candidates, n_examples, state.budget, tuple(state.costs))
        if not state.asks and size != self._size:
            self._size = size
            self.pairs = self._parts.mode.pairs(size, state.candidates, self._history)
            self.loop.selector = self.pairs

    @cached_property
    def replies(self) -> ReplyCache:
        """The reply cache, and the way to the providers."""
        return ReplyCache(self._store, self.ledger, use_cache=self._use_cache)

    @cached_property
    def loop(self) -> RunLoop:
        """The run loop; made when the run goes on, not when it is opened."""
        limits = self._parts.config.limits
        pool = CandidatePool(limits.in_flight, self.factory.judge_client.turns)
        pool.add(self._entries)
        return RunLoop(
            event_log=self.event_log,
            selector=self.pairs,
            pool=pool,
            examples=self._parts.examples,
            evaluator=PairEvaluator(self.replies, self.factory.judge_client, self.ledger),
            ledger=self.ledger,
            clock=self._clock,
            rules=Rules(limits.failed_score, limits.max_failed_share, self._objective),
        )

    def fresh_pairs(self, events: Sequence[Event]) -> PairSource:
        """Make the source of pairs anew, before it was fed any of the log."""
        candidates = self.event_log.state.candidates
        return self._parts.mode.pairs(initial_size(events), candidates, self._history)

    async def run(self) -> None:
        """Run the loop, which obeys instructions left in the store meanwhile."""
        reader = InstructionReader(self._store, self.id, self._clock)
        async with reader.obeyed_by(self.loop):
            await self.loop.run()

    def standing(self) -> Standing:
        """Return where the run stands now."""
        loop = self.loop
        live = LiveState(
            in_flight=loop.in_flight,
            waits=self._board.summary(self._clock.now()) if loop.in_flight else (),
            seconds=loop.seconds,
            broken=loop.pool.broken(),
        )
        return build_standing(
            self.event_log.state,
            self.pairs,
            run_id=self.id,
            budget=self.ledger.budget,
            spent=self.ledger.spent,
            live=live,
            objective=self._objective,
        )

    @asynccontextmanager
    async def held_open(self) -> AsyncIterator[None]:
        """Hold the providers open, then write what is left to write."""
        async with self._providers:
            await self.start_providers()
            yield
        await self.event_log.flush()

    async def start_providers(self) -> None:
        """Start those that were not started before."""
        for provider in self._parts.providers.in_use:
            if id(provider) not in self._started:
                self._started.add(id(provider))
                await self._providers.enter_async_context(provider)

    def check_started(self, entries: Sequence[ReadyCandidate]) -> None:
        """Refuse candidates whose provider was not started, if the run is under way."""
        if not self.loop.is_running:
            return
        for entry in entries:
            if id(entry.client.provider) not in self._started:
                raise ConfigError(
                    f"{entry.model} needs a provider that was not started with this run; add "
                    f"candidate {entry.candidate.label!r} while no run() is under way"
                )
