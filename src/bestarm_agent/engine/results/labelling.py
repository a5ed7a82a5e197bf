"""The labelling of a stored run: whom people are asked about next, and what their labels say.

Labelling begins once: its plan (a file beside the labels) fixes the contenders, and the event of
the log up to which the judge's scores are used, so that nothing that is learned from labels changes
what was bet before. The order of the examples follows from the run's id alone.

    labels of the order (they have a place)  ->  the race of the contenders, ``stats.people``
    labels of answers chosen by hand         ->  ``judge check`` alone

A label is about a text: equal answers of several contenders are shown, and scored, once. Where all
who are left gave the same answer, nothing is asked, and their difference is 0.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.goal_specs import SelectorSpec
from bestarm_agent.config.labels import Label, answer_digest
from bestarm_agent.domain.text import safe
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.judge_check import human_labels, labels_path, put_labels
from bestarm_agent.engine.results.pairs import RunTexts, row_of
from bestarm_agent.engine.results.people import ByPeople, with_people
from bestarm_agent.engine.results.standing import Standing, Status
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.rule import SharedOrder
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.agreement import Measure, kappa
from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.people import Raced, race
from bestarm_agent.store.export import sole_writer, whole_file
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import StorePlace

MOST_CONTENDERS = 6
_FEWEST = 3  # candidates, where the judge rules all others out
_Given: TypeAlias = dict[int, dict[str, dict[str, float]]]  # score by place, answer and rater
_FILLED = ("place", "answer_digest", "score", "rater")  # columns that are read
_BLANK = ("", "nan", "none")  # as tables write that there is nothing
_ALL_EVENTS = 2**53  # more than a log holds: nothing was learned from labels before it
_SCORED = (State.DONE, State.FAILED)
_AHEAD = 20  # places whose answers are read at a time


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """The plan of labelling: what was fixed when it began, and the leaders since."""

    contenders: tuple[str, ...]  # labels, the judge's choice first
    events: int  # of the log, whose scores by the judge are used
    raters: int = 1  # people who score each example; more labels count for agreement only
    leaders: tuple[int, ...] = ()  # for each place that people were asked about

    @classmethod
    def of_all(cls, state: RunState, named: Sequence[str], raters: int) -> LabelPlan:
        """Plan the labelling of a run that collects answers for it: everybody takes part.

        Raises:
            ConfigError: some are named.
        """
        if named:
            raise ConfigError(
                "where people are the scorer, all candidates take part; leave --contender out"
            )
        labels = tuple(candidate.label for candidate in state.candidates)
        return cls(labels, events=_ALL_EVENTS, raters=raters)


class LabelQuestion(NamedTuple):
    """An example for a person: the answers of those who are left, each text once."""

    place: int  # in the order
    seq: int  # an ask of the example, for its question, target and pictures
    answers: tuple[str, ...]  # in random order
    is_free: bool  # whether all who are left gave the same one


def plan_path(where: StorePlace, run_id: str) -> Path:
    """Return the path of a run's plan of labelling, beside its labels."""
    return labels_path(where, run_id).with_suffix(".plan.json")


def read_plan(where: StorePlace, run_id: str) -> LabelPlan | None:
    """Read what was fixed when labelling began; None where it has not.

    Raises:
        ConfigError: the file is damaged.
    """
    path = plan_path(where, run_id)
    if not path.is_file():
        return None
    try:
        plan = json.loads(path.read_bytes())
        lists = {name: tuple(plan[name]) for name in ("contenders", "leaders")}
        return LabelPlan(events=plan["events"], raters=plan["raters"], **lists)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is damaged ({error!r}); restore it from a copy: without it the labels measure "
            f"the judge, and say nothing about who is best"
        ) from error


def write_plan(where: StorePlace, run_id: str, plan: LabelPlan) -> None:
    """Write what is fixed; raise StoreError if that cannot be done."""
    with whole_file(plan_path(where, run_id), "plan of labelling") as stream:
        stream.write(json.dumps(asdict(plan)).encode() + b"\n")


