"""A live run: log, pairs, candidates, ledger and loop, made of a study's parts and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property

from bestarm_agent.config.study.explicit_candidates import explicit_candidate
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.limits.wait_reasons import Wait
from bestarm_agent.engine.results.standing import LiveState, Standing, build_standing
from bestarm_agent.engine.run.candidate_pool import CandidatePool, ReadyCandidate
from bestarm_agent.engine.run.event_log import EventLog
from bestarm_agent.engine.run.replay import RunReplay, Size
from bestarm_agent.engine.run.run_loop import RunLoop
from bestarm_agent.engine.run.stopping import Rules
from bestarm_agent.engine.setup.open_run import Options, check_new
from bestarm_agent.engine.setup.parts import CandidateFactory, StudyParts, check_prices
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.store.store import RunLog, Store


class LiveRun:
    """One run with all that it needs."""

    def __init__(
        self,
        parts: StudyParts,
        factory: CandidateFactory,
        replay: RunReplay,
        store: Store,
        log: RunLog,
        options: Options,
        history: HistoryModel | None,
    ) -> None:
        self.id = log.run_id  # the run's id in the store
        self.ledger = factory.ledger
        self.factory = factory
        self._parts = parts
        self._clock = options.clock
        self._history = history
        self.pairs = replay.pairs
        self._size = replay.size
        self._objective = replay.objective
        self.event_log = EventLog(log, replay.state, self._objective, replay.trajectory)
        self._store = store
        self._use_cache = options.use_cache
        self._providers = AsyncExitStack()

    def fit_to_size(self) -> None:
        """Rebuild the source of pairs if the problem changed before the first pair was asked.

        A resumed run rebuilds it for the size at the first ask, so a live one must begin alike.
        """
        state = self.event_log.state
        n_candidates, n_examples = len(state.candidates), len(state.example_ids)
        costs, slices = tuple(state.costs), state.slices
        size = Size(n_candidates, n_examples, state.budget, costs, slices)
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
        pool = CandidatePool(limits.in_flight)
        pool.add(self.factory.ready)
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

    def add(self, specs: Sequence[Mapping[str, Json] | Candidate]) -> list[Candidate]:
        """Let candidates join; see ``Study.add_candidates``."""
        candidates = [self._candidate(spec) for spec in specs]
        check_new(candidates, self.event_log.state.candidates)
        entries = self.factory.entries(candidates)
        check_prices(self._parts.config, entries)
        self.check_started(entries)
        self.loop.add_candidates(entries)
        self.fit_to_size()
        return candidates

    def _candidate(self, spec: Mapping[str, Json] | Candidate) -> Candidate:
        if isinstance(spec, Candidate):
            return spec
        return explicit_candidate(self._parts.config, spec, self._parts.prompts)

    def standing(self) -> Standing:
        """Return where the run stands now."""
        loop = self.loop
        live = LiveState(
            in_flight=loop.in_flight,
            waits=self._waits(),
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

    def _waits(self) -> tuple[Wait, ...]:
        return self.factory.board.summary(self._clock.now()) if self.loop.is_running else ()

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
            if id(provider) not in self._parts.providers.started:
                self._parts.providers.started.add(id(provider))
                await self._providers.enter_async_context(provider)

    def check_started(self, entries: Sequence[ReadyCandidate]) -> None:
        """Refuse candidates whose provider was not started, if the run is under way."""
        if not self.loop.is_running:
            return
        for entry in entries:
            if id(entry.client.provider) not in self._parts.providers.started:
                raise ConfigError(
                    f"{entry.model} needs a provider that was not started with this run; add "
                    f"candidate {entry.candidate.label!r} while no run() is under way"
                )
