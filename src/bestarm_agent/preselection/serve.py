"""Prompts answered end to end: the router chooses, the candidates answer, the judge says who won.

1. Budget and outages say who is able; the router chooses k of them (``_reserved``).
2. What their calls and the judging of them can cost is set aside, as in a run.
3. Who is asked is logged, durably (``_logged``), before a byte leaves.
4. All answer at once (``_evaluate``): with the gates, rate limits, retries and stored replies of a
   run. Each outcome is logged.
5. The router learns from the scores (``_learn``).

The log is one of a run, so that `list`, `show`, `report`, `export` and `--history` can read it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.events import Asked, Stopped, Told
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.domain.values import Example, Json
from bestarm_agent.engine.evaluate import Evaluation, Evaluator
from bestarm_agent.engine.limits.gates import Slot
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import examples_added, score_of
from bestarm_agent.engine.run import Run, new_run
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.options import Options, changed_study
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.errors import ConfigError
from bestarm_agent.plugins import in_thread
from bestarm_agent.preselection.mode import ROUTED, ROUTING, SUFFIX
from bestarm_agent.preselection.records import Record, RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router

_USUAL_FIELDS = ("prompt", "text", "question", "input")


@dataclass(frozen=True, slots=True)
class ServedAnswer:
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
    answers: tuple[ServedAnswer, ...]  # of the candidates chosen, in the order of choice
    learnt: bool  # whether the router learned from it

    @property
    def winner(self) -> ServedAnswer | None:
        """The answer of the highest score; the one chosen first among equals, None without any."""
        scored = [answer for answer in self.answers if answer.score is not None]
        return max(scored, key=lambda answer: answer.score or 0.0, default=None)


class Service:
    """Answers prompts by the candidates that a router chooses. Made by ``Service.open``.

    Attributes:
        run_id: id of the log, which `show`, `report` and `export` read.
    """

    def __init__(self, run: Run, router: Router) -> None:
        self.parts, self.run_id, self.router = run.parts, run.id, router
        self._run, self._ledger, self._clock = run, run.ledger, run.options.clock
        self._entries = {entry.candidate.label: entry for entry in run.candidates.ready}
        self._row = {label: row for row, label in enumerate(self._entries)}
        self._pool = CandidatePool(run.parts.config.limits.in_flight)
        self._pool.add(run.candidates.ready)
        self._evaluator = Evaluator(run.replies, run.candidates.judge_client)
        self._began = self._clock.now()
        # columns of the dataset's examples that were not served yet
        self._columns = {(row.id, row.digest): j for j, row in enumerate(run.parts.examples)}
        self._end = End.SERVED

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
        fixed: Mapping[str, Json] = {"repeats": 1, "confirm": None, "selector.history": ()}
        loaded = changed_study(options.load(source, overrides), fixed, is_own=True)
        parts = assemble(loaded, options.catalog(loaded), examples=examples)
        ready = await in_thread(ReadyCandidates, parts, options.clock)  # digests weights
        study = changed_study(loaded, {"name": f"{loaded.config.name}{SUFFIX}"}, is_own=True)
        parts = replace(parts, study=study, mode=ROUTING)
        candidates = [
            RoutedCandidate(name=entry.candidate.label, usd=entry.usd) for entry in ready.ready
        ]
        async with (
            Router.open(router, options.store_of(loaded), candidates, settings) as opened,
            new_run(parts, options, ready, {ROUTED: {"router": router}}) as run,
        ):
            service = cls(run, opened)
            try:
                yield service
            except BaseException as error:
                service._end = End.ERROR if isinstance(error, Exception) else End.INTERRUPTED
                raise
            finally:
                before = (service._seconds(), run.replies.remarks())
                run.record.record(Stopped(options.clock.utc(), service._end.value, *before))

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
        pairs = self._reserved(text, example, k)
        if not pairs:
            is_broken = len(self._pool.broken()) == most
            self._end = End.FAILURES if is_broken else End.BUDGET
            return None
        first = await self._logged(example, pairs)
        answers = await together(
            self._evaluate(seq, name, pair)
            for seq, (name, pair) in enumerate(pairs.items(), start=first)
        )
        return Served(example, tuple(answers), self._learn(text, answers))

    def _reserved(self, text: str, example: Example, k: int) -> dict[str, Evaluation]:
        """Let the router choose, and reserve what the answers cost, as far as the budget goes."""
        affordable, cap = [], self._ledger.budget.seconds
        if cap is None or self._seconds() < cap:
            affordable = [
                name
                for name, entry in self._entries.items()
                # What one call can cost at most must fit by itself; whether all k fit together is
                # only known once each has reserved its bound, in the order of choice.
                if entry.broken is None and self._ledger.affords(entry.bound + Spend(answers=1))
            ]
        if not affordable:
            return {}
        pairs: dict[str, Evaluation] = {}
        # A pair that finds no room in the budget is dropped; the prompt is answered by fewer.
        for name in self.router.choose(text, min(k, len(affordable)), among=affordable):
            candidate = self._entries[name]
            pair = Evaluation(candidate, example)
            if pair.reserve(pair.call.bound(), self._evaluator.judge_client.bound(example)):
                gate = candidate.model.client.gate
                pair.call.slot = Slot(gate, self._pool.gate, inside=False)
                pairs[name] = pair
        return pairs

    async def _logged(self, example: Example, pairs: Mapping[str, Evaluation]) -> int:
        """Log who is asked, durably; return the number of the first ask.

        A pair is logged at most once, so an example that comes again joins as another column, and
        so does one that is not of the study's dataset.
        """
        record = self._run.record
        first = record.state.n_asked
        reason = self.router.settings.rule if self.router.ready else "random"
        column = self._columns.pop((example.id, example.digest), None)
        if column is None:
            column = len(record.state.example_ids)
            record.record(examples_added([example]))
        for seq, name in enumerate(pairs, start=first):
            # The router chose, not the run's own source of pairs: ``is_known`` False lets the
            # record adopt it.
            record.record(Asked(seq, self._row[name], column, reason), is_known=False)
        try:
            await record.flush()
        # Nothing was sent: what the calls would have cost is free again, also where the task was
        # cancelled.
        except BaseException:
            for pair in pairs.values():
                pair.let_go()
            raise
        return first

    async def _evaluate(self, seq: int, name: str, pair: Evaluation) -> ServedAnswer:
        """Evaluate the pair of an ask, and log what became of it."""
        entry, outcome = self._entries[name], await self._evaluator.evaluate(pair)
        spend = pair.spend if outcome is None else outcome.spend
        cost = None if entry.usd is None else usd(spend.usd_nanos)
        # No outcome: the budget ended during retries, or the model cannot be called at all. The
        # pair stays pending in the log, and the router learns nothing from it.
        if outcome is None:
            if pair.obstacle is not None:
                self._pool.note_obstacle(entry, pair.obstacle)
            return ServedAnswer(name, None, None, cost, str(pair.obstacle or "the budget ended"))
        # A candidate that failed scores the floor and loses; one that could not be measured has no
        # score and is left out of what the router learns.
        score = score_of(outcome, self.parts.config.limits.failed_score)
        self._run.record.record(Told(seq, outcome, score, self._seconds()))
        read = outcome.score.answer if outcome.score else None
        problem = outcome.failure.message if outcome.failure else None
        return ServedAnswer(name, score, read, cost, problem)

    def _learn(self, text: str, answers: Sequence[ServedAnswer]) -> bool:
        scores = {a.candidate: a.score for a in answers if a.score is not None}
        if not scores:
            return False
        costs = {a.candidate: a.usd for a in answers if a.candidate in scores and a.usd is not None}
        return self.router.learn(Record(prompt=text, shown=tuple(scores), scores=scores, usd=costs))

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