def contenders_of(
    standing: Standing, named: Sequence[str] = (), most: int = MOST_CONTENDERS
) -> tuple[str, ...]:
    """Return the candidates that people compare: what the judge says to take comes first.

    Then come those about as good, then the undecided, by the judge's order; of others so many that
    there are three. ``named`` ones come in any case.

    Raises:
        ConfigError: fewer than two have an answer.
    """
    near = {Status.TAKE: 0, Status.LEADING: 0, Status.EQUAL: 1, Status.GOOD: 1, Status.UNDECIDED: 2}
    rows = [row for row in standing.rows if row.n]
    ranked = sorted(rows, key=lambda row: near.get(row.status, 3))  # the sort keeps their order
    close = sum(row.status in near for row in ranked)
    labels = [row.candidate.label for row in ranked[: max(close, _FEWEST)]]
    kept = [label for label in labels if label not in named][: max(0, most - len(named))]
    first = labels[:1] if labels and labels[0] not in kept else []
    contenders = tuple(dict.fromkeys((*first, *kept, *named)))
    if len(contenders) < 2:
        raise ConfigError(
            "people compare two candidates at least, and fewer have a score; let the run go on"
        )
    return contenders


class _Answers:
    """The answers of the contenders, in the order in which people see the examples.

    Attributes:
        by_judge: whether a judge scored them.
        order: the example at each place.
        judged: (contender, column) score by the judge; nan where there is none.
        at: the column of ``judged`` of each place.
        read: what is read so far, by place: the text of each contender, None where it failed.
    """

    def __init__(self, texts: RunTexts, plan: LabelPlan) -> None:
        self._texts = texts
        state = texts.state
        rows = [row_of(state, name) for name in plan.contenders]
        # (contender, column): ask number of its answer, -1 where there is none
        self._seqs = np.full((len(rows), len(state.example_ids)), -1)
        judged = np.full(self._seqs.shape, np.nan)
        of_row = {row: k for k, row in enumerate(rows)}
        self.by_judge = state.started.scored_by != "people"
        # an answer that could not be had is asked for no more, and counts at its worst
        ended = _SCORED if self.by_judge else (*_SCORED, State.VOID)
        is_told = np.isin(state.told["state"], ended) & (state.told["event"] < plan.events)
        for seq in np.flatnonzero(is_told & np.isin(state.asks["candidate"], rows)).tolist():
            row, column, *_ = state.asks[seq].tolist()
            self._seqs[of_row[row], column] = seq
            if self.by_judge:
                judged[of_row[row], column] = state.told["score"][seq]
        columns = np.arange(self._seqs.shape[1])
        if self.by_judge:
            columns = np.flatnonzero((self._seqs >= 0).all(axis=0))
        if not len(columns):
            raise ConfigError(
                f"no example was answered by all of {', '.join(map(safe, plan.contenders))}; "
                f"name fewer with --contender, or let the run go on"
            )
        seed = zlib.crc32(texts.run_id.encode())
        # of its own seed: an order that the run has used may have chosen the contenders
        self.order = KeyedRandom(seed, "labels").at(0).permutation(columns).tolist()
        # where people score, it was drawn before the first call, and nobody chose who takes part
        if not self.by_judge:
            chosen = SelectorSpec.model_validate(state.started.config.get("selector", {}))
            table = ScoreTable(0, len(columns))
            self.order = SharedOrder(table, chosen.seed).examples.tolist()
        self.judged, self.at = judged[:, columns], np.searchsorted(columns, self.order).tolist()
        self.read: list[list[str | None]] = []  # by place: of each contender, None: it failed

    async def read_more(self) -> None:
        """Read the answers of the next places."""
        start = len(self.read)
        columns = self.order[start : start + _AHEAD]
        seqs = self._seqs[:, columns].T
        asked = self._texts.pages(seqs[seqs >= 0].tolist())
        replies = iter([pair.reply async for page in asked for pair in page])
        self.read += [[next(replies) if seq >= 0 else None for seq in row] for row in seqs.tolist()]

    def is_collected(self, place: int, alive: BoolArray) -> bool:
        """Return whether all who are left have an answer at a place, or failed there."""
        return bool((self._seqs[alive, self.order[place]] >= 0).all())

    def is_void(self, place: int) -> list[bool]:
        """Return of each contender whether its answer at a place could not be had."""
        seqs, told = self._seqs[:, self.order[place]], self._texts.state.told["state"]
        return [seq >= 0 and bool(told[seq] == State.VOID) for seq in seqs.tolist()]

    def n_collected(self, alive: BoolArray) -> int:
        """Return the places, from the first on, at which all who are left have an answer."""
        missing = np.flatnonzero((self._seqs[alive][:, self.order] < 0).any(axis=0))
        return int(missing[0]) if len(missing) else len(self.order)

    def seq(self, contender: int, place: int) -> int:
        """Return the ask number of a contender's answer at a place."""
        return int(self._seqs[contender, self.order[place]])


