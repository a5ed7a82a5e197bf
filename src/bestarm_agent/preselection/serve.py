"""Prompts answered end to end: the router chooses, the candidates answer, the judge says who won.

Calls are made as in a run: under the study's budget, gates and rate limits, with its retries, and
every reply is stored before anything else happens to it. What is asked, and what becomes of it, is
logged as in a run, too, so that `list`, `show`, `report`, `export` and `--history` can read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event, Started, Stopped, Told
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.engine.call import ReplyCache
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.evaluate import Evaluator, Pair
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord, examples_added, score_of
from bestarm_agent.engine.setup.open_run import (
    Options,
    catalog_of,
    first_events,
    loaded_study,
    relative,
    store_of,
)
from bestarm_agent.engine.setup.parts import CandidateFactory, StudyParts, assemble
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.preselection.mode import ROUTED, Preselection, open_preselection
from bestarm_agent.preselection.records import Record, RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router
from bestarm_agent.store.store import Store, open_store

_USUAL_FIELDS = ("prompt", "text", "question", "input")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one candidate to a prompt."""

    candidate: str  # its label
    # the judge's, in [0, 1]; the floor score where the candidate failed; None where it could not be
    # measured, or was not called because the budget ended
    score: float | None
    answer: str | None  # what the judge read out of the reply, or None
    usd: float | None  # dollars that it cost, judging included; None where the price is not known
    problem: str | None = None  # why there is no reply or no score, or None


@dataclass(frozen=True, slots=True)
class Served:
    """The answers to one prompt."""

    example: Example  # the prompt
    answers: tuple[Answer, ...]  # of the candidates chosen, in the order of choice
    learnt: bool  # whether the router learned from it

    @property
    def winner(self) -> Answer | None:
        """The answer of the highest score; the one chosen first among equals, None without any."""
        scored = [answer for answer in self.answers if answer.score is not None]
        return max(scored, key=lambda answer: answer.score or 0.0, default=None)