class Labelling:
    """The labelling of a run: whom to ask what next, and what the labels say so far."""

    def __init__(
        self, texts: RunTexts, where: StorePlace, plan: LabelPlan, confidence: float = 0.95
    ) -> None:
        self.texts, self._where = texts, where
        self._confidence, self._plan = confidence, plan
        self._answers = _Answers(texts, plan)

    async def stand(self) -> ByPeople:
        """Return what the labels say now."""
        return (await self._raced())[0]

    async def _raced(self) -> tuple[ByPeople, LabelPlan, _Given]:
        """Return what the labels say, with the plan and the labels that it follows from."""
        answers = self._answers
        plan = read_plan(self._where, self.texts.run_id) or self._plan
        labels = human_labels(self._where, self.texts.run_id)
        given = _by_place(labels, answers.order, self.texts)
        n_asked = max([len(plan.leaders), *(place + 1 for place in given)])
        # The race asks for the scores of one place after another, as a function that does not wait,
        # and answers are read from the store, which waits. So it is run with the answers that were
        # read; if it wanted a place beyond them, some more are read and it runs again from the
        # start. It is a function of the labels, so that the second run agrees with the first as far
        # as that came.
        while True:
            wanted = later = 0

            def scores(place: int, alive: BoolArray) -> tuple[FloatArray, FloatArray] | None:
                nonlocal wanted, later
                wanted = place
                if place >= len(answers.read) or not answers.is_collected(place, alive):
                    return None
                texts = answers.read[place]
                texts_left = {texts[row] for row in np.flatnonzero(alive).tolist()}
                # Beyond what people were asked, a place counts only if it needs nobody: all who are
                # left gave the same answer. Before that, one without a label was left for later,
                # and counts at its worst; else people could choose the examples.
                if place >= n_asked and (len(texts_left) > 1 or alive.sum() == 1):
                    return None
                of_rows = [
                    None if is_void else self._score(given.get(place, {}), text)
                    for text, is_void in zip(texts, answers.is_void(place), strict=True)
                ]
                if len(texts_left) == 1 and of_rows[int(alive.argmax())] is None:
                    return np.full(len(alive), np.nan), np.full(len(alive), np.nan)
                later += any(score is None and alive[k] for k, score in enumerate(of_rows))
                low = [0.0 if score is None else score for score in of_rows]
                high = [1.0 if score is None else score for score in of_rows]
                return np.array(low), np.array(high)

            alpha = 1.0 - self._confidence
            raced = race(answers.judged, answers.at, scores, alpha, leaders=plan.leaders)
            if wanted < len(answers.read) or len(answers.read) == len(answers.order):
                break
            await answers.read_more()
        alive = self._alive(raced)
        is_waiting = raced.n < len(answers.order) and not answers.is_collected(raced.n, alive)
        stand = ByPeople(
            self.texts.run_id,
            self._plan.contenders,
            raced,
            raced.n - later,
            later,
            len(answers.order),
            self._confidence,
            _agreement(given),
            bool(given),
            answers.by_judge,
            is_waiting,
            not answers.by_judge and len(self._race_on_new(raced, given).alive) == 1,
        )
        return stand, plan, given

    def _alive(self, raced: Raced) -> BoolArray:
        """Return of each contender whether it is left."""
        return np.isin(np.arange(len(self._plan.contenders)), raced.alive)

    def _race_on_new(self, raced: Raced, given: _Given) -> Raced:
        """Race once more for new examples, by labels alone: valid where nobody chose the rows.

        A row that left the race on these examples has no labels after that: they count at their
        worst.
        """

        # Without scores of a judge, as ``stats.people`` says of new examples: a mean over those
        # without labels would let later places decide what is bet on earlier ones.
        def scores(place: int, _: BoolArray) -> tuple[FloatArray, FloatArray] | None:
            if place >= raced.n:
                return None
            gone = [out is not None and out <= place for out in raced.ruled_out]
            texts, voids = self._answers.read[place], self._answers.is_void(place)
            texts_left = {text for text, is_gone in zip(texts, gone, strict=True) if not is_gone}
            of_place = given.get(place, {})
            of_rows = [
                None if is_gone or is_void else self._score(of_place, text)
                for text, is_gone, is_void in zip(texts, gone, voids, strict=True)
            ]
            if len(texts_left) == 1 and not any(voids):  # equal answers differ by nothing
                of_rows = [None if is_gone else 0.5 for is_gone in gone]
            low = [0.0 if x is None else x for x in of_rows]
            return np.array(low), np.array([1.0 if x is None else x for x in of_rows])

        alpha, nothing = 1.0 - self._confidence, np.full(self._answers.judged.shape, np.nan)
        return race(
            nothing, self._answers.at, scores, alpha, leaders=raced.leaders[:-1], on_new=True
        )

    def _score(self, given: Mapping[str, Mapping[str, float]], text: str | None) -> float | None:
        """Return the mean score of the raters who count; None before all of them scored it."""
        if text is None:
            return 0.0  # the candidate itself failed
        of_text = list(given.get(answer_digest(text), {}).values())[: self._plan.raters]
        return float(np.mean(of_text)) if len(of_text) == self._plan.raters else None

    async def next(self, rater: str | None, later: Sequence[int] = ()) -> LabelQuestion | None:
        """Return the next example for a person; None once it is proved, or nothing is left.

        Args:
            rater: who asks; answers are not asked twice of one person.
            later: places that this person has left for later, asked again after all others.
        """
        stand, _, given = await self._raced()
        if stand.proved:
            return None
        missing = []
        for place in range(self._answers.n_collected(self._alive(stand.raced))):
            question = await self.question(place, stand)
            digests = [answer_digest(text) for text in question.answers]
            raters = [given.get(place, {}).get(digest, {}) for digest in digests]
            own = all((rater or "") in who for who in raters)
            if (
                not question.is_free
                and not own
                and any(len(who) < self._plan.raters for who in raters)
            ):
                if place not in later:
                    return question
                missing.append(place)
        by_turn = sorted(missing, key=list(later).index)
        return await self.question(by_turn[0], stand) if by_turn else None

    async def question(self, place: int, stand: ByPeople) -> LabelQuestion:
        """Return the question of a place, with the answers of those who were left then."""
        while place >= len(self._answers.read):
            await self._answers.read_more()
        texts = self._answers.read[place]
        alive = [k for k, out in enumerate(stand.raced.ruled_out) if out is None or out > place]
        voids = self._answers.is_void(place)
        # Those without an answer are not asked about, unless nobody has one. The order of the texts
        # is random, so that nobody can tell by it whose answer stands first, and is the same each
        # time that the place is shown.
        alive = [k for k in alive if not voids[k]] or alive
        texts_left = [texts[k] for k in alive]
        distinct = [text for text in dict.fromkeys(texts_left) if text is not None]
        mixed = KeyedRandom(zlib.crc32(self.texts.run_id.encode()), "shown").at(place)
        answers = tuple(distinct[k] for k in mixed.permutation(len(distinct)))
        seq = self._answers.seq(alive[0], place)
        return LabelQuestion(place, seq, answers, is_free=len(set(texts_left)) == 1)

    async def put(
        self, place: int, scores: Mapping[str, float | None], rater: str | None, *, tie: bool
    ) -> None:
        """Store a person's scores of the answers to an example; None takes one back.

        Raises:
            StoreError: the file cannot be written.
        """
        example = self.texts.state.example_ids[self._answers.order[place]]
        new = [
            Label(
                example=example,
                score=0.0 if score is None else score,
                answer=text,
                answer_digest=answer_digest(text),
                rater=rater or None,
                place=place,
                tie=tie,
            )
            for text, score in scores.items()
        ]
        taken = {
            label.answer_digest for label, s in zip(new, scores.values(), strict=True) if s is None
        }
        # The leaders of each place are written before its label. They decide what is bet on the
        # place, and a leader worked out afterwards could depend on the label that it bets on.
        # Several people may label at once: what another process wrote meanwhile stays.
        stand, _, _ = await self._raced()
        with sole_writer(plan_path(self._where, self.texts.run_id), "plan of labelling"):
            plan = read_plan(self._where, self.texts.run_id)
            assert plan is not None
            leaders = (*plan.leaders, *stand.raced.leaders[len(plan.leaders) :])[: place + 1]
            if len(leaders) > len(plan.leaders):  # before the label: it must not choose them
                changed = replace(plan, leaders=leaders)
                write_plan(self._where, self.texts.run_id, changed)
        put_labels(self._where, self.texts.run_id, new, taken)

    async def rows(self, count: int) -> list[dict[str, Json]]:
        """Return the answers to the next examples, a row for each text, for a table to fill in.

        ``score`` is empty: 0 to 1, "right", "wrong", or "same" on each answer of an example among
        which there is no difference.
        """
        stand, _, given = await self._raced()
        rows: list[dict[str, Json]] = []
        for place in range(
            0 if stand.proved else self._answers.n_collected(self._alive(stand.raced))
        ):
            question = await self.question(place, stand)
            digests = map(answer_digest, question.answers)
            scores = [given.get(place, {}).get(digest, {}) for digest in digests]
            if question.is_free or all(len(of_text) >= self._plan.raters for of_text in scores):
                continue
            if (count := count - 1) < 0:
                break
            [[pair]] = [page async for page in self.texts.pages([question.seq])]
            about: dict[str, Json] = {"place": place, "example": pair.example}
            about |= {"question": pair.prompt, "target": pair.target}
            rows += [
                {**about, "answer": text, "answer_digest": answer_digest(text), "score": ""}
                for text in question.answers
            ]
        return rows

    async def put_rows(self, rows: Sequence[Mapping[str, object]]) -> int:
        """Store the scores of ``rows`` that somebody filled in; return the number of examples.

        Rows without a score are left for later; a column ``rater`` says who filled one in.

        Raises:
            ConfigError: a row is about no answer of this run, or its score is none.
        """
        filled: dict[tuple[int, str], dict[str, Label]] = defaultdict(dict)
        for number, row in enumerate(rows, start=1):
            texts = {name: str(row.get(name, "")).strip() for name in _FILLED}
            values: dict[str, Json] = {n: t for n, t in texts.items() if t.lower() not in _BLANK}
            if "score" not in values:
                continue
            values |= {"example": "-", "tie": texts["score"].lower() == "same"}
            label = parse_row(Label, values, f"row {number}")
            of_place = filled[-1 if label.place is None else label.place, label.rater or ""]
            if of_place.setdefault(str(label.answer_digest), label) != label:
                raise ConfigError(f"row {number}: this answer has another score; keep one of them")
        if not filled:
            raise ConfigError("no row has a score; fill in the column `score`")
        stand, chosen = await self.stand(), list[dict[str, float | None]]()
        # All are looked up before the first is stored: a table counts as a whole, or not at all.
        for (place, _), labels in sorted(filled.items()):
            if 0 <= place < len(self._answers.order):
                await self.question(place, stand)  # reads them; one who left may be among them
            read = next(iter(self._answers.read[place : place + 1]), [])  # none of no place
            known = {answer_digest(text): text for text in read if text is not None}
            if unknown := set(labels) - set(known):
                raise ConfigError(
                    f"place {place} has no answer {min(unknown)}; keep the columns place and "
                    f"answer_digest as they came, of this run's table"
                )
            chosen.append({known[key]: label.score for key, label in labels.items()})
        for ((place, rater), labels), scores in zip(sorted(filled.items()), chosen, strict=True):
            await self.put(place, scores, rater, tie=all(label.tie for label in labels.values()))
        return len(filled)


def _by_place(labels: Sequence[Label], order: Sequence[int], texts: RunTexts) -> _Given:
    """Return the scores of labels that were asked for: by place, answer and rater."""
    scores: _Given = defaultdict(lambda: defaultdict(dict))
    ids = texts.state.example_ids
    for label in labels:
        place = label.place
        is_asked = place is not None and place < len(order) and ids[order[place]] == label.example
        if place is not None and is_asked and label.answer_digest:
            scores[place][label.answer_digest][label.rater or ""] = label.score
    return scores


def _agreement(given: _Given) -> Measure | None:
    """Return kappa of the first two raters of every answer that two have scored."""
    ratings = [
        list(scores.values())[:2]
        for answers in given.values()
        for scores in answers.values()
        if len(scores) > 1
    ]
    if len(ratings) < 2:
        return None
    # kappa is about categories: scores are rounded to quarters
    first, second = np.array(ratings).T
    return kappa(np.rint(4 * first).astype(int), np.rint(4 * second).astype(int), 0.05)


async def with_labels(
    standing: Standing, texts: Callable[[], Awaitable[RunTexts]], where: StorePlace
) -> Standing:
    """Add what people's labels of a stored run say so far; nothing before labelling has begun."""
    if (plan := read_plan(where, standing.run_id)) is None:
        return standing
    return with_people(standing, await Labelling(await texts(), where, plan).stand())