class Service:
    """Answers prompts by the candidates that a router chooses. Made by ``Service.open``."""

    def __init__(
        self,
        parts: StudyParts,
        router: Router,
        ledger: Ledger,
        prepared: CandidateFactory,
        replies: ReplyCache,
        log: RoundLog,
        clock: Clock,
    ) -> None:
        self.parts = parts
        self.router = router
        self.run_id = log.run_id  # id of the log, which `show`, `report` and `export` read
        self._log = log
        self._ledger = ledger
        self._entries = {entry.candidate.label: entry for entry in prepared.ready}
        self._pool = CandidatePool(parts.config.limits.in_flight)
        self._pool.add(list(prepared.ready))
        self._evaluator = Evaluator(replies, prepared.judge_client)
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
        ledger = Ledger(parts.budget)
        prepared = await asyncio.to_thread(  # digests weights
            CandidateFactory, parts, ledger, options.clock, parts.candidates
        )
        candidates = _routed(prepared)
        async with AsyncExitStack() as stack:
            where = store_of(loaded, options)
            store = await stack.enter_async_context(open_store(where))
            there = await Router.exists(router, store)
            opening = Router.open(router, store, () if there else candidates, settings)
            opened = await stack.enter_async_context(opening)
            _check_known(candidates, opened)
            replies = ReplyCache(store, ledger, use_cache=options.use_cache)
            base, ready = relative(loaded.base_dir, where), list(prepared.ready)
            events = first_events(parts, ready, base, options.clock)
            log = await RoundLog.begin(store, parts, events, router, options.clock)
            service = cls(parts, opened, ledger, prepared, replies, log, options.clock)
            await stack.enter_async_context(log.closed_with(ledger, replies))
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
        return all(entry.usd is not None for entry in self._entries.values())

    async def serve(self, example: Example, k: int) -> Served | None:
        """Let the k candidates that the router chooses answer a prompt, and learn who was best.

        Fewer answer where the budget cannot pay k; None if it cannot pay a single one. The router
        learns only where two or more were measured. The example holds a reference, if the judge
        needs one.

        Raises:
            ConfigError: k is more than there are candidates.
            StoreError: a reply could not be stored.
        """
        most = len(self._entries)
        if not 1 <= k <= most:
            raise ConfigError(f"k must be in 1..{most}, the study's candidates, got {k}")
        text = text_of(example)
        pairs = self._calls(text, example, k)
        if not pairs:
            is_broken = len(self._pool.broken()) == most
            self._log.end = End.FAILURES if is_broken else End.BUDGET
            return None
        first = self._log.next_seq
        await self._logged(example, pairs)
        outcomes = await self._evaluated(first, example, pairs)
        answers = tuple(self._answer(n, pairs[n], outcome) for n, outcome in outcomes.items())
        return Served(example, answers, self._learn(text, example, answers))

    def _able(self) -> list[str]:
        """Candidates that the budget can pay and that can be called; none once time is over."""
        pull, cap = Spend(pulls=1), self._ledger.budget.seconds
        if cap is not None and self._clock.now() - self._began >= cap:
            return []
        return [
            name
            for name, entry in self._entries.items()
            if entry.broken is None and self._ledger.affords(entry.bound + pull)
        ]

    def _calls(self, text: str, example: Example, k: int) -> dict[str, Pair]:
        """Let the router choose, and reserve what the answers cost, as far as the budget goes."""
        able = self._able()
        if not able:
            return {}
        pairs: dict[str, Pair] = {}
        for name in self.router.choose(text, min(k, len(able)), among=able):
            candidate = self._entries[name]
            pair = candidate.pair(example)
            judging = self._evaluator.judge_client.bound(example)
            if pair.reserve(pair.call.bound(), judging):
                gates = candidate.client.gates(candidate.candidate.model)
                pair.call.slot = Slot.outside(*gates, self._pool.gate)
                pairs[name] = pair
        return pairs

    async def _logged(self, example: Example, pairs: Mapping[str, Pair]) -> None:
        """Log who is asked before a byte leaves."""
        rule = self.router.settings.rule if self.router.ready else "random"
        try:
            await self._log.asked(example, list(pairs), rule)
        except BaseException:
            for pair in pairs.values():
                pair.let_go()
            raise

    async def _evaluated(
        self, first: int, example: Example, pairs: Mapping[str, Pair]
    ) -> dict[str, Outcome | None]:
        """Evaluate the pairs of the asks from number ``first`` on, all at once."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    name: group.create_task(self._evaluate(seq, name, pair))
                    for seq, (name, pair) in enumerate(pairs.items(), start=first)
                }
        except ExceptionGroup as several:  # a task group wraps even a single error
            raise several.exceptions[0] from several
        return {name: task.result() for name, task in tasks.items()}

    async def _evaluate(self, seq: int, name: str, pair: Pair) -> Outcome | None:
        try:
            await pair.call.slot.reenter()
        except BaseException:
            pair.let_go()
            raise
        outcome = await self._evaluator.evaluate(pair)
        if outcome is not None:
            self._log.told(seq, outcome)
        elif pair.obstacle is not None:
            self._pool.note_obstacle(self._entries[name], pair.obstacle)
        return outcome

    def _answer(self, name: str, pair: Pair, outcome: Outcome | None) -> Answer:
        if outcome is None:
            cost = self._dollars(name, pair.spend)
            return Answer(name, None, None, cost, str(pair.obstacle or "the budget ended"))
        score = score_of(outcome, self.parts.config.limits.failed_score)
        read = outcome.answer if isinstance(outcome, Scored) else None
        problem = outcome.message if isinstance(outcome, Failed) else None
        return Answer(name, score, read, self._dollars(name, outcome.spend), problem)

    def _dollars(self, name: str, spend: Spend) -> float | None:
        return None if self._entries[name].usd is None else usd(spend.usd_nanos)

    def _learn(self, text: str, example: Example, answers: Sequence[Answer]) -> bool:
        scores = {a.candidate: a.score for a in answers if a.score is not None}
        if not scores:
            return False
        costs = {a.candidate: a.usd for a in answers if a.candidate in scores and a.usd is not None}
        return self.router.learn(
            Record(
                prompt=text,
                shown=tuple(scores),
                scores=scores,
                usd=costs,
            )
        )


class RoundLog:
    """Writes what happens to a run's log, from the first prompt to the last.

    Made by ``RoundLog.begin``. A pair is logged at most once, so an example that comes again joins
    as another column, and so does one that is not of the study's dataset.
    """

    def __init__(self, record: RunRecord, run_id: str, clock: Clock, failed_score: float) -> None:
        self.run_id = run_id
        self.end: End | None = None
        self._record = record
        self._clock = clock
        self._failed_score = failed_score
        self._began = clock.now()
        state = record.state
        self._row = {candidate.label: i for i, candidate in enumerate(state.candidates)}
        self._unused: dict[tuple[str, str], deque[int]] = {}
        known = zip(state.example_ids, state.example_digests, strict=True)
        for column, example in enumerate(known):
            self._unused.setdefault(example, deque()).append(column)

    @classmethod
    async def begin(
        cls, store: Store, parts: StudyParts, events: Sequence[Event], router: str, clock: Clock
    ) -> RoundLog:
        """Begin a log; raise StoreError if it could not be written."""
        started, *others = events
        if not isinstance(started, Started) or not isinstance(started.config, Mapping):
            raise ValueError(f"a log begins with Started and a configuration, got {started}")
        config: Json = {**started.config, ROUTED: {"router": router}}
        name = f"{started.name}-{ROUTED}"
        log = await store.create(name)
        record = RunRecord(Preselection().pairs, lambda _pairs: None, log)
        for event in (replace(started, name=name, config=config), *others):
            record.record(event)
        await record.flush()
        return cls(record, log.run_id, clock, parts.config.limits.failed_score)

    @property
    def next_seq(self) -> int:
        """The number of the next ask."""
        return len(self._record.state.asks)

    async def asked(self, example: Example, candidates: Sequence[str], rule: str) -> None:
        """Log that candidates are asked, under the next numbers; durable on return."""
        unused = self._unused.get((example.id, example.digest))
        if unused:
            column = unused.popleft()
        else:
            column = len(self._record.state.example_ids)
            self._record.record(examples_added([example]))
        for name in candidates:
            asked = Asked(self.next_seq, self._row[name], column, None, rule)
            self._record.record(asked, is_known=False)
        await self._record.flush()

    def told(self, seq: int, outcome: Outcome) -> None:
        """Log what became of an ask."""
        score = score_of(outcome, self._failed_score)
        self._record.record(Told(seq, outcome, score, self._seconds()))

    @asynccontextmanager
    async def closed_with(self, ledger: Ledger, replies: ReplyCache) -> AsyncIterator[None]:
        """Log at the end of the block why it ended, with the ledger and the replies' remarks."""
        end = End.INTERRUPTED
        try:
            yield
            end = self.end or End.SERVED
        except Exception:
            end = End.ERROR
            raise
        finally:
            told = (self._seconds(), ledger.close(), replies.remarks())
            self._record.record(Stopped(self._clock.utc(), end.value, *told))
            await self._record.flush()

    def _seconds(self) -> float:
        return self._clock.now() - self._began


def text_of(example: Example) -> str:
    """Return an example's only input, or the one that is usually the prompt.

    Raises:
        ConfigError: there are several inputs, none of them called ``prompt``, ``text``,
            ``question`` or ``input``.

    Example:
        >>> text_of(Example("1", {"id": 7, "question": "2+2?"}))
        '2+2?'
    """
    fields = example.inputs
    usual = [name for name in _USUAL_FIELDS if name in fields]
    if len(fields) == 1 or usual:
        return str(fields[usual[0]] if usual else next(iter(fields.values())))
    raise ConfigError(
        f"example {example.id!r} has the fields {', '.join(fields)}, and a router looks at one "
        f"text: call it {' or '.join(f'`{name}`' for name in _USUAL_FIELDS)}"
    )


def _routed(prepared: CandidateFactory) -> list[RoutedCandidate]:
    """Return the candidates as a new router knows them; a price is the most a call can cost."""
    labels = [entry.candidate.label for entry in prepared.ready]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ConfigError(f"two candidates are called {twice!r}; a router needs labels apart")
    return [RoutedCandidate(name=entry.candidate.label, usd=entry.usd) for entry in prepared.ready]


def _check_known(candidates: Sequence[RoutedCandidate], router: Router) -> None:
    known = [candidate.name for candidate in router.candidates]
    for candidate in candidates:
        if candidate.name not in known:
            raise ConfigError(
                f"router {router.name!r} does not know the study's candidate {candidate.name!r}; "
                f"{nearest(candidate.name, known)}; train a router of another name with it"
            )
